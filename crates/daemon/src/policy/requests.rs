//! The reader on whose behalf another daemon asks.

use tidecast_depot::Reader;
use tidecast_identity::Identity;

use crate::model::message::Want;

/// The reader of a request from a daemon of this identity: a host's daemon asks for all its users, a user's
/// daemon for this user only.
pub(crate) fn reader(identity: &Identity, want: &Want) -> Reader {
    match identity {
        Identity::Host(_) => Reader { owner: want.reader.clone(), groups: want.groups.clone(), all: false },
        Identity::User(user) if *user == want.reader => Reader::owner(user),
        // For other users of its machine: caches that every user may read.
        Identity::User(_) => Reader::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_speaks_for_its_users_and_their_groups_and_a_user_for_himself() {
        let want = Want {
            name: "head/nt".into(),
            cache: None,
            reader: "alice".into(),
            groups: vec!["users".into()],
            ad: String::new(),
        };
        let of_host = reader(&Identity::Host("node1".into()), &want);
        assert_eq!((of_host.owner.as_str(), of_host.groups.len(), of_host.all), ("alice", 1, false));
        let own = reader(&Identity::User("alice".into()), &want);
        assert_eq!((own.owner.as_str(), own.groups.len(), own.all), ("alice", 0, false));
        let others = reader(&Identity::User("bob".into()), &want);
        assert_eq!((others.owner.as_str(), others.groups.len(), others.all), ("", 0, false));
    }
}
