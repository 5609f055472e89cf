#![allow(clippy::unwrap_used)]
use super::*;
use crate::call::RING;
use crate::message::Part;

const NOW: Duration = Duration::from_secs(100);

/// A hub state whose ranks are on these hosts, all all_joined.
fn all_joined(hosts: &[&str]) -> HubState {
    let mut hub_state = HubState::new(hosts.len() as u32);
    for (rank, host) in (0u32..).zip(hosts) {
        let dir = format!("dir{rank}");
        let hello = Hello { rank, size: hosts.len() as u32, place: (*host).into(), base: "/shm".into(), dir };
        hub_state.joined(hello).unwrap();
        for (to, down, _) in hub_state.take() {
            assert_eq!(to, rank);
            if let Down::Anchors(anchors) = down {
                hub_state.handle(rank, Up::Shares(Some(anchors[0].0)), Bytes::new(), NOW);
                assert_eq!(sent(&mut hub_state), [(rank, Down::Admitted)]);
            }
        }
    }
    hub_state
}

fn sent(hub_state: &mut HubState) -> Vec<(u32, Down)> {
    hub_state.take().into_iter().map(|(rank, down, _)| (rank, down)).collect()
}

fn enter(hub_state: &mut HubState, rank: u32, call: u64, root: u32, role: Role) {
    let enter = Enter { call, root, patience: 5000, role };
    hub_state.handle(rank, Up::Enter(enter), Bytes::new(), NOW);
}

/// All ranks call: rank `root` with this many bytes, the others with room for them.
fn all_enter(hub_state: &mut HubState, size: u32, call: u64, root: u32, len: u64) -> Vec<(u32, Down)> {
    for rank in 0..size {
        assert_eq!(sent(hub_state), [], "nothing begins before all are there");
        let role = if rank == root { Role::Offer { len, inline: false } } else { Role::Want { len } };
        enter(hub_state, rank, call, root, role);
    }
    sent(hub_state)
}

fn source(leaders: &[&str], capacity: u64) -> Part {
    Part::Source { leaders: leaders.iter().map(|l| (*l).to_owned()).collect(), capacity }
}

fn go(part: Part) -> Down {
    Down::Go { call: 0, part }
}

fn reader(dir: &str, capacity: u64) -> Down {
    go(Part::Reader { dir: dir.into(), capacity })
}

fn done(hub_state: &mut HubState, rank: u32, error: Option<&str>) -> Vec<(u32, Down)> {
    let error = error.map(str::to_owned);
    hub_state.handle(rank, Up::Done { call: 0, error }, Bytes::new(), NOW);
    sent(hub_state)
}

fn end(missed: &[u32]) -> Down {
    Down::End { call: 0, missed: missed.to_vec() }
}

#[test]
fn each_host_has_one_leader_and_the_root_is_that_of_its_own() {
    let mut hub_state = all_joined(&["a", "a", "b", "b", "c", "a"]);
    let parts = all_enter(&mut hub_state, 6, 0, 1, 100);
    let expected = [
        (1, go(source(&["/shm/dir2", "/shm/dir4"], 100))),
        (0, reader("dir1", 100)),
        (2, go(Part::Leader)),
        (3, reader("dir2", 100)),
        (4, go(Part::Leader)),
        (5, reader("dir1", 100)),
    ];
    assert_eq!(parts, expected);
    hub_state.handle(1, Up::Ticket { call: 0, ticket: "t".into() }, Bytes::new(), NOW);
    let ticket = || Down::Ticket { call: 0, ticket: "t".into() };
    assert_eq!(sent(&mut hub_state), [(2, ticket()), (4, ticket())]);
    hub_state.handle(2, Up::Ready { call: 0, bytes: 100 }, Bytes::new(), NOW);
    assert_eq!(sent(&mut hub_state), [(3, Down::Ready { call: 0, bytes: 100 })], "to its own readers");
    for rank in [0, 3, 4, 5] {
        assert_eq!(done(&mut hub_state, rank, None), []);
    }
    let ended = done(&mut hub_state, 2, None);
    assert_eq!(ended, [1, 2, 4].map(|rank| (rank, end(&[]))), "whoever holds a file may let it go");
    assert!(hub_state.idle());
}

#[test]
fn on_one_host_the_root_waits_for_its_slowest_reader() {
    let mut hub_state = all_joined(&["a", "a", "a"]);
    let len = 3 * RING;
    assert_eq!(all_enter(&mut hub_state, 3, 0, 0, len)[0], (0, go(source(&[], RING))));
    let mut taken = |rank, bytes| {
        hub_state.handle(rank, Up::Taken { call: 0, bytes }, Bytes::new(), NOW);
        sent(&mut hub_state)
    };
    assert_eq!(taken(1, 10), [], "the other has taken nothing");
    assert_eq!(taken(2, 7), [(0, Down::Room { call: 0, bytes: RING + 7 })]);
    assert_eq!(taken(2, u64::MAX), [(0, Down::Room { call: 0, bytes: RING + 10 })]);
    hub_state.lost(1, "killed", NOW);
    let room = Down::Room { call: 0, bytes: len };
    assert!(sent(&mut hub_state).contains(&(0, room)), "no member waits for a dead one");
    assert_eq!(done(&mut hub_state, 2, None), [(0, end(&[1]))]);
}

#[test]
fn a_lost_leader_takes_its_host_along_and_nobody_else() {
    let mut hub_state = all_joined(&["a", "b", "b", "c"]);
    all_enter(&mut hub_state, 4, 0, 0, 100);
    hub_state.lost(1, "killed", NOW);
    let heard = sent(&mut hub_state);
    assert!(
        matches!(&heard[..], [(1, Down::Lost(_)), (2, Down::Failed { call: 0, why })] if why.contains("killed"))
    );
    assert_eq!(done(&mut hub_state, 3, None), [(0, end(&[1, 2])), (1, end(&[1, 2])), (3, end(&[1, 2]))]);
    assert_eq!(all_enter_but(&mut hub_state, &[0, 2, 3], 1), 3, "the others go on");
}

fn all_enter_but(hub_state: &mut HubState, ranks: &[u32], call: u64) -> usize {
    for rank in ranks {
        let role = if *rank == 0 { Role::Offer { len: 9, inline: false } } else { Role::Want { len: 9 } };
        enter(hub_state, *rank, call, 0, role);
    }
    sent(hub_state).iter().filter(|(_, down)| matches!(down, Down::Go { call: c, .. } if *c == call)).count()
}

#[test]
fn without_a_root_those_who_cannot_complete_are_told() {
    let mut hub_state = all_joined(&["a", "a", "b"]);
    all_enter(&mut hub_state, 3, 0, 0, 100);
    hub_state.lost(0, "killed", NOW);
    let failed = |heard: &[(u32, Down)]| {
        let failed = heard.iter().filter(|(_, down)| matches!(down, Down::Failed { .. }));
        failed.map(|(rank, _)| *rank).collect::<Vec<_>>()
    };
    assert_eq!(failed(&sent(&mut hub_state)), [1, 2], "the leader does not know where to go yet");

    let mut hub_state = all_joined(&["a", "a", "b"]);
    all_enter(&mut hub_state, 3, 0, 0, 100);
    hub_state.handle(0, Up::Ticket { call: 0, ticket: "t".into() }, Bytes::new(), NOW);
    hub_state.take();
    hub_state.lost(0, "killed", NOW);
    assert_eq!(failed(&sent(&mut hub_state)), [1], "the leader may have it from others");
    assert!(!hub_state.idle());
    done(&mut hub_state, 2, None);
    assert!(hub_state.idle());
}

#[test]
fn whoever_does_not_come_is_given_up() {
    let mut hub_state = all_joined(&["a", "a", "a"]);
    enter(&mut hub_state, 0, 0, 0, Role::Offer { len: 5, inline: false });
    enter(&mut hub_state, 2, 0, 0, Role::Want { len: 5 });
    hub_state.tick(NOW + Duration::from_secs(4));
    assert_eq!(sent(&mut hub_state), []);
    hub_state.tick(NOW + Duration::from_secs(5));
    let heard = sent(&mut hub_state);
    assert!(
        matches!(&heard[0], (1, Down::Lost(why)) if why.contains("did not call within 5 s")),
        "{heard:?}"
    );
    assert!(matches!(&heard[1], (0, Down::Go { .. })));
    assert_eq!(done(&mut hub_state, 2, None), [(0, end(&[1]))]);
}

#[test]
fn nobody_is_given_up_while_the_call_before_is_running() {
    let mut hub_state = all_joined(&["a", "a"]);
    all_enter(&mut hub_state, 2, 0, 0, 100);
    hub_state.handle(1, Up::Done { call: 0, error: None }, Bytes::new(), NOW);
    let mut hub_state = all_joined(&["a", "a", "a"]);
    all_enter(&mut hub_state, 3, 0, 0, 100);
    done(&mut hub_state, 1, None);
    enter(&mut hub_state, 1, 1, 0, Role::Want { len: 5 });
    hub_state.tick(NOW + Duration::from_secs(3600));
    assert_eq!(sent(&mut hub_state), []);
    let later = NOW + Duration::from_secs(3600);
    hub_state.handle(2, Up::Done { call: 0, error: None }, Bytes::new(), later);
    assert_eq!(sent(&mut hub_state), [(0, end(&[]))]);
    hub_state.tick(later + Duration::from_secs(4));
    assert_eq!(sent(&mut hub_state), [], "its patience begins now");
    hub_state.tick(later + Duration::from_secs(5));
    assert!(!sent(&mut hub_state).is_empty());
}

#[test]
fn mistakes_fail_for_those_who_make_them() {
    let mut hub_state = all_joined(&["a", "a", "a"]);
    enter(&mut hub_state, 0, 0, 0, Role::Offer { len: 100, inline: false });
    enter(&mut hub_state, 1, 0, 0, Role::Want { len: 50 });
    enter(&mut hub_state, 2, 0, 0, Role::Unfit("it is read-only".into()));
    let heard = sent(&mut hub_state);
    let short = "rank 0 sends 100 bytes, this rank's buffer has 50 bytes";
    assert_eq!(heard, [(1, Down::Failed { call: 0, why: short.into() }), (0, end(&[1, 2]))]);

    enter(&mut hub_state, 0, 1, 0, Role::Offer { len: 1, inline: false });
    enter(&mut hub_state, 1, 1, 2, Role::Want { len: 1 });
    enter(&mut hub_state, 2, 1, 2, Role::Offer { len: 1, inline: false });
    let heard = sent(&mut hub_state);
    assert_eq!(heard.len(), 3);
    assert!(
        heard.iter().all(|(_, down)| matches!(down, Down::Failed { why, .. } if why.contains("disagree")))
    );

    enter(&mut hub_state, 0, 2, 0, Role::Unfit("it is not contiguous".into()));
    enter(&mut hub_state, 1, 2, 0, Role::Want { len: 1 });
    enter(&mut hub_state, 2, 2, 0, Role::Want { len: 1 });
    let heard = sent(&mut hub_state);
    assert_eq!(heard.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [1, 2], "the root knows");
}

#[test]
fn whoever_breaks_the_rules_is_let_go() {
    let lost = |up: Up, payload: &[u8]| {
        let mut hub_state = all_joined(&["a", "a"]);
        hub_state.handle(1, up, Bytes::copy_from_slice(payload), NOW);
        matches!(&sent(&mut hub_state)[..], [(1, Down::Lost(_))])
    };
    let enter = |call, root, role| Up::Enter(Enter { call, root, patience: 1, role });
    assert!(lost(enter(1, 0, Role::Want { len: 1 }), b""), "call 0 comes first");
    assert!(lost(enter(0, 0, Role::Offer { len: 1, inline: false }), b""), "it is not the root");
    assert!(lost(enter(0, 1, Role::Offer { len: 2, inline: true }), b"x"), "one byte is not two");
    assert!(lost(enter(0, 0, Role::Want { len: 1 }), b"x"), "who receives has nothing to send");
    assert!(lost(Up::Shares(Some(7)), b""));
    assert!(!lost(enter(0, 0, Role::Want { len: 1 }), b""));
    let hello = |rank, size| {
        let (place, base, dir) = (String::new(), String::new(), String::new());
        Hello { rank, size, place, base, dir }
    };
    let mut hub_state = all_joined(&["a", "a"]);
    for (rank, size) in [(0, 2), (2, 2), (1, 3)] {
        assert!(hub_state.joined(hello(rank, size)).is_err());
    }
}

#[test]
fn who_cannot_reach_the_memory_of_an_anchor_is_another_host() {
    let hello = |rank| Hello { rank, size: 3, place: "p".into(), base: "/b".into(), dir: format!("d{rank}") };
    let mut hub_state = HubState::new(3);
    hub_state.joined(hello(0)).unwrap();
    assert_eq!(sent(&mut hub_state), [(0, Down::Admitted)]);
    hub_state.joined(hello(1)).unwrap();
    hub_state.joined(hello(2)).unwrap();
    let first = || Down::Anchors(vec![(0, "d0".into())]);
    assert_eq!(sent(&mut hub_state), [(1, first()), (2, first())]);
    hub_state.handle(1, Up::Shares(None), Bytes::new(), NOW);
    assert_eq!(sent(&mut hub_state), [(1, Down::Admitted)]);
    hub_state.handle(2, Up::Shares(None), Bytes::new(), NOW);
    assert_eq!(sent(&mut hub_state), [(2, Down::Anchors(vec![(1, "d1".into())]))], "one has come meanwhile");
    hub_state.handle(2, Up::Shares(Some(1)), Bytes::new(), NOW);
    assert_eq!(sent(&mut hub_state), [(2, Down::Admitted)]);
}
