//! The daemon that keeps the certificate authority: it answers nodes that want certificates.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use data_encoding::BASE64;
use parking_lot::Mutex;
use tidecast_identity::{EnrolError, EnrolRequest, NodeId, SiteCa};
use tokio::sync::Semaphore;

use super::files::SiteDir;
use crate::model::message::{Enrolled, Enrolment};
use crate::storage::audit::Audit;

/// Refusals are logged as warnings this far apart.
const QUIET: Duration = Duration::from_secs(10);

/// Issues certificates from the authority below the daemon's directory, if there is one there. One request is worked on at
/// a time: every node that can connect may ask, and each request reads the authority's state.
#[derive(Clone)]
pub(crate) struct Registrar {
    site: SiteDir,
    node: NodeId,
    audit: Arc<Audit>,
    turn: Arc<Semaphore>,
    /// When a refusal was last logged as a warning: any node that can connect causes one.
    warned: Arc<Mutex<Option<Instant>>>,
}

impl Registrar {
    /// For the authority that `site` may have; `node` is this daemon, which invitations name.
    pub(crate) fn new(site: SiteDir, node: NodeId, audit: Arc<Audit>) -> Self {
        Self { site, node, audit, turn: Arc::new(Semaphore::new(1)), warned: Arc::default() }
    }

    /// Answers `node`, whose key TLS has proven; with the payload.
    pub(crate) async fn answer(self, node: NodeId, addr: SocketAddr, wish: Enrolment) -> (Enrolled, Bytes) {
        let refused = |why: String| (Enrolled::Refused { why }, Bytes::new());
        let Ok(turn) = self.turn.clone().acquire_owned().await else {
            return refused("the daemon is stopping".into());
        };
        let this = self.clone();
        let work = move || {
            // Until the work is done, though the one that asked may be gone before.
            let _turn = turn;
            this.work(node, addr, wish)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => refused(why),
            Err(_) => refused("internal error".into()),
        }
    }

    fn work(&self, node: NodeId, addr: SocketAddr, wish: Enrolment) -> Result<(Enrolled, Bytes), String> {
        if !self.site.keeps_authority() {
            return Err("this daemon keeps no certificate authority".into());
        }
        let now = crate::clock::now();
        let ca = SiteCa::open(&self.site.ca()).map_err(|error| self.trouble(&error))?;
        let (what, enrolled) = match &wish {
            Enrolment::Join { request } => {
                let request = BASE64.decode(request.as_bytes()).map_err(|_| "malformed request")?;
                let request = EnrolRequest::from_bytes(&request).map_err(|error| error.to_string())?;
                ("join", ca.enrol(&request, self.node, node, now))
            }
            Enrolment::Renew => ("renew certificate", ca.renew(node, now)),
            Enrolment::List => {
                let (root, crl) = ca.public().map_err(|error| self.trouble(&error))?;
                return Ok((Enrolled::Granted { certificate: None, root }, crl.into()));
            }
        };
        match enrolled {
            Ok(enrolled) => {
                let who = enrolled.identity.to_string();
                tracing::info!(identity = who, %node, %addr, "{what}: certificate issued");
                self.audit.note(&who, what, "", "ok");
                let certificate = Some(enrolled.certificate);
                Ok((Enrolled::Granted { certificate, root: enrolled.root }, enrolled.crl.into()))
            }
            Err(EnrolError::Failed(error)) => Err(self.trouble(&error)),
            Err(error) => {
                self.log_refusal(node, addr, what, &error);
                Err(error.to_string())
            }
        }
    }

    fn log_refusal(&self, node: NodeId, addr: SocketAddr, what: &str, error: &EnrolError) {
        let mut warned = self.warned.lock();
        if warned.is_none_or(|at| at.elapsed() > QUIET) {
            *warned = Some(Instant::now());
            tracing::warn!(%node, %addr, %error, "{what}: refused");
        } else {
            tracing::debug!(%node, %addr, %error, "{what}: refused");
        }
    }

    /// The authority's own trouble is for its log; the other end learns that there is some.
    fn trouble(&self, error: &tidecast_identity::Error) -> String {
        tracing::error!(dir = %self.site.ca().display(), %error, "the certificate authority cannot issue");
        "the certificate authority has an internal error; its log has the cause".into()
    }
}
