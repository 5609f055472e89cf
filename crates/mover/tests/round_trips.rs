//! How many round trips a copy of one small file takes, counted without a clock.
//!
//! Between the ends is a link that carries data in rounds: all that one side sends, then all that the other
//! answers. Data that depends on an answer is sent in the next round, so the answers are the round trips, but
//! for those in which TCP connects. A round that is carried before a slow end has said all only makes the
//! count larger: the least of several tries is what the copy takes.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use tidecast_mover::end::ServerOptions;
use tidecast_mover::server::{Keys, start};
use tidecast_mover::session::Copy;
use tidecast_mover::spec::Accept;

/// Silence after which a side has said all that it can say now.
const LULL: Duration = Duration::from_millis(25);
const TRIES: usize = 20;

/// The data of a connection of that number; empty: its end.
type Heard = (usize, Vec<u8>);

/// One direction of the link.
struct Lane {
    heard: Receiver<Heard>,
    to: HashMap<usize, TcpStream>,
}

impl Lane {
    /// Carries all that one side says until it is silent; whether that was anything.
    fn carry(&mut self, first: Option<Heard>) -> bool {
        let mut held: Vec<Heard> = first.into_iter().collect();
        while let Ok(heard) = self.heard.recv_timeout(LULL) {
            held.push(heard);
        }
        for (number, bytes) in &held {
            let Some(to) = self.to.get_mut(number) else { continue };
            let _ = if bytes.is_empty() { to.shutdown(Shutdown::Write) } else { to.write_all(bytes) };
        }
        held.iter().any(|(_, bytes)| !bytes.is_empty())
    }
}

fn listen(number: usize, mut from: TcpStream, heard: &Sender<Heard>) {
    let heard = heard.clone();
    thread::spawn(move || {
        let mut room = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut room) {
            let _ = heard.send((number, room[..read].to_vec()));
        }
        let _ = heard.send((number, Vec::new()));
    });
}

/// Carries data between clients of `listener` and `server` until `over`; returns the number of answers.
fn rounds(listener: &TcpListener, server: SocketAddr, over: &AtomicBool) -> usize {
    listener.set_nonblocking(true).unwrap();
    let ((say_up, heard), (say_down, answered)) = (channel(), channel());
    let (mut up, mut down) =
        (Lane { heard, to: HashMap::new() }, Lane { heard: answered, to: HashMap::new() });
    let mut rounds = 0;
    while !over.load(SeqCst) {
        while let Ok((near, _)) = listener.accept() {
            near.set_nonblocking(false).unwrap();
            let (far, number) = (TcpStream::connect(server).unwrap(), up.to.len());
            listen(number, near.try_clone().unwrap(), &say_up);
            listen(number, far.try_clone().unwrap(), &say_down);
            up.to.insert(number, far);
            down.to.insert(number, near);
        }
        match up.heard.try_recv() {
            Ok(first) => drop(up.carry(Some(first))),
            Err(TryRecvError::Empty) => thread::yield_now(),
            Err(TryRecvError::Disconnected) => unreachable!("the link has an end of it"),
        }
        if let Ok(first) = down.heard.try_recv() {
            rounds += usize::from(down.carry(Some(first)));
        }
    }
    rounds
}

/// Copies one small file to a server, or from it; in how many round trips.
fn copied(place: &Path, plain: bool, pull: bool) -> usize {
    let [near, far, state] = ["near", "far", "state"].map(|name| place.join(name));
    [&near, &far, &state].into_iter().for_each(|dir| std::fs::create_dir_all(dir).unwrap());
    let (source, dest) = if pull { (&far, &near) } else { (&near, &far) };
    std::fs::write(source.join("file"), [7; 1000]).unwrap();
    let options = ServerOptions { root: far.clone(), read_only: false, plain, accept: Accept::Restricted };
    let keys = Keys::load(&state).unwrap();
    let served = start(options, "127.0.0.1:0".parse().unwrap(), &keys).unwrap();
    let link = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = |at: SocketAddr| format!(":{}/", at.port());
    let url = served.url.replace(&port(served.at), &port(link.local_addr().unwrap()));
    let words: [OsString; 2] = if pull {
        [format!("{url}file").into(), near.join("copy").into()]
    } else {
        [near.join("file").into(), format!("{url}copy").into()]
    };
    let mut copy = Copy::new(&words[..1], OsStr::new(&words[1])).unwrap();
    copy.reach.plain = plain;
    let over = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let counted = scope.spawn(|| rounds(&link, served.at, &over));
        let done = copy.start().unwrap().wait();
        over.store(true, SeqCst);
        done.unwrap().outcome.verdict().unwrap();
        counted.join().unwrap()
    });
    assert_eq!(std::fs::read(dest.join("copy")).unwrap(), [7; 1000]);
    std::fs::remove_file(dest.join("copy")).unwrap();
    rounds
}

/// The least of several tries, no more of them than it takes to come to `most`.
fn least(plain: bool, pull: bool, most: usize) -> usize {
    let place = tempfile::tempdir().unwrap();
    let mut least = usize::MAX;
    for _ in 0..TRIES {
        least = least.min(copied(place.path(), plain, pull));
        if least <= most {
            break;
        }
    }
    least
}

#[test]
fn one_small_file_goes_in_three_after_the_connection() {
    // TLS: its handshake; the proof, the request and the answer; the file and that it is there.
    assert_eq!(least(false, false, 3), 3);
    // Without: the challenge in place of the handshake.
    assert_eq!(least(true, false, 3), 3);
}

#[test]
fn one_small_file_comes_in_four_after_the_connection() {
    // The receiver's report of its destination is sent before the file, and the goodbye after it.
    assert_eq!(least(false, true, 4), 4);
    assert_eq!(least(true, true, 4), 4);
}
