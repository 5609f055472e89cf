//! TCP flows between two namespaces for a bounded time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::namespace::Namespace;
use super::settings::times;

/// How long a connection may take, and how soon a flow sees that it is over.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);
const CHUNK: usize = 256 << 10;

/// What flows brought.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Bits per second at the receiver, of all flows together.
    pub bits_per_second: f64,
}

/// What the threads of the flows share.
#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    received: AtomicU64,
}

/// Sends `streams` flows from `here` to `there`; the rate once it is steady.
pub(super) fn flow(
    here: &Namespace,
    there: &Namespace,
    address: Ipv4Addr,
    streams: u32,
    rtt: Duration,
) -> io::Result<Rate> {
    let shared = Arc::new(Shared::default());
    let mut threads = Vec::new();
    let ended = run(here, there, address, streams, rtt, &shared, &mut threads);
    shared.over.store(true, Ordering::Relaxed);
    for thread in threads {
        let _ = thread.join();
    }
    ended
}

fn run(
    here: &Namespace,
    there: &Namespace,
    address: Ipv4Addr,
    streams: u32,
    rtt: Duration,
    shared: &Arc<Shared>,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<Rate> {
    let listener = there.run(move || TcpListener::bind((address, 0)))?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    for _ in 0..streams.max(1) {
        let to: SocketAddr = at;
        let sender = here.run(move || TcpStream::connect_timeout(&to, PATIENCE))?;
        let receiver = accept(&listener)?;
        sender.set_write_timeout(Some(LOOK))?;
        receiver.set_read_timeout(Some(LOOK))?;
        threads.push(start(shared, move |shared| send(sender, shared))?);
        threads.push(start(shared, move |shared| receive(receiver, shared))?);
    }
    let (warm, measured) = times(rtt);
    std::thread::sleep(warm);
    let (began, before) = (Instant::now(), shared.received.load(Ordering::Relaxed));
    std::thread::sleep(measured);
    let (time, after) = (began.elapsed(), shared.received.load(Ordering::Relaxed));
    Ok(Rate { bits_per_second: (after - before) as f64 * 8.0 / time.as_secs_f64() })
}

fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let end = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => return Err(e),
        }
    }
}

fn start(shared: &Arc<Shared>, work: impl FnOnce(&Shared) + Send + 'static) -> io::Result<JoinHandle<()>> {
    let shared = shared.clone();
    std::thread::Builder::new().name("doctor-flow".into()).spawn(move || work(&shared))
}

fn send(mut stream: TcpStream, shared: &Shared) {
    let bytes = vec![0; CHUNK];
    while !shared.over.load(Ordering::Relaxed) {
        match stream.write(&bytes) {
            Ok(_) => {}
            Err(e) if is_timeout(&e) => {}
            Err(_) => return,
        }
    }
}

fn receive(mut stream: TcpStream, shared: &Shared) {
    let mut bytes = vec![0; CHUNK];
    while !shared.over.load(Ordering::Relaxed) {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(n) => drop(shared.received.fetch_add(n as u64, Ordering::Relaxed)),
            Err(e) if is_timeout(&e) => {}
            Err(_) => return,
        }
    }
}

fn is_timeout(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
