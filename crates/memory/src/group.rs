//! A group of ranks, and the calls that a program makes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidecast_net::local_addresses;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::error::{Error, system};
use crate::hub::Hub;
use crate::message::Hello;
use crate::part::{self, Buffer, CallSpec, Common};
use crate::session::Session;
use crate::shared::{BASE, Shared};

/// The environment variable for another directory than `/dev/shm`.
pub const SHARED_VARIABLE: &str = "TIDECAST_SHM_DIR";
/// The maximum number of ranks of a group.
pub const MAX_SIZE: u32 = 65_536;
/// The maximum wait for a worker that serves other hosts, when the group is closed.
const SERVE: Duration = Duration::from_secs(60);
/// The maximum wait for blocked threads, when the group is closed.
const GIVE_UP: Duration = Duration::from_secs(2);
/// Threads of a group; hashing has its own.
const THREADS: usize = 4;
/// A call that waits asks its caller so often whether to go on.
const LOOK: Duration = Duration::from_millis(200);

/// Asked five times a second, on the calling thread, while a call waits: [`ControlFlow::Break`] breaks the call off.
pub type Watch<'a> = &'a mut dyn FnMut() -> ControlFlow<()>;

/// Options of a member of a group.
#[derive(Clone, Debug)]
pub struct Options {
    /// This process's number, from 0.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// The secret of the group. Any process that knows it can join: it should be long and random.
    pub secret: Vec<u8>,
    /// How long to try to connect to rank 0.
    pub patience: Duration,
    /// Send data between hosts unencrypted.
    pub plain: bool,
    /// A directory in memory; by default [`SHARED_VARIABLE`], else `/dev/shm`.
    pub shared: Option<PathBuf>,
}

/// A member of a group. Calls are made one at a time; every rank makes the same ones in the same order.
///
/// Dropping it leaves the group; rank 0 first waits for calls of others to end, at most two minutes.
pub struct Group {
    rank: u32,
    size: u32,
    address: String,
    state: Mutex<State>,
    hub: Option<Hub>,
    /// The last field, so that all others are dropped before it. `None` only while the group is dropped.
    runtime: Option<Runtime>,
}

struct State {
    /// `None` only while the group is dropped.
    session: Option<Session>,
    common: Common,
    /// The number of the next call.
    next: u64,
}

impl Group {
    /// Makes this process a member. `at`: the address of rank 0, `host:port`, or several separated by commas; rank 0 itself
    /// listens on that port, on all its addresses, with port 0 on any port ([`Group::address`]).
    ///
    /// Rank 0 does not wait for the other ranks here; the first call does.
    ///
    /// # Errors
    /// [`Error::Usage`], [`Error::Join`], [`Error::System`].
    pub fn open(at: &str, options: &Options) -> Result<Self, Error> {
        Self::open_watched(at, options, &mut forever)
    }

    /// As [`Group::open`]; `watch` can break it off.
    ///
    /// # Errors
    /// [`Error::Stopped`] too.
    pub fn open_watched(at: &str, options: &Options, watch: Watch<'_>) -> Result<Self, Error> {
        let Options { rank, size, .. } = *options;
        if rank >= size || size > MAX_SIZE {
            return Err(Error::Usage(format!(
                "a group of {size} has no rank {rank} (at most {MAX_SIZE} ranks)"
            )));
        }
        let until = Instant::now() + options.patience;
        let named = || std::env::var_os(SHARED_VARIABLE).map_or_else(|| BASE.into(), PathBuf::from);
        let base = options.shared.clone().unwrap_or_else(named);
        let shared = Arc::new(Shared::make(&base)?);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        let runtime = tidecast_net::runtime(threads).map_err(system("start threads"))?;
        let (hub, found) = {
            let _within = runtime.enter();
            if rank == 0 {
                let hub = Hub::start(listener(at)?, size, &options.secret)?;
                let own = vec![format!("127.0.0.1:{}", hub.port), format!("[::1]:{}", hub.port)];
                (Some(hub), own)
            } else {
                (None, at.split(',').map(|one| one.trim().to_owned()).collect())
            }
        };
        let hello = Hello {
            rank,
            size,
            place: shared.place()?,
            base: base.to_string_lossy().into_owned(),
            dir: shared.name().to_owned(),
        };
        let joining = Session::join(&found, hello, &options.secret, shared.clone(), until);
        let session = match watched(&runtime, joining, watch) {
            Ok(session) => session,
            Err(error) => {
                // A resolver may still hold a thread; it is not waited for.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let address = hub.as_ref().map_or_else(|| at.to_owned(), |hub| addresses(hub.port));
        let common = Common { shared, size, plain: options.plain, workers: JoinSet::new() };
        let state = Mutex::new(State { session: Some(session), common, next: 0 });
        Ok(Self { rank, size, address, state, hub, runtime: Some(runtime) })
    }

    /// This process's number.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The addresses of rank 0 for the other ranks: `host:port`, separated by commas.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Copies the root's buffer to the buffers of all ranks, which have the same length. `patience`: how long ranks
    /// wait for each other to call; the transfer itself has no limit, but fails if no data moves for a minute.
    ///
    /// Returns at the root the ranks without the data, elsewhere nothing. A small buffer (all copies together at most 4
    /// MiB) has then been sent, but not received, as with MPI.
    ///
    /// # Errors
    /// This rank did not receive the data, or as root could not send it. After [`Error::Failed`] the contents of a
    /// receiving buffer are undefined, and the group is still usable.
    pub fn bcast(&self, buffer: Buffer<'_>, root: u32, patience: Duration) -> Result<Vec<u32>, Error> {
        self.bcast_watched(buffer, root, patience, &mut forever)
    }

    /// As [`Group::bcast`]; `watch` can break it off. The buffer is not used any more when it returns. This rank has left
    /// the group then, as the others would wait for its part of the call.
    ///
    /// # Errors
    /// [`Error::Stopped`] too; every further call is [`Error::Lost`].
    pub fn bcast_watched(
        &self,
        buffer: Buffer<'_>,
        root: u32,
        patience: Duration,
        watch: Watch<'_>,
    ) -> Result<Vec<u32>, Error> {
        self.right(root, matches!(buffer, Buffer::Send(_)))?;
        self.call(root, patience, watch, async move |which, session, common| {
            part::take_part(which, buffer, session, common).await
        })
    }

    /// Called instead of [`Group::bcast`] if this rank cannot join the call, for this reason: the others do not wait
    /// for it.
    ///
    /// # Errors
    /// [`Error::Usage`], [`Error::Lost`].
    pub fn abstain(&self, root: u32, why: &str, patience: Duration) -> Result<(), Error> {
        self.abstain_watched(root, why, patience, &mut forever)
    }

    /// As [`Group::abstain`]; `watch` can break it off.
    ///
    /// # Errors
    /// [`Error::Stopped`] too.
    pub fn abstain_watched(
        &self,
        root: u32,
        why: &str,
        patience: Duration,
        watch: Watch<'_>,
    ) -> Result<(), Error> {
        self.right(root, root == self.rank)?;
        self.call(root, patience, watch, async |which, session, _| {
            part::abstain(which, why.chars().take(200).collect(), session).await
        })
    }

    /// Leaves the group, as dropping it does. `watch` can end the wait for others: they then lose the data
    /// that they still need from this rank.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn close(mut self, watch: Watch<'_>) -> Result<(), Error> {
        self.leave(watch)
    }

    fn right(&self, root: u32, sends: bool) -> Result<(), Error> {
        if root >= self.size {
            return Err(Error::Usage(format!("a group of {} has no rank {root}", self.size)));
        }
        if sends != (root == self.rank) {
            return Err(Error::Usage("the root must send, all other ranks must receive".into()));
        }
        Ok(())
    }

    fn call<T>(
        &self,
        root: u32,
        patience: Duration,
        watch: Watch<'_>,
        act: impl AsyncFnOnce(CallSpec, &mut Session, &mut Common) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Another thread's call comes first.
        let mut state = loop {
            match self.state.try_lock_for(LOOK) {
                Some(state) => break state,
                None if watch().is_break() => return Err(Error::Stopped),
                None => {}
            }
        };
        let State { session, common, next } = &mut *state;
        let (Some(joined), Some(runtime)) = (session.as_mut(), &self.runtime) else {
            return Err(Error::Lost("this rank has left the group".into()));
        };
        let number = *next;
        *next += 1;
        while common.workers.try_join_next().is_some() {}
        let done = watched(runtime, act(CallSpec { number, root, patience }, joined, common), watch);
        if matches!(done, Err(Error::Stopped)) {
            common.workers.abort_all();
            if let Some(joined) = session.take() {
                runtime.spawn(joined.leave());
            }
        }
        done
    }

    /// Waits for others, leaves and ends all threads, once.
    fn leave(&mut self, watch: Watch<'_>) -> Result<(), Error> {
        let Some(runtime) = self.runtime.take() else { return Ok(()) };
        let state = self.state.get_mut();
        let (session, hub, workers) = (state.session.take(), self.hub.take(), &mut state.common.workers);
        let leaving = async {
            let served = async { while workers.join_next().await.is_some() {} };
            let _ = timeout(SERVE, served).await;
            workers.abort_all();
            if let Some(session) = session {
                session.leave().await;
            }
            if let Some(hub) = hub {
                hub.end().await;
            }
            Ok(())
        };
        let left = watched(&runtime, leaving, watch);
        match left {
            Ok(()) => runtime.shutdown_timeout(GIVE_UP),
            Err(_) => runtime.shutdown_background(),
        }
        left
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.leave(&mut forever);
    }
}

/// The watch of a caller that waits as long as it takes.
fn forever() -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Waits on this thread for a future. `watch` is asked outside of the runtime: it may begin another one's.
fn watched<T>(
    runtime: &Runtime,
    future: impl Future<Output = Result<T, Error>>,
    watch: Watch<'_>,
) -> Result<T, Error> {
    let mut future = pin!(future);
    loop {
        match runtime.block_on(async { timeout(LOOK, &mut future).await }) {
            Ok(done) => return done,
            Err(_) if watch().is_break() => return Err(Error::Stopped),
            Err(_) => {}
        }
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

/// Listens at the port of the first address, on all addresses of this host.
fn listener(at: &str) -> Result<std::net::TcpListener, Error> {
    let first = at.split(',').next().unwrap_or_default();
    let port = first.rsplit_once(':').and_then(|(_, port)| port.trim().parse::<u16>().ok());
    let port = port.ok_or_else(|| Error::Usage(format!("{at:?} is not host:port")))?;
    let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    // IPv4 only if the kernel has no IPv6.
    let listener =
        tidecast_net::listen((any[0], port).into()).or_else(|_| tidecast_net::listen((any[1], port).into()));
    listener.map_err(|e| Error::Join(e.to_string()))
}

/// All addresses of this host, for others to try.
fn addresses(port: u16) -> String {
    let all = local_addresses().unwrap_or_default();
    let all = all.iter().map(|a| std::net::SocketAddr::from((a.ip, port)).to_string());
    all.collect::<Vec<_>>().join(",")
}
