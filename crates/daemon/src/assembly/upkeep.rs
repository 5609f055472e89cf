//! Periodic tasks.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::parts::Daemon;
use crate::links::certificate;
use crate::model::error::Error;
use crate::model::message::Hello;

/// The store is looked over this often.
const SWEEP: Duration = Duration::from_secs(5);

/// Until the task is ended. When `hangups` changes, certificate and trust are read again.
pub(super) async fn keep(daemon: Arc<Daemon>, mut hangups: watch::Receiver<u64>) {
    let mut tick = tokio::time::interval(SWEEP);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let asked = tokio::select! {
            _ = tick.tick() => false,
            Ok(()) = hangups.changed() => true,
        };
        if asked {
            tracing::info!("reading certificate, key, trust and revocation lists again");
            daemon.links.trust().read_again();
        }
        daemon.renew_card(asked);
        daemon.app.uploads.forget_stale().await;
        daemon.limits.adapt_to_jobs(&daemon.store.depot);
        daemon.end_if_idle();
        daemon.election.look().await;
        daemon.swarms.rest().await;
        daemon.swarms.expel(&daemon.links.recheck_peers());
        let swept = daemon.store.on_disk(|depot| depot.sweep(crate::clock::now()).map_err(Error::from)).await;
        match swept {
            Ok(evicted) => {
                if !evicted.gone.is_empty() {
                    daemon.store.changed();
                }
                for cache in evicted.gone {
                    daemon.audit.note("tidecast", "evict", &cache.to_string(), "ok");
                }
            }
            Err(error) => tracing::error!(why = error.why, "cannot evict expired caches"),
        }
    }
}

impl Daemon {
    /// Ends the daemon if it has been idle for the configured time.
    fn end_if_idle(&self) {
        let Some(patience) = self.config.idle else { return };
        let at_work = self.store.depot.in_use(crate::clock::now())
            || !self.requests.under_way(|_| true).is_empty()
            || self.swarms.any();
        if at_work {
            self.activity.asked();
        } else {
            self.activity.rest(patience);
        }
    }

    fn renew_card(&self, asked: bool) {
        let fits = |card: &str| {
            let hello = Hello { card: card.to_owned(), ..self.links.hello() };
            let path = self.config.certificate.as_deref().unwrap_or(Path::new(""));
            certificate::check(path, self.links.trust(), &hello, self.key.id())
        };
        if let Some(card) = self.certificate.renew(asked, fits) {
            self.links.set_card(card);
        }
    }
}
