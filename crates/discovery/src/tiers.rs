//! The order of trackers (BEP 12): those of a tier one after the other until one answers, which is asked first from
//! then on; the next tier only if all of this one fail.
//!
//! A failed tracker is retried at times, and regains its place when it answers.

/// Tiers of one swarm, each of its trackers by a number of the caller's.
#[derive(Debug)]
pub(crate) struct Order(Vec<Vec<usize>>);

impl Order {
    /// These tiers, each shuffled already.
    pub(crate) fn new(tiers: Vec<Vec<usize>>) -> Self {
        Self(tiers)
    }

    /// The trackers to ask: the first that does not fail, and those before it, to see whether they still do.
    pub(crate) fn asked(&self, fails: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut over = false;
        let turn = |at: &usize| {
            let is_asked = !over;
            over |= !fails(*at);
            is_asked
        };
        self.0.iter().flatten().copied().take_while(turn).collect()
    }

    /// This one has answered: it goes to the front of its tier.
    pub(crate) fn answered(&mut self, at: usize) {
        for tier in &mut self.0 {
            if let Some(place) = tier.iter().position(|other| *other == at) {
                tier.get_mut(..=place).unwrap_or_default().rotate_right(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_left_only_when_all_of_it_fails() {
        let mut order = Order::new(vec![vec![0, 1, 2], vec![3, 4]]);
        assert_eq!(order.asked(|_| false), [0]);
        assert_eq!(order.asked(|at| at == 0), [0, 1]);
        assert_eq!(order.asked(|at| at <= 2), [0, 1, 2, 3]);
        assert_eq!(order.asked(|_| true), [0, 1, 2, 3, 4]);
        order.answered(2);
        assert_eq!(order.asked(|_| false), [2]);
        assert_eq!(order.asked(|at| at == 2), [2, 0], "the others keep their order");
        order.answered(4);
        assert_eq!(order.asked(|at| at <= 2), [2, 0, 1, 4]);
        assert_eq!(order.asked(|_| false), [2], "an earlier tier comes first again");
        assert!(Order::new(Vec::new()).asked(|_| false).is_empty());
    }
}
