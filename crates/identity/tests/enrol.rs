//! The life of a private swarm: enrol, present credentials, revoke; and attacks of impostors.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::os::unix::fs::PermissionsExt;

use tidecast_identity::{
    Authority, CLOCK_SKEW, Credential, DEFAULT_LIFETIME, EnrolRequest, Error, Gate, MAX_LIFETIME, NodeId,
    NodeKey, Refused, RevocationList, Secret, SwarmId, Terms, Token, TokenId, own_dir,
};

const SWARM: SwarmId = SwarmId([5; 32]);
const NOW: u64 = 1_800_000_000;

struct Owner {
    dir: tempfile::TempDir,
    authority: Authority,
}

fn owner() -> Owner {
    let dir = tempfile::tempdir().unwrap();
    let key = NodeKey::load_or_create(dir.path()).unwrap();
    let authority = Authority::open(dir.path(), &key).unwrap();
    Owner { dir, authority }
}

fn node() -> NodeId {
    NodeKey::generate().unwrap().id()
}

fn enrol(a: &Authority, token: &Token, node: NodeId) -> Result<Credential, Refused> {
    a.redeem(&EnrolRequest::new(token, SWARM, a.id(), node), node, NOW)
}

#[test]
fn a_node_with_a_ticket_enrols_and_is_let_in() {
    let Owner { dir: _dir, authority: a } = owner();
    let (token, n) = (a.issue(SWARM, None, NOW).unwrap(), node());
    let request = EnrolRequest::new(&token, SWARM, a.id(), n);
    let request = EnrolRequest::from_bytes(&request.to_bytes()).unwrap();
    let credential = a.redeem(&request, n, NOW).unwrap();
    let credential = Credential::from_bytes(&credential.to_bytes()).unwrap();
    assert_eq!((credential.issued, credential.expires), (NOW, NOW + DEFAULT_LIFETIME));
    let gate = Gate::new(a.id(), SWARM);
    assert_eq!(gate.check(n, Some(&credential), NOW + 1), Ok(()));
    assert_eq!(gate.check(a.id(), None, NOW), Ok(()), "the owner needs none");
    assert_eq!(gate.check(n, None, NOW), Err(Refused::NoCredential));
    assert!(!request.to_bytes().windows(16).any(|w| w == token.secret.0), "the secret is not sent");
}

#[test]
fn a_proof_is_worth_nothing_to_another_node_swarm_or_owner() {
    let (o, other) = (owner(), owner());
    let a = &o.authority;
    let (token, n) = (a.issue(SWARM, None, NOW).unwrap(), node());
    let request = EnrolRequest::new(&token, SWARM, a.id(), n);
    assert_eq!(a.redeem(&request, node(), NOW), Err(Refused::BadProof), "replayed by another node");
    let elsewhere = EnrolRequest { swarm: SwarmId([6; 32]), ..request.clone() };
    assert_eq!(a.redeem(&elsewhere, n, NOW), Err(Refused::BadProof));
    let honest = EnrolRequest::new(&token, SwarmId([6; 32]), a.id(), n);
    assert_eq!(a.redeem(&honest, n, NOW), Err(Refused::WrongSwarm));
    assert_eq!(other.authority.redeem(&request, n, NOW), Err(Refused::UnknownTicket));
    let to_other = EnrolRequest::new(&token, SWARM, other.authority.id(), n);
    assert_eq!(a.redeem(&to_other, n, NOW), Err(Refused::BadProof), "a proof made for another owner");
    let guess = Token { id: token.id, secret: Secret([0; 16]) };
    assert_eq!(enrol(a, &guess, n), Err(Refused::BadProof));
}

#[test]
fn a_changed_credential_is_refused_whatever_was_changed() {
    let Owner { dir: _dir, authority: a } = owner();
    let (token, n) = (a.issue(SWARM, None, NOW).unwrap(), node());
    let good = enrol(&a, &token, n).unwrap().to_bytes();
    let gate = Gate::new(a.id(), SWARM);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let bad = Credential::from_bytes(&bad).unwrap();
        assert!(gate.check(n, Some(&bad), NOW).is_err(), "byte {at}");
    }
    assert!(Credential::from_bytes(&good[1..]).is_err());
    assert!(Credential::from_bytes(&[&good[..], &[0]].concat()).is_err());
    let good = Credential::from_bytes(&good).unwrap();
    assert_eq!(gate.check(node(), Some(&good), NOW), Err(Refused::WrongNode));
    assert_eq!(Gate::new(a.id(), SwarmId([6; 32])).check(n, Some(&good), NOW), Err(Refused::WrongSwarm));
    assert_eq!(Gate::new(node(), SWARM).check(n, Some(&good), NOW), Err(Refused::BadSignature));
}

#[test]
fn dates_are_kept() {
    let Owner { dir: _dir, authority: a } = owner();
    let (token, n) = (a.issue(SWARM, Some(NOW + 100), NOW).unwrap(), node());
    let credential = enrol(&a, &token, n).unwrap();
    assert_eq!(credential.expires, NOW + 100, "no longer than the ticket");
    let gate = Gate::new(a.id(), SWARM);
    let check = |now| gate.check(n, Some(&credential), now);
    assert_eq!(check(NOW + 99), Ok(()));
    assert_eq!(check(NOW + 100), Err(Refused::Expired));
    assert_eq!(check(NOW - CLOCK_SKEW), Ok(()), "clocks differ a little");
    assert_eq!(check(NOW - CLOCK_SKEW - 1), Err(Refused::NotYetValid));
    let request = EnrolRequest::new(&token, SWARM, a.id(), n);
    assert_eq!(a.redeem(&request, n, NOW + 100), Err(Refused::Expired));
}

#[test]
fn a_revoked_ticket_neither_enrols_nor_admits() {
    let Owner { dir: _dir, authority: a } = owner();
    let (token, kept, n) = (a.issue(SWARM, None, NOW).unwrap(), a.issue(SWARM, None, NOW).unwrap(), node());
    let (out, stays) = (enrol(&a, &token, n).unwrap(), enrol(&a, &kept, n).unwrap());
    let list = a.revoke(token.id, NOW).unwrap();
    let list = RevocationList::from_bytes(&list.to_bytes()).unwrap();
    let mut gate = Gate::new(a.id(), SWARM);
    assert_eq!(gate.check(n, Some(&out), NOW), Ok(()), "nobody told yet");
    assert_eq!(gate.update(list), Ok(true));
    assert_eq!(gate.check(n, Some(&out), NOW), Err(Refused::Revoked));
    assert_eq!(gate.check(n, Some(&stays), NOW), Ok(()));
    assert_eq!(enrol(&a, &token, n), Err(Refused::Revoked));
    assert!(a.revoke(token.id, NOW).is_ok(), "twice is no error");
    assert!(matches!(a.revoke(TokenId([0; 8]), NOW), Err(Error::UnknownTicket(_))));
}

#[test]
fn lists_are_taken_only_from_the_owner_and_only_later_ones() {
    let (o, other) = (owner(), owner());
    let a = &o.authority;
    let tokens: Vec<_> = (0..3).map(|_| a.issue(SWARM, None, NOW).unwrap().id).collect();
    let lists: Vec<_> = tokens.iter().map(|t| a.revoke(*t, NOW).unwrap()).collect();
    let mut gate = Gate::new(a.id(), SWARM);
    assert_eq!(gate.update(lists[1].clone()), Ok(true));
    assert_eq!(gate.update(lists[0].clone()), Ok(false), "an older one");
    assert_eq!(gate.update(lists[1].clone()), Ok(false), "the same again");
    assert_eq!(gate.revocations(), Some(&lists[1]));
    let mut forged = lists[2].clone();
    forged.tokens.clear();
    assert_eq!(gate.update(forged), Err(Refused::BadSignature));
    let theirs = other.authority.issue(SWARM, None, NOW).unwrap().id;
    let mut theirs = other.authority.revoke(theirs, NOW).unwrap();
    theirs.seq = 99;
    assert_eq!(gate.update(theirs), Err(Refused::BadSignature));
    assert_eq!(gate.update(lists[2].clone()), Ok(true));
    let mut bytes = lists[2].to_bytes();
    bytes[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(RevocationList::from_bytes(&bytes).is_err(), "a giant count");
    let (one, two) = (12..20, 20..28);
    let mut bytes = lists[2].to_bytes();
    let swapped = [&bytes[two.clone()], &bytes[one.clone()]].concat();
    bytes[one.start..two.end].copy_from_slice(&swapped);
    assert!(RevocationList::from_bytes(&bytes).is_err(), "not ascending");
}

#[test]
fn a_revocation_in_another_process_takes_effect() {
    let Owner { dir, authority: running } = owner();
    let key = NodeKey::load_or_create(dir.path()).unwrap();
    assert_eq!(key.id(), running.id(), "the key stays");
    let token = running.issue(SWARM, None, NOW).unwrap();
    let command = Authority::open(dir.path(), &key).unwrap();
    assert!(!running.reload_if_changed().unwrap());
    command.revoke(token.id, NOW).unwrap();
    assert!(enrol(&running, &token, node()).is_ok(), "not looked yet");
    assert!(running.reload_if_changed().unwrap());
    assert_eq!(enrol(&running, &token, node()), Err(Refused::Revoked));
    assert!(running.revocations().contains(token.id));
    assert!(running.revocations().verify(running.id()));
    assert!(!running.reload_if_changed().unwrap());
    // An authority that starts later reports earlier revocations.
    let restarted = Authority::open(dir.path(), &key).unwrap();
    assert!(restarted.reload_if_changed().unwrap() && restarted.revocations().contains(token.id));
    assert!(!restarted.reload_if_changed().unwrap());
    // A change by the running process does not lose the other's.
    let another = running.issue(SWARM, None, NOW).unwrap();
    assert_eq!(Authority::open(dir.path(), &key).unwrap().tokens()[0].id, another.id);
    assert!(command.reload_if_changed().is_ok());
    assert!(enrol(&command, &another, node()).is_ok());
}

#[test]
fn old_state_is_forgotten_only_when_it_cannot_matter() {
    let Owner { dir: _dir, authority: a } = owner();
    let token = a.issue(SWARM, None, NOW).unwrap();
    a.revoke(token.id, NOW).unwrap();
    a.issue(SWARM, Some(NOW + 1), NOW + MAX_LIFETIME).unwrap();
    assert!(a.revocations().contains(token.id), "a credential could still be alive");
    a.issue(SWARM, None, NOW + 2 * MAX_LIFETIME).unwrap();
    assert!(!a.revocations().contains(token.id));
    let request = EnrolRequest::new(&token, SWARM, a.id(), a.id());
    assert_eq!(a.redeem(&request, a.id(), NOW), Err(Refused::UnknownTicket), "but it stays dead");
}

#[test]
fn state_files_are_private_and_damage_is_told_without_secrets() {
    let Owner { dir, authority: a } = owner();
    a.issue(SWARM, None, NOW).unwrap();
    let key = NodeKey::load_or_create(dir.path()).unwrap();
    for file in [NodeKey::FILE, Authority::FILE] {
        let path = dir.path().join(file);
        let mode = |p| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(p)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        mode(0o640);
        let e = match file {
            NodeKey::FILE => NodeKey::load_or_create(dir.path()).map(drop).unwrap_err(),
            _ => Authority::open(dir.path(), &key).map(drop).unwrap_err(),
        };
        assert!(matches!(e, Error::Exposed { mode: 0o640, .. }), "{e}");
        assert!(e.to_string().contains("chmod 600"));
        mode(0o600);
    }
    let path = dir.path().join(Authority::FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    let secret = text.split("\"secret\": \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    for broken in [
        text.replace(&secret, &format!("{secret}!")),
        text[..text.len() - 3].to_owned(),
        text.replace("\"format\": 1", "\"format\": 2"),
    ] {
        std::fs::write(&path, broken).unwrap();
        let e = Authority::open(dir.path(), &key).unwrap_err();
        assert!(matches!(e, Error::Damaged { .. }), "{e}");
        assert!(!e.to_string().contains(&secret), "{e}");
        assert!(a.reload_if_changed().is_err());
    }
    assert!(!format!("{a:?}").contains(&secret));
    std::fs::write(dir.path().join(NodeKey::FILE), "garbage").unwrap();
    assert!(matches!(NodeKey::load_or_create(dir.path()), Err(Error::Damaged { .. })));
}

#[test]
fn processes_that_start_at_once_share_one_key() {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<_> = std::thread::scope(|s| {
        let threads: Vec<_> =
            (0..8).map(|_| s.spawn(|| NodeKey::load_or_create(dir.path()).unwrap().id())).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(ids.windows(2).all(|w| w[0] == w[1]));
}

fn limited(uses: u32) -> Terms {
    Terms { expires: None, uses: Some(uses) }
}

#[test]
fn a_ticket_lets_in_as_many_nodes_as_it_says() {
    let Owner { dir, authority: a } = owner();
    let (token, one, two) = (a.issue(SWARM, limited(2), NOW).unwrap(), node(), node());
    assert!(enrol(&a, &token, one).is_ok() && enrol(&a, &token, two).is_ok());
    assert_eq!(enrol(&a, &token, node()), Err(Refused::UsedUp(2)));
    assert!(enrol(&a, &token, one).is_ok(), "a node that enrols again is counted once");
    let key = NodeKey::load_or_create(dir.path()).unwrap();
    let again = Authority::open(dir.path(), &key).unwrap();
    assert_eq!(enrol(&again, &token, node()), Err(Refused::UsedUp(2)), "a restart forgets nobody");
    assert!(enrol(&again, &token, two).is_ok());
    assert_eq!(again.tokens()[0].used, 2);
    let wrong = Token { secret: Secret([1; 16]), ..a.issue(SWARM, limited(1), NOW).unwrap() };
    let right = node();
    assert_eq!(enrol(&a, &wrong, right), Err(Refused::BadProof), "and takes no place");
    assert_eq!(a.tokens().iter().map(|token| token.used).sum::<usize>(), 2);
}

#[test]
fn enrolments_at_once_are_never_more_than_the_ticket_says() {
    let Owner { dir, authority } = owner();
    let key = NodeKey::load_or_create(dir.path()).unwrap();
    let token = authority.issue(SWARM, limited(5), NOW).unwrap();
    // Two processes of the owner, each with several threads.
    let both = [authority, Authority::open(dir.path(), &key).unwrap()];
    let admitted: usize = std::thread::scope(|scope| {
        let tries = (0..24).map(|n| {
            scope.spawn({
                let (a, token) = (&both[n % 2], &token);
                move || enrol(a, token, node()).is_ok()
            })
        });
        let tries: Vec<_> = tries.collect();
        tries.into_iter().map(|one| usize::from(one.join().unwrap())).sum()
    });
    assert_eq!(admitted, 5);
}

#[test]
fn a_revoked_ticket_with_a_limit_stays_revoked() {
    let Owner { dir, authority: a } = owner();
    let token = a.issue(SWARM, limited(2), NOW).unwrap();
    let key = NodeKey::load_or_create(dir.path()).unwrap();
    Authority::open(dir.path(), &key).unwrap().revoke(token.id, NOW).unwrap();
    assert_eq!(enrol(&a, &token, node()), Err(Refused::Revoked), "though this process has not read it yet");
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let Owner { dir, authority: a } = owner();
    let token = a.issue(SWARM, limited(2), NOW).unwrap();
    std::fs::write(dir.path().join("authority.json"), "{").unwrap();
    assert_eq!(enrol(&a, &token, node()), Err(Refused::NotRecorded));
}

#[test]
fn owner_and_member_of_one_state_directory_have_two_keys() {
    let Owner { dir, authority: a } = owner();
    let member = NodeKey::for_member(dir.path(), a.id()).unwrap();
    assert!(member.id() != a.id());
    assert_eq!(NodeKey::for_member(dir.path(), a.id()).unwrap().id(), member.id(), "and the second is kept");
    assert_eq!(NodeKey::for_member(dir.path(), node()).unwrap().id(), a.id());
}

#[test]
fn the_state_directory_is_closed_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    let new = dir.path().join("a/new");
    own_dir(&new).unwrap();
    assert_eq!(mode(&new), 0o700);
    std::fs::write(new.join("node.key"), "").unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    own_dir(&new).unwrap();
    assert_eq!(mode(&new), 0o700, "an older one is narrowed");
    std::fs::write(new.join("thesis.tex"), "").unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    own_dir(&new).unwrap();
    assert_eq!(mode(&new), 0o755, "a directory of other files too is not ours to close");
}
