//! Joining a site by an invitation, and renewing.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tidecast_identity::{
    EnrolError, EnrolRequest, Identity, Invitation, NodeId, NodeKey, Secret, SiteCa, SwarmId, TicketError,
    Token, TokenId, Trust, root_hash,
};

const NOW: u64 = 1_700_000_000;
const HOUR: u64 = 3600;

struct Site {
    _dir: tempfile::TempDir,
    ca: SiteCa,
    authority: NodeId,
}

fn site() -> Site {
    let dir = tempfile::tempdir().unwrap();
    let ca = SiteCa::init(&dir.path().join("ca"), "site", NOW).unwrap();
    Site { _dir: dir, ca, authority: NodeKey::generate().unwrap().id() }
}

impl Site {
    fn invite(&self, identity: &str, lifetime: Option<u64>) -> Token {
        self.ca.invite(&identity.parse().unwrap(), HOUR, lifetime, NOW).unwrap()
    }

    fn request(&self, token: &Token, node: NodeId) -> EnrolRequest {
        EnrolRequest::new(token, SwarmId(self.ca.root_hash().unwrap()), self.authority, node)
    }
}

#[test]
fn an_invitation_serves_one_node_which_may_ask_again() {
    let site = site();
    let token = site.invite("host:node01", None);
    let (node, other) = (NodeKey::generate().unwrap().id(), NodeKey::generate().unwrap().id());
    let first = site.ca.enrol(&site.request(&token, node), site.authority, node, NOW).unwrap();
    assert_eq!(first.identity, Identity::Host("node01".into()));
    assert_eq!(root_hash(&first.root), Some(site.ca.root_hash().unwrap()));
    assert!(first.crl.contains("BEGIN X509 CRL"));
    site.ca.enrol(&site.request(&token, node), site.authority, node, NOW + 5).unwrap();
    let second = site.ca.enrol(&site.request(&token, other), site.authority, other, NOW + 5);
    assert!(matches!(second, Err(EnrolError::Used)));
}

#[test]
fn what_proves_nothing_is_refused_and_uses_nothing_up() {
    let site = site();
    let token = site.invite("host:node01", None);
    let (node, other) = (NodeKey::generate().unwrap().id(), NodeKey::generate().unwrap().id());
    let good = site.request(&token, node);
    // Another node shows an observed request; a wrong secret; another site; another authority; after the
    // time.
    let enrol = |request: &EnrolRequest, node, at| site.ca.enrol(request, site.authority, node, at);
    assert!(matches!(enrol(&good, other, NOW), Err(EnrolError::Proof)));
    let guessed = Token { id: token.id, secret: Secret([0; 16]) };
    assert!(matches!(enrol(&site.request(&guessed, node), node, NOW), Err(EnrolError::Proof)));
    let elsewhere = EnrolRequest::new(&token, SwarmId([7; 32]), site.authority, node);
    assert!(matches!(enrol(&elsewhere, node, NOW), Err(EnrolError::Proof)));
    assert!(matches!(site.ca.enrol(&good, other, node, NOW), Err(EnrolError::Proof)));
    assert!(matches!(enrol(&good, node, NOW + HOUR), Err(EnrolError::Unknown)));
    let unknown = Token { id: TokenId([9; 8]), secret: token.secret.clone() };
    assert!(matches!(enrol(&site.request(&unknown, node), node, NOW), Err(EnrolError::Unknown)));
}

#[test]
fn the_time_of_an_invitation_ends_for_good() {
    let site = site();
    let token = site.invite("host:node01", None);
    let node = NodeKey::generate().unwrap().id();
    let late = site.ca.enrol(&site.request(&token, node), site.authority, node, NOW + HOUR);
    assert!(matches!(late, Err(EnrolError::Unknown)));
    // A clock that is set back does not bring it again once the state was written without it.
    site.ca.renew_crl(NOW + HOUR).unwrap();
    let again = site.ca.enrol(&site.request(&token, node), site.authority, node, NOW);
    assert!(matches!(again, Err(EnrolError::Unknown)));
}

#[test]
fn a_certificate_is_renewed_as_long_as_it_is_valid() {
    let site = site();
    let token = site.invite("user:alice", Some(100));
    let node = NodeKey::generate().unwrap().id();
    let first = site.ca.enrol(&site.request(&token, node), site.authority, node, NOW).unwrap();
    assert_eq!(first.not_after, NOW + 100);
    let second = site.ca.renew(node, NOW + 60).unwrap();
    assert_eq!((second.not_after, &second.identity), (NOW + 160, &first.identity));
    // By the second, after the first has expired.
    assert_eq!(site.ca.renew(node, NOW + 150).unwrap().not_after, NOW + 250);
    assert!(matches!(site.ca.renew(node, NOW + 250), Err(EnrolError::NotEnrolled(_))));
    let other = NodeKey::generate().unwrap().id();
    assert!(matches!(site.ca.renew(other, NOW + 60), Err(EnrolError::NotEnrolled(_))));
}

#[test]
fn what_was_revoked_is_not_renewed() {
    let site = site();
    let token = site.invite("host:node01", None);
    let node = NodeKey::generate().unwrap().id();
    site.ca.enrol(&site.request(&token, node), site.authority, node, NOW).unwrap();
    site.ca.revoke("host:node01", NOW + 1).unwrap();
    assert!(matches!(site.ca.renew(node, NOW + 2), Err(EnrolError::NotEnrolled(_))));
}

#[test]
fn the_revocation_list_is_dated_again_in_time() {
    let site = site();
    let crl = |now| {
        site.ca.keep_crl_fresh(now).unwrap();
        site.ca.public().unwrap().1
    };
    let first = crl(NOW);
    assert_eq!(crl(NOW + 29 * 24 * HOUR), first);
    assert_ne!(crl(NOW + 31 * 24 * HOUR), first);
}

#[test]
fn a_new_authority_has_a_trust_file_that_works() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("ca");
    SiteCa::init(&place, "site", NOW).unwrap();
    assert_eq!(Trust::read(&place.join("trust.toml")).unwrap().roots().len(), 1);
}

fn invitation() -> impl Strategy<Value = Invitation> {
    let identity = prop_oneof![
        "[a-z][a-z0-9.-]{0,30}".prop_map(Identity::Host),
        "[a-z][a-z0-9]{0,30}".prop_map(Identity::User)
    ];
    let address = (any::<[u8; 4]>(), any::<u16>()).prop_map(|(ip, port)| (ip, port).into());
    let addresses = prop::collection::vec(address, 0..=16);
    (any::<[u8; 32]>(), any::<[u8; 32]>(), any::<[u8; 8]>(), any::<[u8; 16]>(), identity, addresses).prop_map(
        |(authority, root, id, secret, identity, addrs)| Invitation {
            authority: NodeId(authority),
            root,
            token: Token { id: TokenId(id), secret: Secret(secret) },
            identity,
            addrs,
        },
    )
}

proptest! {
    #[test]
    fn invitations_are_read_as_they_are_written(given in invitation()) {
        let text = given.to_string();
        let read: Invitation = text.parse().unwrap();
        prop_assert_eq!(read.to_string(), text);
        prop_assert_eq!((read.identity, read.addrs, read.root), (given.identity, given.addrs, given.root));
    }

    #[test]
    fn a_damaged_invitation_is_refused(given in invitation(), at in any::<prop::sample::Index>(), with in "[a-z2-7]") {
        let text = given.to_string();
        let at = at.index(text.len());
        let mut damaged = text.clone();
        damaged.replace_range(at..=at, &with);
        prop_assume!(damaged != text);
        prop_assert!(damaged.parse::<Invitation>().is_err());
        prop_assert!(text[..at].parse::<Invitation>().is_err());
    }
}

#[test]
fn a_ticket_of_a_swarm_is_no_invitation() {
    let error = "tidecast1abcdef".parse::<Invitation>().unwrap_err();
    assert!(matches!(error, TicketError::Prefix("tidecastjoin1")));
}
