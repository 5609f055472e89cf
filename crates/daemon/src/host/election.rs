//! Several daemons on one machine (one per user or glide-in): finds the parent of each.
//!
//! Each binds a name in the abstract namespace of sockets, which has no file: no user can squat it, plant a
//! link there, or leave it behind. `/proc/net/unix` lists the names. A name contains the user and the
//! process; at the connection the kernel confirms both, and the start time of the process. The host's daemon
//! comes before users' daemons, older before younger; so parents never form a cycle. No state is kept: a
//! daemon that ends disappears from the list.

use std::collections::{HashMap, HashSet};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidecast_hash::sha256;
use tokio::net::UnixListener;
use tokio::time::timeout;

use crate::client::Client;
use crate::config::{Config, Serves};
use crate::model::types::Status;

/// An elder that does not answer within this time is skipped.
const ANSWER: Duration = Duration::from_secs(2);
/// ... and left alone for this long.
const BACKOFF: Duration = Duration::from_secs(10);
/// Elders asked in one election.
const ASKED: usize = 8;

/// A daemon's rank on its machine: the smaller comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// It is a user's, not the host's.
    is_users: bool,
    /// When its process began, in ticks since the machine did.
    start: u64,
    pid: u32,
    uid: u32,
}

/// The daemons of this machine.
pub(crate) struct Election {
    prefix: String,
    me: Rank,
    /// The user of the host's daemon, besides root.
    host: Option<u32>,
    backoff: Mutex<HashMap<Silent, Instant>>,
    /// The parent at the last look.
    last: Mutex<Option<String>>,
}

/// Daemons that do not answer: of a user whose answers are trusted one process, of other users all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Silent {
    Process(u32),
    User(u32),
}

/// Another daemon of this machine, from which this one may take caches.
pub(crate) struct Parent {
    pub(crate) client: Client,
    /// Its name.
    pub(crate) name: String,
    silent: Silent,
    /// It is the host's or of our own user: its answers are trusted, and our requests are no secret to it.
    pub(crate) is_plausible: bool,
    /// It may put links into our directories, and sees the same ones.
    pub(crate) links: bool,
}

impl Election {
    /// Those of `machine`, and this process among them.
    pub(crate) fn new(machine: &str, serves: Serves, host: Option<u32>) -> Self {
        let hash = data_encoding::HEXLOWER.encode(&sha256(machine.as_bytes())[..8]);
        let (uid, pid) = (rustix::process::geteuid().as_raw(), std::process::id());
        let me =
            Rank { is_users: serves == Serves::Owner, start: start_of(pid).unwrap_or(u64::MAX), pid, uid };
        Self {
            prefix: format!("tidecast/{hash}/"),
            me,
            host,
            backoff: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Where the others find this one.
    ///
    /// # Errors
    /// The name is taken.
    pub(crate) fn listen(&self) -> std::io::Result<UnixListener> {
        let name = format!("{}{}/{}", self.prefix, self.me.uid, self.me.pid);
        let listener = std::os::unix::net::UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    }

    /// Whether this user has an older daemon here, from which this one may take links. Asks no other process
    /// and starts no thread.
    pub(crate) fn has_older_with_links(&self) -> bool {
        let names = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let older_daemons = older_daemons(&names, &self.prefix, self.me, |uid| self.is_hosts(uid), start_of);
        older_daemons.iter().any(|rank| rank.uid == self.me.uid && sees_the_same(rank.pid))
    }

    /// Finds the parent, for [`Election::last_parent`].
    pub(crate) async fn look(&self) {
        *self.last.lock() = self.parent().await.map(|parent| parent.name);
    }

    /// The name of the parent at the last look; None: this was the eldest.
    pub(crate) fn last_parent(&self) -> Option<String> {
        self.last.lock().clone()
    }

    /// The first of the elders that answers, trusted ones before others; None: this is the eldest.
    pub(crate) async fn parent(&self) -> Option<Parent> {
        let names = std::fs::read_to_string("/proc/net/unix").ok()?;
        let mut older_daemons =
            older_daemons(&names, &self.prefix, self.me, |uid| self.is_hosts(uid), start_of);
        older_daemons.sort_by_key(|rank| (!self.is_plausible(*rank), *rank));
        {
            let mut backoff = self.backoff.lock();
            backoff.retain(|_, until| *until > Instant::now());
            older_daemons.retain(|rank| !backoff.contains_key(&self.silent(*rank)));
        }
        let mut silent = HashSet::new();
        let mut left = ASKED;
        for rank in older_daemons {
            if silent.contains(&self.silent(rank)) {
                continue;
            }
            let client = self.client(rank);
            // A name with a false user costs next to nothing, however many there are.
            if timeout(ANSWER, client.connect()).await.is_ok_and(|connected| connected.is_err()) {
                continue;
            }
            match self.ask(rank, client).await {
                Some(parent) => return Some(parent),
                None => {
                    silent.insert(self.silent(rank));
                    self.back_off(self.silent(rank));
                }
            }
            left -= 1;
            if left == 0 {
                break;
            }
        }
        None
    }

    /// Whether this user runs the host's daemon.
    fn is_hosts(&self, uid: u32) -> bool {
        uid == 0 || self.host == Some(uid)
    }

    fn is_plausible(&self, rank: Rank) -> bool {
        self.is_hosts(rank.uid) || rank.uid == self.me.uid
    }

    fn client(&self, rank: Rank) -> Client {
        Client::of_daemon(&format!("{}{}/{}", self.prefix, rank.uid, rank.pid), rank.uid, rank.pid)
    }

    async fn ask(&self, rank: Rank, client: Client) -> Option<Parent> {
        let status: Status = timeout(ANSWER, client.get("/v1/daemon")).await.ok()?.ok()?;
        (status.state == "running").then_some(Parent {
            client,
            name: status.name,
            silent: self.silent(rank),
            is_plausible: self.is_plausible(rank),
            links: rank.uid == self.me.uid && sees_the_same(rank.pid),
        })
    }

    fn back_off(&self, silent: Silent) {
        self.backoff.lock().insert(silent, Instant::now() + BACKOFF);
    }

    /// A user may have any number of processes with names as of daemons.
    fn silent(&self, rank: Rank) -> Silent {
        if self.is_plausible(rank) { Silent::Process(rank.pid) } else { Silent::User(rank.uid) }
    }

    /// A parent has failed: another one is to be taken.
    pub(crate) fn give_up(&self, parent: &Parent) {
        self.back_off(parent.silent);
    }
}

impl Config {
    /// Whether this user has an older daemon on this machine now, which may give links into its own store.
    /// Asks no other process and starts no thread.
    #[must_use]
    pub fn has_older_with_links(&self) -> bool {
        Election::new(&self.machine, self.serves, self.host_uid).has_older_with_links()
    }
}

/// Those that come before `me`, of the names that the system lists.
fn older_daemons(
    names: &str,
    prefix: &str,
    me: Rank,
    is_hosts: impl Fn(u32) -> bool,
    start_of: impl Fn(u32) -> Option<u64>,
) -> Vec<Rank> {
    let rank = |line: &str| {
        let name = line.split_whitespace().nth(7)?.strip_prefix('@')?.strip_prefix(prefix)?;
        let (uid, pid) = name.split_once('/')?;
        let (uid, pid): (u32, u32) = (uid.parse().ok()?, pid.parse().ok()?);
        Some(Rank { is_users: !is_hosts(uid), start: start_of(pid)?, pid, uid })
    };
    let mut all: Vec<Rank> = names.lines().filter_map(rank).filter(|rank| *rank < me).collect();
    // A connection that was accepted has its listener's name.
    all.sort();
    all.dedup();
    all
}

/// When a process began, in ticks since the machine did: the kernel's word, which no process can change.
fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether paths of that process mean the same as here.
fn sees_the_same(pid: u32) -> bool {
    let of =
        |who: &str| ["mnt", "user"].map(|kind| std::fs::read_link(format!("/proc/{who}/ns/{kind}")).ok());
    let root = |who: &str| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(format!("/proc/{who}/root")).ok().map(|root| (root.dev(), root.ino()))
    };
    let pid = pid.to_string();
    let (ours, theirs) = (of("self"), of(&pid));
    ours.iter().all(Option::is_some) && ours == theirs && root("self").is_some() && root("self") == root(&pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(uid: u32, start: u64, pid: u32) -> Rank {
        Rank { is_users: uid != 0, start, pid, uid }
    }

    #[test]
    fn the_hosts_daemon_comes_first_then_age() {
        let names = "Num RefCount Protocol Flags Type St Inode Path\n\
            00: 02 00 00010000 0001 01 11 @tidecast/m/1000/10\n\
            00: 03 00 00000000 0001 03 12 @tidecast/m/1000/10\n\
            00: 02 00 00010000 0001 01 13 @tidecast/m/0/40\n\
            00: 02 00 00010000 0001 01 14 @tidecast/m/1001/20\n\
            00: 02 00 00010000 0001 01 15 @tidecast/m/1000/30\n\
            00: 02 00 00010000 0001 01 15 @tidecast/other/1000/5\n\
            00: 02 00 00010000 0001 01 15 @tidecast/m/x/5\n\
            00: 02 00 00010000 0001 01 15 @tidecast/m/1000/99\n\
            00: 03 00 00000000 0001 03 16\n\
            00: 03 00 00000000 0001 03 16 /run/a b\n";
        let start =
            |pid| [(10, 100), (40, 900), (20, 200), (30, 300), (5, 1)].into_iter().find(|(p, _)| *p == pid);
        let older_daemons = |me| {
            older_daemons(names, "tidecast/m/", me, |uid| uid == 0, |pid| start(pid).map(|(_, start)| start))
        };
        let (host, first, second) = (rank(0, 900, 40), rank(1000, 100, 10), rank(1001, 200, 20));
        assert_eq!(older_daemons(rank(1000, 300, 30)), [host, first, second]);
        assert_eq!(older_daemons(first), [host]);
        assert_eq!(older_daemons(host), []);
    }

    #[test]
    fn the_kernel_tells_the_age_and_this_process_sees_what_it_sees() {
        assert!(start_of(std::process::id()).is_some());
        assert!(sees_the_same(std::process::id()));
    }
}
