//! Groups of threads: each "host" has its own directory, so only some threads share memory.
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use tidecast_memory::{Buffer, Error, Group, Options};

const NOBODY: [u32; 0] = [];
const PATIENCE: Duration = Duration::from_secs(60);

/// Directories in memory, one for each host.
struct Hosts(tempfile::TempDir);

impl Hosts {
    fn new(count: usize) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        (0..count).for_each(|host| std::fs::create_dir(dir.path().join(host.to_string())).unwrap());
        Self(dir)
    }

    fn dir(&self, host: usize) -> PathBuf {
        self.0.path().join(host.to_string())
    }

    /// Files that lie there.
    fn files(&self) -> usize {
        let entries = |dir: &Path| std::fs::read_dir(dir).unwrap().flatten().collect::<Vec<_>>();
        let hosts = entries(self.0.path());
        hosts.iter().flat_map(|h| entries(&h.path())).map(|dir| entries(&dir.path()).len()).sum()
    }
}

fn options(rank: u32, size: u32, dir: PathBuf) -> Options {
    Options { rank, size, secret: b"of the test".into(), patience: PATIENCE, plain: false, shared: Some(dir) }
}

/// Runs `work` as every rank of a group; `on`: the host of each rank.
fn ranks<T: Send>(hosts: &Hosts, on: &[usize], work: impl Fn(Group) -> T + Sync) -> Vec<T> {
    let size = on.len() as u32;
    let first = Group::open(":0", &options(0, size, hosts.dir(on[0]))).unwrap();
    let (at, work) = (first.address().to_owned(), &work);
    thread::scope(|scope| {
        let other = |(rank, host): (u32, &usize)| {
            let (at, options) = (at.clone(), options(rank, size, hosts.dir(*host)));
            scope.spawn(move || work(Group::open(&at, &options).unwrap()))
        };
        let others: Vec<_> = (1..).zip(&on[1..]).map(other).collect();
        let first = work(first);
        std::iter::once(first).chain(others.into_iter().map(|t| t.join().unwrap())).collect()
    })
}

fn data(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|n| ((n + seed).wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

/// One call; returns the data received, or the ranks that missed it.
fn cast(group: &Group, len: usize, root: u32, seed: usize) -> Result<Vec<u32>, Error> {
    if group.rank() == root {
        return group.bcast(Buffer::Send(&data(len, seed)), root, PATIENCE);
    }
    let mut buffer = vec![0; len];
    let answer = group.bcast(Buffer::Receive(&mut buffer), root, PATIENCE)?;
    assert!(buffer == data(len, seed), "{len} bytes at rank {}", group.rank());
    Ok(answer)
}

#[test]
fn on_one_host_every_size_from_every_root() {
    let hosts = Hosts::new(1);
    ranks(&hosts, &[0; 3], |group| {
        for (turn, len) in [0, 1, 1000, 5_000_000, 80 << 20, 3].into_iter().enumerate() {
            assert_eq!(cast(&group, len, turn as u32 % 3, turn).unwrap(), NOBODY);
        }
    });
    assert_eq!(hosts.files(), 0, "nothing is left");
}

#[test]
fn between_hosts_the_data_crosses_once() {
    let hosts = Hosts::new(3);
    ranks(&hosts, &[0, 0, 1, 1, 2], |group| {
        for (turn, len) in [5_000_001, 100, 9_000_000].into_iter().enumerate() {
            assert_eq!(cast(&group, len, 1 + turn as u32, turn).unwrap(), NOBODY);
        }
    });
    assert_eq!(hosts.files(), 0, "nothing is left");
}

#[test]
fn who_receives_for_its_host_may_leave_at_once() {
    for round in 0..20 {
        let on: Vec<usize> = std::iter::once(0).chain([1; 15]).collect();
        let missed = ranks(&Hosts::new(2), &on, |group| cast(&group, 5_000_000, 0, round).unwrap());
        assert_eq!(missed.concat(), NOBODY);
    }
}

#[test]
fn a_mistake_of_one_is_no_fault_of_others() {
    ranks(&Hosts::new(1), &[0; 3], |group| {
        let mut short = [0; 10];
        match group.rank() {
            0 => assert_eq!(cast(&group, 2_000_000, 0, 1).unwrap(), [1]),
            1 => {
                let refused = group.bcast(Buffer::Receive(&mut short), 0, PATIENCE).unwrap_err();
                assert!(refused.to_string().contains("2000000 bytes"), "{refused}");
            }
            _ => assert_eq!(cast(&group, 2_000_000, 0, 1).unwrap(), NOBODY),
        }
        match group.rank() {
            0 => group.abstain(0, "no buffer", PATIENCE).unwrap(),
            _ => assert!(cast(&group, 9, 0, 1).unwrap_err().to_string().contains("no buffer")),
        }
        assert_eq!(cast(&group, 50, 2, 1).unwrap(), NOBODY, "the group is as good as before");
        assert!(matches!(cast(&group, 50, 3, 1), Err(Error::Usage(_))));
    });
}

#[test]
fn who_leaves_or_does_not_come_is_missed_and_nobody_waits_for_ever() {
    ranks(&Hosts::new(2), &[0, 0, 1, 1], |group| {
        let patience = Duration::from_secs(2);
        assert_eq!(cast(&group, 2_000_000, 0, 0).unwrap(), NOBODY);
        match group.rank() {
            0 => assert_eq!(group.bcast(Buffer::Send(&[7; 2_000_000]), 0, patience).unwrap(), [1, 2]),
            // Leaves.
            1 => {}
            // This rank calls too late, and gets an error. Rank 0 does not end before.
            2 => {
                thread::sleep(Duration::from_secs(5));
                let late = group.bcast(Buffer::Receive(&mut [0; 9]), 0, patience).unwrap_err();
                assert!(
                    matches!(&late, Error::Lost(why) if why.contains("did not call") || why.contains("rank 0")),
                    "{late}"
                );
            }
            _ => {
                let mut buffer = vec![0; 2_000_000];
                group.bcast(Buffer::Receive(&mut buffer), 0, patience).unwrap();
                assert!(buffer == [7; 2_000_000]);
            }
        }
    });
}

#[test]
fn who_is_no_member_does_not_get_in() {
    let hosts = Hosts::new(1);
    let first = Group::open(":0", &options(0, 2, hosts.dir(0))).unwrap();
    let refused = |options: Options| Group::open(first.address(), &options).unwrap_err();
    let spy = Options { secret: b"guessed".into(), ..options(1, 2, hosts.dir(0)) };
    assert!(refused(spy).to_string().contains("secret"));
    let wrong = refused(options(1, 3, hosts.dir(0)));
    assert!(wrong.to_string().contains("a group of 2"), "{wrong}");
    assert!(matches!(refused(options(2, 2, hosts.dir(0))), Error::Usage(_)));
    let nobody = Options { patience: Duration::from_millis(300), ..options(1, 2, hosts.dir(0)) };
    assert!(matches!(Group::open("127.0.0.1:1", &nobody), Err(Error::Join(_))));
}

/// Something that one thread has done and another waits for: a minute at most, so that a failure of the one ends the other.
#[derive(Default)]
struct Signal(Mutex<bool>, Condvar);

impl Signal {
    fn give(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn wait(&self) {
        let given = self.0.lock().unwrap();
        let waited = self.1.wait_timeout_while(given, Duration::from_secs(60), |given| !*given).unwrap();
        assert!(!waited.1.timed_out(), "the other thread has failed");
    }
}

#[test]
fn a_call_that_is_broken_off_costs_its_rank_alone() {
    let hosts = Hosts::new(1);
    let (broken, told) = (Signal::default(), Signal::default());
    ranks(&hosts, &[0; 3], |group| match group.rank() {
        // Rank 1 calls alone, waits for the root, and is broken off. Its buffer is its own again.
        1 => {
            let (mut asked, mut buffer) = (0, vec![0; 1000]);
            let mut watch = || {
                asked += 1;
                if asked < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            let done = group.bcast_watched(Buffer::Receive(&mut buffer), 0, PATIENCE, &mut watch);
            assert!(matches!(done, Err(Error::Stopped)), "{done:?}");
            assert!(matches!(cast(&group, 1000, 0, 1), Err(Error::Lost(_))));
            broken.give();
            told.wait();
        }
        0 => {
            broken.wait();
            // A small buffer is sent and not waited for: the root may not know yet that rank 1 has left.
            let missed = cast(&group, 1000, 0, 1).unwrap();
            assert!(missed.is_empty() || missed == [1], "{missed:?}");
            told.give();
            assert_eq!(cast(&group, 5_000_000, 0, 2).unwrap(), [1]);
        }
        _ => {
            assert_eq!(cast(&group, 1000, 0, 1).unwrap(), NOBODY);
            assert_eq!(cast(&group, 5_000_000, 0, 2).unwrap(), NOBODY);
        }
    });
}

#[test]
fn an_open_and_a_close_can_be_broken_off() {
    let hosts = Hosts::new(1);
    let mut stop = || ControlFlow::Break(());
    let opened = Group::open_watched("127.0.0.1:1", &options(1, 2, hosts.dir(0)), &mut stop);
    assert!(matches!(opened, Err(Error::Stopped)), "{opened:?}");
    let first = Group::open(":0", &options(0, 2, hosts.dir(0))).unwrap();
    let at = first.address().to_owned();
    let second = Group::open(&at, &options(1, 2, hosts.dir(0))).unwrap();
    thread::scope(|scope| {
        // Rank 0 does not call, so its close waits for the call of rank 1, if it knows of that call.
        let calling = scope.spawn(|| cast(&second, 10, 0, 1));
        let closed = first.close(&mut stop);
        assert!(matches!(closed, Ok(()) | Err(Error::Stopped)), "{closed:?}");
        // The root does not call any more, or rank 0 is gone.
        assert!(calling.join().unwrap().is_err());
    });
}
