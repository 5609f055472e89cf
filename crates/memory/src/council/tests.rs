#![allow(clippy::unwrap_used)]
use super::*;
use crate::call::RING;
use crate::message::Part;

const NOW: Duration = Duration::from_secs(100);

/// A council whose ranks are on these hosts, all seated.
fn seated(hosts: &[&str]) -> Council {
    let mut council = Council::new(hosts.len() as u32);
    for (rank, host) in (0u32..).zip(hosts) {
        let dir = format!("dir{rank}");
        let hello = Hello { rank, size: hosts.len() as u32, place: (*host).into(), base: "/shm".into(), dir };
        council.joined(hello).unwrap();
        for (to, down, _) in council.take() {
            assert_eq!(to, rank);
            if let Down::Anchors(anchors) = down {
                council.heard(rank, Up::Shares(Some(anchors[0].0)), Bytes::new(), NOW);
                assert_eq!(said(&mut council), [(rank, Down::Seated)]);
            }
        }
    }
    council
}

fn said(council: &mut Council) -> Vec<(u32, Down)> {
    council.take().into_iter().map(|(rank, down, _)| (rank, down)).collect()
}

fn enter(council: &mut Council, rank: u32, call: u64, root: u32, what: What) {
    let enter = Enter { call, root, patience: 5000, what };
    council.heard(rank, Up::Enter(enter), Bytes::new(), NOW);
}

/// All ranks call: rank `root` with this many bytes, the others with room for them.
fn all_enter(council: &mut Council, size: u32, call: u64, root: u32, len: u64) -> Vec<(u32, Down)> {
    for rank in 0..size {
        assert_eq!(said(council), [], "nothing begins before all are there");
        let what = if rank == root { What::Offer { len, along: false } } else { What::Want { len } };
        enter(council, rank, call, root, what);
    }
    said(council)
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

fn done(council: &mut Council, rank: u32, error: Option<&str>) -> Vec<(u32, Down)> {
    let error = error.map(str::to_owned);
    council.heard(rank, Up::Done { call: 0, error }, Bytes::new(), NOW);
    said(council)
}

fn end(missed: &[u32]) -> Down {
    Down::End { call: 0, missed: missed.to_vec() }
}

#[test]
fn each_host_has_one_leader_and_the_root_is_that_of_its_own() {
    let mut council = seated(&["a", "a", "b", "b", "c", "a"]);
    let parts = all_enter(&mut council, 6, 0, 1, 100);
    let expected = [
        (1, go(source(&["/shm/dir2", "/shm/dir4"], 100))),
        (0, reader("dir1", 100)),
        (2, go(Part::Leader)),
        (3, reader("dir2", 100)),
        (4, go(Part::Leader)),
        (5, reader("dir1", 100)),
    ];
    assert_eq!(parts, expected);
    council.heard(1, Up::Ticket { call: 0, ticket: "t".into() }, Bytes::new(), NOW);
    let ticket = || Down::Ticket { call: 0, ticket: "t".into() };
    assert_eq!(said(&mut council), [(2, ticket()), (4, ticket())]);
    council.heard(2, Up::Ready { call: 0, bytes: 100 }, Bytes::new(), NOW);
    assert_eq!(said(&mut council), [(3, Down::Ready { call: 0, bytes: 100 })], "to its own readers");
    for rank in [0, 3, 4, 5] {
        assert_eq!(done(&mut council, rank, None), []);
    }
    let ended = done(&mut council, 2, None);
    assert_eq!(ended, [1, 2, 4].map(|rank| (rank, end(&[]))), "whoever holds a file may let it go");
    assert!(council.idle());
}

#[test]
fn on_one_host_the_root_waits_for_its_slowest_reader() {
    let mut council = seated(&["a", "a", "a"]);
    let len = 3 * RING;
    assert_eq!(all_enter(&mut council, 3, 0, 0, len)[0], (0, go(source(&[], RING))));
    let mut taken = |rank, bytes| {
        council.heard(rank, Up::Taken { call: 0, bytes }, Bytes::new(), NOW);
        said(&mut council)
    };
    assert_eq!(taken(1, 10), [], "the other has taken nothing");
    assert_eq!(taken(2, 7), [(0, Down::Room { call: 0, bytes: RING + 7 })]);
    assert_eq!(taken(2, u64::MAX), [(0, Down::Room { call: 0, bytes: RING + 10 })]);
    council.lost(1, "killed", NOW);
    let room = Down::Room { call: 0, bytes: len };
    assert!(said(&mut council).contains(&(0, room)), "nobody waits for the dead");
    assert_eq!(done(&mut council, 2, None), [(0, end(&[1]))]);
}

#[test]
fn a_lost_leader_takes_its_host_along_and_nobody_else() {
    let mut council = seated(&["a", "b", "b", "c"]);
    all_enter(&mut council, 4, 0, 0, 100);
    council.lost(1, "killed", NOW);
    let heard = said(&mut council);
    assert!(
        matches!(&heard[..], [(1, Down::Lost(_)), (2, Down::Failed { call: 0, why })] if why.contains("killed"))
    );
    assert_eq!(done(&mut council, 3, None), [(0, end(&[1, 2])), (1, end(&[1, 2])), (3, end(&[1, 2]))]);
    assert_eq!(all_enter_but(&mut council, &[0, 2, 3], 1), 3, "the others go on");
}

fn all_enter_but(council: &mut Council, ranks: &[u32], call: u64) -> usize {
    for rank in ranks {
        let what = if *rank == 0 { What::Offer { len: 9, along: false } } else { What::Want { len: 9 } };
        enter(council, *rank, call, 0, what);
    }
    said(council).iter().filter(|(_, down)| matches!(down, Down::Go { call: c, .. } if *c == call)).count()
}

#[test]
fn without_a_root_those_who_cannot_complete_are_told() {
    let mut council = seated(&["a", "a", "b"]);
    all_enter(&mut council, 3, 0, 0, 100);
    council.lost(0, "killed", NOW);
    let failed = |heard: &[(u32, Down)]| {
        let failed = heard.iter().filter(|(_, down)| matches!(down, Down::Failed { .. }));
        failed.map(|(rank, _)| *rank).collect::<Vec<_>>()
    };
    assert_eq!(failed(&said(&mut council)), [1, 2], "the leader does not know where to go yet");

    let mut council = seated(&["a", "a", "b"]);
    all_enter(&mut council, 3, 0, 0, 100);
    council.heard(0, Up::Ticket { call: 0, ticket: "t".into() }, Bytes::new(), NOW);
    council.take();
    council.lost(0, "killed", NOW);
    assert_eq!(failed(&said(&mut council)), [1], "the leader may have it from others");
    assert!(!council.idle());
    done(&mut council, 2, None);
    assert!(council.idle());
}

#[test]
fn whoever_does_not_come_is_given_up() {
    let mut council = seated(&["a", "a", "a"]);
    enter(&mut council, 0, 0, 0, What::Offer { len: 5, along: false });
    enter(&mut council, 2, 0, 0, What::Want { len: 5 });
    council.tick(NOW + Duration::from_secs(4));
    assert_eq!(said(&mut council), []);
    council.tick(NOW + Duration::from_secs(5));
    let heard = said(&mut council);
    assert!(
        matches!(&heard[0], (1, Down::Lost(why)) if why.contains("did not call within 5 s")),
        "{heard:?}"
    );
    assert!(matches!(&heard[1], (0, Down::Go { .. })));
    assert_eq!(done(&mut council, 2, None), [(0, end(&[1]))]);
}

#[test]
fn nobody_is_given_up_while_the_call_before_is_running() {
    let mut council = seated(&["a", "a"]);
    all_enter(&mut council, 2, 0, 0, 100);
    council.heard(1, Up::Done { call: 0, error: None }, Bytes::new(), NOW);
    let mut council = seated(&["a", "a", "a"]);
    all_enter(&mut council, 3, 0, 0, 100);
    done(&mut council, 1, None);
    enter(&mut council, 1, 1, 0, What::Want { len: 5 });
    council.tick(NOW + Duration::from_secs(3600));
    assert_eq!(said(&mut council), []);
    let later = NOW + Duration::from_secs(3600);
    council.heard(2, Up::Done { call: 0, error: None }, Bytes::new(), later);
    assert_eq!(said(&mut council), [(0, end(&[]))]);
    council.tick(later + Duration::from_secs(4));
    assert_eq!(said(&mut council), [], "its patience begins now");
    council.tick(later + Duration::from_secs(5));
    assert!(!said(&mut council).is_empty());
}

#[test]
fn mistakes_fail_for_those_who_make_them() {
    let mut council = seated(&["a", "a", "a"]);
    enter(&mut council, 0, 0, 0, What::Offer { len: 100, along: false });
    enter(&mut council, 1, 0, 0, What::Want { len: 50 });
    enter(&mut council, 2, 0, 0, What::Unfit("it is read-only".into()));
    let heard = said(&mut council);
    let short = "rank 0 sends 100 bytes, this rank's buffer has 50";
    assert_eq!(heard, [(1, Down::Failed { call: 0, why: short.into() }), (0, end(&[1, 2]))]);

    enter(&mut council, 0, 1, 0, What::Offer { len: 1, along: false });
    enter(&mut council, 1, 1, 2, What::Want { len: 1 });
    enter(&mut council, 2, 1, 2, What::Offer { len: 1, along: false });
    let heard = said(&mut council);
    assert_eq!(heard.len(), 3);
    assert!(
        heard.iter().all(|(_, down)| matches!(down, Down::Failed { why, .. } if why.contains("disagree")))
    );

    enter(&mut council, 0, 2, 0, What::Unfit("it is not contiguous".into()));
    enter(&mut council, 1, 2, 0, What::Want { len: 1 });
    enter(&mut council, 2, 2, 0, What::Want { len: 1 });
    let heard = said(&mut council);
    assert_eq!(heard.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [1, 2], "the root knows");
}

#[test]
fn whoever_breaks_the_rules_is_let_go() {
    let lost = |up: Up, payload: &[u8]| {
        let mut council = seated(&["a", "a"]);
        council.heard(1, up, Bytes::copy_from_slice(payload), NOW);
        matches!(&said(&mut council)[..], [(1, Down::Lost(_))])
    };
    let enter = |call, root, what| Up::Enter(Enter { call, root, patience: 1, what });
    assert!(lost(enter(1, 0, What::Want { len: 1 }), b""), "call 0 comes first");
    assert!(lost(enter(0, 0, What::Offer { len: 1, along: false }), b""), "it is not the root");
    assert!(lost(enter(0, 1, What::Offer { len: 2, along: true }), b"x"), "one byte is not two");
    assert!(lost(enter(0, 0, What::Want { len: 1 }), b"x"), "who receives has nothing to send");
    assert!(lost(Up::Shares(Some(7)), b""));
    assert!(!lost(enter(0, 0, What::Want { len: 1 }), b""));
    let hello = |rank, size| {
        let (place, base, dir) = (String::new(), String::new(), String::new());
        Hello { rank, size, place, base, dir }
    };
    let mut council = seated(&["a", "a"]);
    for (rank, size) in [(0, 2), (2, 2), (1, 3)] {
        assert!(council.joined(hello(rank, size)).is_err());
    }
}

#[test]
fn who_cannot_reach_the_memory_of_an_anchor_is_another_host() {
    let hello = |rank| Hello { rank, size: 3, place: "p".into(), base: "/b".into(), dir: format!("d{rank}") };
    let mut council = Council::new(3);
    council.joined(hello(0)).unwrap();
    assert_eq!(said(&mut council), [(0, Down::Seated)]);
    council.joined(hello(1)).unwrap();
    council.joined(hello(2)).unwrap();
    let first = || Down::Anchors(vec![(0, "d0".into())]);
    assert_eq!(said(&mut council), [(1, first()), (2, first())]);
    council.heard(1, Up::Shares(None), Bytes::new(), NOW);
    assert_eq!(said(&mut council), [(1, Down::Seated)]);
    council.heard(2, Up::Shares(None), Bytes::new(), NOW);
    assert_eq!(said(&mut council), [(2, Down::Anchors(vec![(1, "d1".into())]))], "one has come meanwhile");
    council.heard(2, Up::Shares(Some(1)), Bytes::new(), NOW);
    assert_eq!(said(&mut council), [(2, Down::Seated)]);
}
