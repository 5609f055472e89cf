//! Limits of a node on its host, for all its swarms together: bytes a second to and from the network and to the
//! disk, cores, and memory for blocks. They are enforced here only: every task that moves payload asks here before
//! each block.
//!
//! A block waits until its bucket holds all of it, one after the other in the order of arrival: so a rate holds
//! from the first byte, and for any number of connections. A task that ends while it waits has taken nothing. Cores
//! are a bucket of seconds, from which the whole process's CPU time is taken: hashing, encryption and the kernel's
//! work for its sockets, in any thread. So a limit holds without any privilege.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::pool::BUFFER;
use crate::pool::Pool;

/// Interval at which the first waiter checks the limits: a changed limit holds within this time.
const LOOK: Duration = Duration::from_millis(100);
/// Unused capacity is kept for this long, seconds.
const BURST: f64 = 0.1;
/// An excess is paid back within this time, seconds.
const DEBT: f64 = 2.0;
/// Block buffers are never fewer: each connection may hold one.
const BUFFERS: usize = 64;

/// The limits of a node; None: no limit.
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
    /// Other programs need the page cache: written data is not kept there.
    pub spare_cache: bool,
}

/// Holds a node to its caps.
pub struct Throttle {
    caps: RwLock<Caps>,
    upload: Metered,
    download: Metered,
    disk: Metered,
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
            upload: Metered::new(),
            download: Metered::new(),
            disk: Metered::new(),
            cores: Mutex::new(Cores { bucket: Bucket::new(), used: cpu_seconds() }),
            spare_cache: AtomicBool::new(false),
            pool: memory.map(|bytes| Pool::new(buffers(bytes).clamp(BUFFERS, 1 << 16), BUFFER)),
        };
        throttle.set(caps);
        throttle
    }

    /// Changes the limits, also for waiting tasks.
    pub fn set(&self, caps: Caps) {
        let old = std::mem::replace(&mut *self.caps.write(), caps);
        for (metered, old, new) in [
            (&self.upload, old.upload, caps.upload),
            (&self.download, old.download, caps.download),
            (&self.disk, old.disk, caps.disk),
        ] {
            // A debt at a high rate is not carried over to a low one.
            if old != new {
                *metered.bucket.lock() = Bucket::new();
            }
        }
        self.spare_cache.store(caps.spare_cache, Ordering::Relaxed);
    }

    /// The caps.
    #[must_use]
    pub fn caps(&self) -> Caps {
        *self.caps.read()
    }

    /// Waits until this many bytes may go to the network.
    pub async fn send(&self, bytes: u64) {
        self.wait(&self.upload, |caps| caps.upload, bytes).await;
        self.cores().await;
    }

    /// Waits until this many bytes may come from the network, to the disk.
    pub async fn receive(&self, bytes: u64) {
        self.wait(&self.download, |caps| caps.download, bytes).await;
        self.store(bytes).await;
    }

    /// Waits until this many bytes from elsewhere may go to the disk.
    pub async fn store(&self, bytes: u64) {
        self.wait(&self.disk, |caps| caps.disk, bytes).await;
        self.cores().await;
    }

    /// Whether that can be sent at once; then it counts as sent.
    pub(crate) fn may_send(&self, bytes: u64) -> bool {
        let caps = self.caps();
        // A waiter that has its turn comes first.
        let Ok(_turn) = self.upload.turn.try_lock() else { return false };
        self.cores.lock().left(caps.cores).is_none()
            && self.upload.bucket.lock().take(caps.upload, bytes).is_none()
    }

    pub(crate) fn spares_cache(&self) -> bool {
        self.spare_cache.load(Ordering::Relaxed)
    }

    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    async fn wait(&self, metered: &Metered, rate: impl Fn(&Caps) -> Option<u64>, bytes: u64) {
        let _turn = metered.turn.lock().await;
        while let Some(wait) = { metered.bucket.lock().take(rate(&self.caps()), bytes) } {
            tokio::time::sleep(wait.min(LOOK)).await;
        }
    }

    async fn cores(&self) {
        while let Some(wait) = { self.cores.lock().left(self.caps().cores) } {
            tokio::time::sleep(wait.min(LOOK)).await;
        }
    }
}

/// A rate, and the tasks that wait for it: the lock is granted in order.
struct Metered {
    turn: tokio::sync::Mutex<()>,
    bucket: Mutex<Bucket>,
}

impl Metered {
    fn new() -> Self {
        Self { turn: tokio::sync::Mutex::new(()), bucket: Mutex::new(Bucket::new()) }
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

    /// Fills the bucket for the elapsed time, up to a burst or `amount`.
    fn fill(&mut self, rate: f64, amount: f64) {
        let now = Instant::now();
        let most = amount.max(rate * BURST);
        self.left = (self.left + (now - self.at).as_secs_f64() * rate).min(most);
        self.at = now;
    }

    /// Takes `amount` if it is there; else how long to wait.
    fn take(&mut self, rate: Option<u64>, amount: u64) -> Option<Duration> {
        let Some(rate) = rate else {
            *self = Self::new();
            return None;
        };
        let (rate, amount) = ((rate as f64).max(1.0), amount as f64);
        self.fill(rate, amount);
        if self.left >= amount {
            self.left -= amount;
            return None;
        }
        Some(pause((amount - self.left) / rate))
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
        self.bucket.fill(cores, 0.0);
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
    use std::sync::Arc;

    use super::*;

    fn limited(upload: u64) -> Arc<Throttle> {
        Arc::new(Throttle::new(Caps { upload: Some(upload), ..Caps::default() }, None))
    }

    /// Seconds in which this many connections send this many blocks each.
    async fn sending(throttle: &Arc<Throttle>, connections: usize, blocks: usize, bytes: u64) -> f64 {
        let (began, mut senders) = (Instant::now(), tokio::task::JoinSet::new());
        for _ in 0..connections {
            let throttle = throttle.clone();
            senders.spawn(async move {
                for _ in 0..blocks {
                    throttle.send(bytes).await;
                }
            });
        }
        while senders.join_next().await.is_some() {}
        began.elapsed().as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_holds_for_any_number_of_connections_and_any_size() {
        for (rate, connections, blocks, bytes) in [
            (1_000_000, 8, 5, 10_000),
            (1_000_000, 1, 400, 16 << 10),
            (20_000_000, 3, 100, 256 << 10),
            (50_000, 4, 2, 256 << 10),
        ] {
            let took = sending(&limited(rate), connections, blocks, bytes).await;
            let should = (connections * blocks) as f64 * bytes as f64 / rate as f64;
            assert!((0.98..1.02).contains(&(took / should)), "{rate}: {took} s for {should}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_gives_no_right_to_more_than_a_burst() {
        let throttle = limited(1_000_000);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(sending(&throttle, 2, 5, 100_000).await >= 0.9);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_has_taken_nothing() {
        let throttle = limited(1_000_000);
        for _ in 0..50 {
            assert!(tokio::time::timeout(LOOK / 10, throttle.send(1 << 40)).await.is_err());
        }
        assert!(sending(&throttle, 1, 10, 100_000).await < 1.01);
    }

    #[tokio::test(start_paused = true)]
    async fn caps_change_for_those_who_wait() {
        let throttle = limited(1);
        throttle.receive(1 << 40).await;
        assert!(!throttle.may_send(1 << 20));
        let free = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            throttle.set(Caps::default());
        };
        tokio::join!(throttle.send(1 << 20), free);
        assert!(throttle.may_send(1 << 20));
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
        // 0.2 s of work, minus a burst.
        assert!(began.elapsed().as_secs_f64() > 0.5, "{:?}", began.elapsed());
    }
}
