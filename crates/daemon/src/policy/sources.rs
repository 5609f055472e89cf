//! Which daemons are asked for a cache, and in which order.

use tidecast_identity::Identity;

/// Whether a daemon may learn that `reader` wants a cache: daemons of other users may not, unless one is the
/// origin.
pub(crate) fn may_be_asked(identity: &Identity, reader: &str, is_origin: bool) -> bool {
    match identity {
        Identity::Host(_) => true,
        Identity::User(user) => user == reader || is_origin,
    }
}

/// Sort key of sources, smallest first: the origin, then holders by their own announcement, then others;
/// equal ones by uptime.
pub(crate) fn rank(is_origin: bool, holds: bool, started: u64) -> (bool, bool, u64) {
    (!is_origin, !holds, started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_comes_first_then_holders_then_age() {
        let mut all = [(false, false, 1), (false, true, 9), (true, false, 9), (false, true, 2)];
        all.sort_by_key(|(origin, holds, started)| rank(*origin, *holds, *started));
        assert_eq!(all, [(true, false, 9), (false, true, 2), (false, true, 9), (false, false, 1)]);
    }

    #[test]
    fn a_wish_is_told_to_hosts_to_the_readers_own_daemons_and_to_the_origin() {
        let (host, alice) = (Identity::Host("node1".into()), Identity::User("alice".into()));
        assert!(may_be_asked(&host, "bob", false) && may_be_asked(&alice, "alice", false));
        assert!(!may_be_asked(&alice, "bob", false) && may_be_asked(&alice, "bob", true));
    }
}
