//! The unix socket's listener: no user can take the connections of others.
//!
//! The kernel identifies the user of a connection, so it only has to prove that it makes a request. Until the
//! head of its first request has come it is one of at most [`PER_SOURCE`](tidecast_admission::PER_SOURCE) of
//! its user, of which the oldest is closed first; after that it is one of at most [`MOST`] or [`MOST_OF_DAEMONS`].

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Resource, getrlimit};
use tidecast_admission::{Gate, Unauthenticated, UntilAuthenticated, accept_local};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::UCred;
use tokio::net::{UnixListener, UnixStream};

/// Most connections of one user, where the limit of file descriptors allows it.
pub(super) const MOST: usize = 1024;
/// Most connections of one user at the socket for other daemons.
pub(super) const MOST_OF_DAEMONS: usize = 64;

/// A unix socket of which each user has a share.
pub(super) struct Shared {
    listener: UnixListener,
    gate: Gate,
    users: Users,
    most: usize,
}

/// How many connections users have.
type Users = Arc<Mutex<BTreeMap<u32, usize>>>;

/// One connection of a user, counted as long as it is open.
struct Seat {
    user: u32,
    users: Users,
}

impl Seat {
    /// None if the user has as many as it may have.
    fn take(users: &Users, user: u32, most: usize) -> Option<Self> {
        let mut table = users.lock();
        let count = table.entry(user).or_default();
        (*count < most).then(|| {
            *count += 1;
            Self { user, users: users.clone() }
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.users.lock();
        if let Some(count) = table.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                table.remove(&self.user);
            }
        }
    }
}

impl Shared {
    /// `most`: connections of one user.
    pub(super) fn new(listener: UnixListener, most: usize) -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from(descriptors / 4).unwrap_or(usize::MAX).clamp(1, most);
        Self { listener, gate: Gate::default(), users: Users::default(), most }
    }
}

impl Shared {
    /// The next connection.
    pub(super) async fn accept(&self) -> Connection {
        loop {
            let (stream, cred, admitted) = accept_local(&self.listener, &self.gate).await;
            let user = cred.as_ref().map_or(u32::MAX, UCred::uid);
            let Some(seat) = Seat::take(&self.users, user, self.most) else {
                tracing::debug!(user, most = self.most, "closed a connection: its user has too many");
                continue;
            };
            return Connection { stream: UntilAuthenticated::new(stream, admitted), cred, _seat: seat };
        }
    }
}

/// The credentials of the client, and whether it has made a request.
#[derive(Clone)]
pub(super) struct Cred(pub(super) Option<UCred>, pub(super) Unauthenticated);

/// A client's stream. It ends with an error when its place is needed, or its time has expired, before it has
/// made a request.
pub(super) struct Connection {
    stream: UntilAuthenticated<UnixStream>,
    cred: Option<UCred>,
    _seat: Seat,
}

impl Connection {
    /// The credentials of the client.
    pub(super) fn cred(&self) -> Cred {
        Cred(self.cred, self.stream.unauthenticated())
    }

    /// A duplicate of the socket, for a connection that continues without HTTP.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.stream.get_ref().as_fd().try_clone_to_owned()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn silent_connections_of_a_user_give_way_to_later_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let shared = Shared::new(UnixListener::bind(&path).unwrap(), MOST);
        let dial = async || {
            let there = UnixStream::connect(&path).await.unwrap();
            (there, shared.accept().await)
        };
        let (mut there, mut asked) = dial().await;
        asked.stream.unauthenticated().prove();
        let (_silent, mut first) = dial().await;
        let mut kept = Vec::new();
        for _ in 0..tidecast_admission::PER_SOURCE {
            kept.push(dial().await);
        }
        let error = first.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        there.write_u8(7).await.unwrap();
        assert_eq!(asked.read_u8().await.unwrap(), 7);
    }

    #[test]
    fn a_user_has_so_many_connections_and_others_have_theirs() {
        let users = Users::default();
        let seats: Vec<_> = (0..3).filter_map(|_| Seat::take(&users, 1, 2)).collect();
        assert_eq!(seats.len(), 2);
        assert!(Seat::take(&users, 2, 2).is_some());
        drop(seats);
        assert!(users.lock().is_empty());
    }
}
