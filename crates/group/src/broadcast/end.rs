//! The end of a broadcast: dismisses workers, and makes the report.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tidecast_event::bcast::News;
use tidecast_event::get::LinkRateFrom;
use tokio::time::Instant;

use super::{Event, Group, Origin, TICK};
use crate::control::message::ToWorker;
use crate::error::Error;
use crate::node::{Node, Stage};
use crate::report::{HostReport, Outcome, Report};

/// The time for workers and launchers to end by themselves.
const LAUNCH_END_TIMEOUT: Duration = Duration::from_secs(3);

/// A client that has joined and receives nothing for this time is not waited for.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum wait for such clients, once all hosts are complete.
const MAX_EXTRA_TIME: Duration = Duration::from_secs(600);

/// The time for sources to report how much they sent.
const COUNT: Duration = Duration::from_secs(1);

impl Group {
    /// Whether all sources have reported their totals, or the time for that is over.
    pub(super) fn counted(&mut self) -> bool {
        if self.counting.is_none() {
            let mut asked = 0;
            for node in self.nodes.iter_mut().filter(|n| n.source_member.is_some() && n.conn.is_some()) {
                node.send(ToWorker::Count);
                asked += 1;
            }
            self.counting = Some((Instant::now(), asked));
        }
        self.counting.is_none_or(|(since, left)| left == 0 || since.elapsed() > COUNT)
    }

    /// Serves other clients that have joined until they are complete, within bounds; hosts do not wait for that.
    pub(super) async fn serve_other_clients(
        &mut self,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        tell: &mut (dyn FnMut(Event) + Send),
    ) {
        let Some(origin) = self.origin.as_ref().filter(|_| self.options.torrent.is_some()) else { return };
        for node in &mut self.nodes {
            node.send(ToWorker::Finish);
        }
        let began = Instant::now();
        let mut sent = (origin.sent(), began);
        while origin.peers() > 0 && sent.1.elapsed() < IDLE_TIMEOUT && began.elapsed() < MAX_EXTRA_TIME {
            tokio::select! {
                () = tokio::time::sleep(TICK) => {}
                () = stop.as_mut() => return,
            }
            if origin.sent() != sent.0 {
                sent = (origin.sent(), Instant::now());
            }
            tell(Event::State(self.state()));
        }
    }

    /// Dismisses all workers, and makes the report.
    pub(super) async fn end(
        mut self,
        result: Result<(), Error>,
        tell: &mut (dyn FnMut(Event) + Send),
    ) -> Result<Report, Error> {
        let ended = Instant::now();
        self.hashing.cancel();
        let mut told = false;
        for node in &mut self.nodes {
            let last = match &result {
                Ok(()) => ToWorker::Finish,
                Err(error) => ToWorker::Stop(error.to_string()),
            };
            if let Some((_, to)) = node.conn.take() {
                told |= to.try_send(last).is_ok();
            }
            if let Stage::Failed(reason) = &node.stage {
                tell(Event::News(News::Failed { host: node.host.name.clone(), reason: reason.clone() }));
            }
        }
        tell(Event::State(self.state()));
        let leaving = async { while self.launches.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(if told { LAUNCH_END_TIMEOUT } else { Duration::ZERO }, leaving).await;
        // Kills the remaining launchers, with the processes that they started.
        self.launches.shutdown().await;
        let hashing = self.origin.as_ref().and_then(Origin::hashing_took);
        let hashing = hashing.or(self.source.as_ref().map(|s| s.took)).unwrap_or_default();
        let origin_sent = match self.origin.take() {
            Some(origin) => origin.stop().await,
            None => 0,
        };
        let manifest = match self.manifest_swarm.take() {
            Some(manifest_swarm) => Some((manifest_swarm.size.0, manifest_swarm.origin.stop().await)),
            None => None,
        };
        result.map(|()| Report { manifest, ..self.report(ended, hashing, origin_sent) })
    }

    fn report(self, ended: Instant, hashing: Duration, origin_sent: u64) -> Report {
        let started = self.started.unwrap_or(ended);
        let outcome = |node: Node| match node.stage {
            Stage::Done(done, after) => Outcome::Done {
                after,
                received: done.progress.received,
                sent: done.progress.sent,
                duplicate: done.progress.duplicate,
                corrupt: done.progress.corrupt,
                kept: done.kept,
                action: done.action,
                found: done.found,
            },
            // One launcher may start the workers of several hosts: its output explains only the hosts whose worker
            // never connected.
            Stage::Failed(reason) => {
                let unreached = if node.who.is_none() { node.output.unreached() } else { None };
                Outcome::Failed { reason, unreached }
            }
            _ => Outcome::Failed { reason: "not completed".into(), unreached: None },
        };
        let last = self.nodes.iter().filter_map(|n| match &n.stage {
            Stage::Done(_, after) => Some(*after),
            _ => None,
        });
        let transfer = last.max().unwrap_or_default();
        let served = |n: &Node| n.source_member.map(|_| (n.host.name.clone(), n.progress.served));
        let sources: Vec<_> = self.nodes.iter().filter_map(served).collect();
        let choice = self.choice;
        Report {
            bytes: self.source.as_ref().map_or(0, |s| s.manifest.total_len()),
            files: self.source.as_ref().map_or(0, |s| s.manifest.file_count().into()),
            piece_length: self.source.as_ref().map_or(0, |s| s.manifest.piece_length()),
            hashing,
            algorithm: self.options.algorithm.name(),
            link_rate: self.options.link_rate.unwrap_or(choice.as_ref().map_or(0, |c| c.speed)),
            link_rate_from: match (self.options.link_rate, &choice) {
                (Some(_), _) => LinkRateFrom::Told,
                (None, Some(choice)) if choice.tried => LinkRateFrom::Trial,
                _ => LinkRateFrom::Driver,
            },
            network: choice.map_or_else(String::new, |c| c.name),
            places: self.places,
            gathering: started - self.began,
            transfer,
            origin_sent: origin_sent + sources.iter().map(|(_, sent)| sent).sum::<u64>(),
            sources,
            manifest: None,
            hosts: self
                .nodes
                .into_iter()
                .zip(self.roster.aliases)
                .map(|(n, aliases)| HostReport { name: n.host.name.clone(), aliases, outcome: outcome(n) })
                .collect(),
        }
    }
}
