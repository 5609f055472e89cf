//! The start of a broadcast: opens the control channel, and hashes the source.

use tidecast_identity::Tls;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::{Group, INBOX, Input};
use crate::control::server;
use crate::control::ticket::{GroupTicket, SourceStat, Token};
use crate::error::{Error, system};
use crate::plan::Algorithm;
use crate::{reach, source};

impl Group {
    /// Opens the control channel; returns its ticket.
    pub(super) fn open_control(&mut self) -> Result<GroupTicket, Error> {
        let listener = reach::listener()?;
        let port = listener.local_addr().map_err(system("listen"))?.port();
        let listener = TcpListener::from_std(listener).map_err(system("listen"))?;
        let token = Token::random();
        let (sender, mut heard) = mpsc::channel(INBOX);
        self.tasks.spawn(server::run(listener, Tls::new(&self.key)?, token.clone(), sender));
        let inbox = self.inbox.clone();
        self.tasks.spawn(async move {
            while let Some(heard) = heard.recv().await {
                if inbox.send(Input::Control(heard)).await.is_err() {
                    return;
                }
            }
        });
        let addresses = self.local.iter().map(|a| (a.ip, port).into()).collect();
        let source = (self.options.sources > 1).then(|| SourceStat::new(&self.options.source)).flatten();
        Ok(GroupTicket::new(self.key.id(), token, addresses, source))
    }

    /// Opens the source while workers are launched; it is then hashed while it is sent. Other BitTorrent clients, and the
    /// classic algorithm, need the hashes first.
    pub(super) fn hash(&mut self) {
        let (path, threads) = (self.options.source.clone(), self.options.threads);
        let any_client = self.options.torrent.is_some();
        let as_draft = !any_client && self.options.algorithm != Algorithm::Classic;
        let (inbox, progress) = (self.inbox.clone(), self.hashing.clone());
        tokio::task::spawn_blocking(move || {
            let source = match as_draft {
                true => source::as_draft(&path, &progress),
                false => source::publish(&path, threads, any_client, &progress),
            };
            // If this fails the broadcast has ended.
            let _ = inbox.blocking_send(Input::Source(Box::new(source)));
        });
    }
}

/// This host's own name.
pub(crate) fn hostname() -> String {
    String::from_utf8_lossy(rustix::system::uname().nodename().to_bytes()).into_owned()
}
