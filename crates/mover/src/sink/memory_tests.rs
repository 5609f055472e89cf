use std::fs;
use std::sync::mpsc::{Receiver, Sender, channel};

use proptest::prelude::*;

use super::super::tests::{bare, block, complete, dir, file, pieces, small};
use super::*;
use crate::part::BLOCK;

struct Lab {
    memory: Memory,
    told: Receiver<Arrived>,
    place: tempfile::TempDir,
}

fn lab(budget: u64, blocks: bool) -> Lab {
    let (place, (say, told)): (_, (Sender<_>, _)) = (tempfile::tempdir().unwrap(), channel());
    let say = Mutex::new(say);
    let memory = Memory::new(place.path(), budget, blocks, move |arrived| drop(say.lock().send(arrived)));
    Lab { memory: memory.unwrap(), told, place }
}

impl Lab {
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.place.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn taken(&self) -> (u64, u64) {
        let state = self.memory.room.state.lock();
        (state.bytes, state.held)
    }
}

#[test]
fn files_are_told_of_when_they_are_whole() {
    let lab = lab(1 << 30, false);
    let large: Vec<u8> = (0..2 * BLOCK + 5).map(|i| (i % 251) as u8).collect();
    let parts = pieces(3, &file("large", large.len()), &large, 0);
    lab.memory.write(0, &block(&[bare(1, dir("d", 0o755)), small(2, "d/small", b"abc")])).unwrap();
    for part in parts.iter().rev() {
        lab.memory.write(0, &block(std::slice::from_ref(part))).unwrap();
        lab.memory.write(0, &block(std::slice::from_ref(part))).unwrap();
    }
    lab.memory.write(0, &block(&[small(4, "empty", b"")])).unwrap();
    let told: Vec<String> = lab
        .told
        .try_iter()
        .map(|arrived| match arrived {
            Arrived::Other(entry) => String::from_utf8(entry.path).unwrap(),
            Arrived::File { number, entry } => {
                format!("{number} {} {}", String::from_utf8_lossy(&entry.path), entry.len())
            }
            Arrived::Block { .. } => panic!("a block"),
        })
        .collect();
    assert_eq!(told, ["d", "2 d/small 3", &format!("3 large {}", large.len()), "4 empty 0"]);
    assert!(fs::read(lab.place.path().join("3")).unwrap() == large);
    assert!(!lab.memory.is_empty());
    for number in [2, 3, 4] {
        assert!(lab.memory.release(number, None).unwrap());
        assert!(!lab.memory.release(number, None).unwrap());
    }
    assert!(lab.memory.is_empty() && lab.names().is_empty());
    assert_eq!(lab.taken(), (0, 0));
    let written = lab.memory.finish(&complete()).unwrap();
    assert_eq!((written.files, written.entries, written.bytes), (3, 4, large.len() as u64 + 3));
}

#[test]
fn what_differs_from_what_was_read_is_a_problem_and_leaves_nothing() {
    for blocks in [false, true] {
        let lab = lab(1 << 30, blocks);
        let large = vec![1; BLOCK + 1];
        let mut parts = pieces(1, &file("large", large.len()), &large, 0);
        if let Data::Bytes { root: Some(root), .. } = &mut parts[0].0.data {
            root[0] ^= 1;
        }
        for part in &parts {
            lab.memory.write(0, &block(std::slice::from_ref(part))).unwrap();
        }
        if blocks {
            assert!(
                lab.memory.release(1, Some(0)).unwrap() && lab.memory.release(1, Some(BLOCK as u64)).unwrap()
            );
        }
        assert!(lab.memory.is_empty() && lab.names().is_empty());
        assert_eq!(lab.taken(), (0, 0));
        assert!(!lab.told.try_iter().any(|arrived| matches!(arrived, Arrived::File { .. })));
        assert_eq!(lab.memory.finish(&complete()).unwrap().failed, 1);
    }
    let (mut part, data) = small(1, "x", b"abc");
    if let Data::Bytes { digest, .. } = &mut part.data {
        digest[0] ^= 1;
    }
    assert!(lab(1, false).memory.write(0, &block(&[(part, data)])).is_err());
}

#[test]
fn blocks_are_given_back_one_by_one() {
    let lab = lab(1 << 30, true);
    let large = vec![7; 2 * BLOCK];
    let parts = pieces(1, &file("large", large.len()), &large, 1);
    lab.memory.write(0, &block(&parts[..1])).unwrap();
    assert_eq!(lab.taken(), (BLOCK as u64, 1));
    assert!(!lab.memory.release(1, None).unwrap(), "it is not whole");
    assert!(lab.memory.release(1, Some(0)).unwrap());
    let kept = fs::read(lab.place.path().join("1")).unwrap();
    assert!(kept.iter().all(|b| *b == 0), "its memory was not freed");
    lab.memory.write(0, &block(&parts[1..])).unwrap();
    assert_eq!(lab.names(), ["1"]);
    assert!(lab.memory.release(1, None).unwrap());
    lab.memory.write(0, &block(&[small(2, "empty", b""), small(3, "small", b"x")])).unwrap();
    assert_eq!(lab.names(), ["3"]);
    assert!(lab.memory.release(3, Some(0)).unwrap());
    assert!(lab.memory.is_empty() && lab.names().is_empty());
    assert_eq!(lab.taken(), (0, 0));
    assert_eq!(lab.told.try_iter().filter(|a| matches!(a, Arrived::Block { .. })).count(), 3);
}

#[test]
fn a_copy_that_ends_wakes_those_who_wait() {
    let lab = lab(PAGE, false);
    lab.memory.write(0, &block(&[small(1, "a", b"a")])).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| lab.memory.write(1, &block(&[small(2, "b", b"b")])));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waits.is_finished());
        lab.memory.stop();
        assert!(matches!(waits.join().unwrap(), Err(Error::Cancelled)));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A consumer that gives back in any order, some of it late: all files arrive, and the budget is never
    /// exceeded, except by a single file that is larger than it.
    #[test]
    fn the_budget_holds_and_all_comes(
        lens in prop::collection::vec(0usize..60_000, 1..40),
        pages_of_budget in 1u64..20,
        order in prop::collection::vec(any::<prop::sample::Index>(), 40),
        writers in 1usize..4,
    ) {
        let budget = pages_of_budget * PAGE;
        let lab = lab(budget, false);
        let files: Vec<_> = lens.iter().enumerate()
            .map(|(n, len)| block(&[small(n as u64, &format!("f{n}"), &vec![n as u8; *len])]))
            .collect();
        let largest = lens.iter().map(|len| pages(*len as u64)).max().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..writers {
                let (files, lab) = (&files, &lab.memory);
                scope.spawn(move || {
                    for file in files.iter().skip(writer).step_by(writers) {
                        lab.write(writer, file).unwrap();
                    }
                });
            }
            let (mut held, mut come, mut turn) = (Vec::new(), 0, order.iter().cycle());
            while come < lens.len() {
                let wait = if held.is_empty() { 60_000 } else { 1 };
                let came = lab.told.recv_timeout(std::time::Duration::from_millis(wait));
                match &came {
                    Ok(Arrived::File { number, .. }) => {
                        come += 1;
                        held.push(*number);
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => assert!(!held.is_empty(), "nothing comes, though nothing is held"),
                }
                let bytes = lab.memory.room.state.lock().bytes;
                // Those that came while nothing was held, one a writer.
                assert!(bytes <= budget + writers as u64 * largest, "{bytes} of {budget}");
                let likes = turn.next().unwrap();
                if came.is_err() || held.len() > 1 + likes.index(4) {
                    let number = held.swap_remove(likes.index(held.len()));
                    assert!(lab.memory.release(number, None).unwrap());
                }
            }
        });
    }
}
