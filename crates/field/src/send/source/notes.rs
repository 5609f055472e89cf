//! What people should know of a source: noted by the threads that read it, and told by the sender.

use std::sync::Arc;

use parking_lot::Mutex;

/// Notes that are kept at most: another process may write them.
const MOST: usize = 16;

/// Sentences, each told once.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    all: Vec<String>,
    told: usize,
}

impl Notes {
    pub(super) fn add(&self, text: String) {
        let mut kept = self.0.lock();
        if kept.all.len() < MOST && !kept.all.contains(&text) {
            kept.all.push(text);
        }
    }

    /// Those since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        let kept = &mut *self.0.lock();
        let new = kept.all.get(kept.told..).unwrap_or_default().to_vec();
        kept.told = kept.all.len();
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_and_few_are_kept() {
        let notes = Notes::default();
        let other = notes.clone();
        other.add("a".into());
        assert_eq!(notes.take(), ["a"]);
        other.add("a".into());
        other.add("b".into());
        assert_eq!(notes.take(), ["b"]);
        (0..100).for_each(|n| other.add(n.to_string()));
        assert_eq!(notes.take().len(), MOST - 2);
    }
}
