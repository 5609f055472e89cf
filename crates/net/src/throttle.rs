//! What a node may take from its host, for all its swarms together: bytes a second to and from the network and to the disk,
//! cores, and memory for blocks. The one place where that is enforced: whoever moves payload asks here before each block.
//!
//! A bucket may be emptied below zero by one block and is waited for then: blocks are large against no rate that is of use.
//! Cores are a bucket of seconds, from which the whole process's CPU time is taken: hashing, encryption and the kernel's
//! work for its sockets, whichever thread did it. So a cap holds without any right to limit by other means.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rustix::time::{ClockId, clock_gettime};

use crate::pool::Pool;
use crate::session::BUFFER;

/// How often those who wait look again: a cap that is changed holds within this time.
const LOOK: Duration = Duration::from_millis(100);
/// What is not used is kept for so long.
const BURST: f64 = 0.1;
/// What was spent is paid for within so many seconds.
const DEBT: f64 = 2.0;
/// Block buffers are never fewer: each connection may hold one.
const BUFFERS: usize = 64;

/// What a node may take; None: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Caps {
    /// Bytes a second to other hosts.
    pub upload: Option<u64>,
    /// Bytes a second from other hosts.
    pub download: Option<u64>,
    /// Bytes a second to the disk.
    pub disk: Option<u64>,
    /// Seconds of CPU time a second.
    pub cores: Option<f64>,
    /// Others need the page cache: what was written is not kept there.
    pub spare_cache: bool,
}

/// Holds a node to its caps.
pub struct Throttle {
    caps: RwLock<Caps>,
    upload: Mutex<Bucket>,
    download: Mutex<Bucket>,
    disk: Mutex<Bucket>,
    cores: Mutex<Cores>,
    spare_cache: AtomicBool,
    pool: Option<Pool>,
}

impl Throttle {
    /// `memory`: bytes of blocks in memory, in all swarms together.
    #[must_use]
    pub fn new(caps: Caps, memory: Option<u64>) -> Self {
        let buffers = |bytes: u64| usize::try_from(bytes / BUFFER as u64).unwrap_or(usize::MAX);
        let throttle = Self {
            caps: RwLock::default(),
            upload: Mutex::new(Bucket::new()),
            download: Mutex::new(Bucket::new()),
            disk: Mutex::new(Bucket::new()),
            cores: Mutex::new(Cores { bucket: Bucket::new(), used: cpu_seconds() }),
            spare_cache: AtomicBool::new(false),
            pool: memory.map(|bytes| Pool::new(buffers(bytes).clamp(BUFFERS, 1 << 16), BUFFER)),
        };
        throttle.set(caps);
        throttle
    }

    /// Changes the caps, for those who wait too.
    pub fn set(&self, caps: Caps) {
        let old = std::mem::replace(&mut *self.caps.write(), caps);
        for (bucket, old, new) in [
            (&self.upload, old.upload, caps.upload),
            (&self.download, old.download, caps.download),
            (&self.disk, old.disk, caps.disk),
        ] {
            // What was taken at a high rate is not paid for at a low one.
            if old != new {
                *bucket.lock() = Bucket::new();
            }
        }
        self.spare_cache.store(caps.spare_cache, Ordering::Relaxed);
    }

    /// The caps.
    #[must_use]
    pub fn caps(&self) -> Caps {
        *self.caps.read()
    }

    /// Waits until so many bytes may go to the network.
    pub async fn send(&self, bytes: u64) {
        self.wait(&self.upload, |caps| caps.upload, bytes).await;
        self.cores().await;
    }

    /// Waits until so many bytes may come from the network, to the disk.
    pub async fn receive(&self, bytes: u64) {
        self.wait(&self.download, |caps| caps.download, bytes).await;
        self.store(bytes).await;
    }

    /// Waits until so many bytes from elsewhere may go to the disk.
    pub async fn store(&self, bytes: u64) {
        self.wait(&self.disk, |caps| caps.disk, bytes).await;
        self.cores().await;
    }

    /// Whether that can be sent at once; then it counts as sent.
    pub(crate) fn may_send(&self, bytes: u64) -> bool {
        let caps = self.caps();
        self.cores.lock().left(caps.cores).is_none() && self.upload.lock().take(caps.upload, bytes).is_none()
    }

    pub(crate) fn spares_cache(&self) -> bool {
        self.spare_cache.load(Ordering::Relaxed)
    }

    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    async fn wait(&self, bucket: &Mutex<Bucket>, rate: impl Fn(&Caps) -> Option<u64>, bytes: u64) {
        while let Some(wait) = { bucket.lock().take(rate(&self.caps()), bytes) } {
            tokio::time::sleep(wait.min(LOOK)).await;
        }
    }

    async fn cores(&self) {
        while let Some(wait) = { self.cores.lock().left(self.caps().cores) } {
            tokio::time::sleep(wait.min(LOOK)).await;
        }
    }
}

struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn new() -> Self {
        Self { left: 0.0, at: Instant::now() }
    }

    /// Fills up for the time that has gone by.
    fn fill(&mut self, rate: f64) {
        let now = Instant::now();
        self.left = (self.left + (now - self.at).as_secs_f64() * rate).min(rate * BURST);
        self.at = now;
    }

    /// Takes `amount` as soon as there is anything; else how long to wait.
    fn take(&mut self, rate: Option<u64>, amount: u64) -> Option<Duration> {
        let Some(rate) = rate else {
            *self = Self::new();
            return None;
        };
        let rate = (rate as f64).max(1.0);
        self.fill(rate);
        if self.left >= 0.0 {
            self.left -= amount as f64;
            return None;
        }
        Some(pause(-self.left / rate))
    }
}

struct Cores {
    bucket: Bucket,
    /// CPU time of the process at the last look, seconds.
    used: f64,
}

impl Cores {
    /// How long to wait until the process may work on.
    fn left(&mut self, cores: Option<f64>) -> Option<Duration> {
        let used = cpu_seconds();
        let spent = used - std::mem::replace(&mut self.used, used);
        let Some(cores) = cores else {
            self.bucket = Bucket::new();
            return None;
        };
        self.bucket.fill(cores);
        // Other work than moving payload may have spent much at once: it is not held against this for long.
        self.bucket.left = (self.bucket.left - spent).max(-cores * DEBT);
        (self.bucket.left < 0.0).then(|| pause(-self.bucket.left / cores.max(0.01)))
    }
}

fn pause(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.001, 1.0))
}

/// CPU time of this process, seconds.
fn cpu_seconds() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rates_hold_and_change_for_those_who_wait() {
        let caps = Caps { upload: Some(1_000_000), ..Caps::default() };
        let throttle = Throttle::new(caps, None);
        let began = Instant::now();
        for _ in 0..5 {
            throttle.send(100_000).await;
        }
        // The first goes at once, each other waits for those before.
        let took = began.elapsed().as_secs_f64();
        assert!(took > 0.3, "{took}");
        throttle.receive(1 << 40).await;
        throttle.set(Caps { upload: Some(1), ..Caps::default() });
        throttle.send(1000).await;
        let waiting = throttle.send(1);
        let free = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            throttle.set(Caps::default());
        };
        tokio::join!(waiting, free);
    }

    #[test]
    fn what_was_spent_without_a_cap_is_not_owed() {
        let mut cores = Cores { bucket: Bucket::new(), used: cpu_seconds() - 1000.0 };
        assert!(cores.left(None).is_none());
        let _ = cores.left(Some(1.0));
        assert!(cores.bucket.left > -DEBT, "{}", cores.bucket.left);
        cores.used -= 1000.0;
        assert!(cores.left(Some(1.0)).is_some() && cores.bucket.left >= -DEBT);
    }

    #[tokio::test]
    async fn work_is_paid_for_with_time() {
        let throttle = Throttle::new(Caps { cores: Some(0.25), ..Caps::default() }, None);
        throttle.store(1).await;
        let (began, start) = (Instant::now(), cpu_seconds());
        while cpu_seconds() - start < 0.2 {}
        throttle.store(1).await;
        // 0.2 s of work, less what a burst may hold.
        assert!(began.elapsed().as_secs_f64() > 0.5, "{:?}", began.elapsed());
    }
}
