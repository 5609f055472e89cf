//! The daemon that keeps the certificate authority: it answers nodes that want certificates.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::BASE64;
use tidecast_identity::{EnrolError, EnrolRequest, NodeId, SiteCa};
use tokio::sync::Semaphore;

use super::files::SiteDir;
use crate::model::message::{Enrolled, Enrolment};
use crate::storage::audit::Audit;

/// Issues certificates from the authority below the daemon's directory, if there is one there. One request is worked on at
/// a time: whoever can connect may ask, and each reads the authority's state.
#[derive(Clone)]
pub(crate) struct Registrar {
    site: SiteDir,
    node: NodeId,
    audit: Arc<Audit>,
    turn: Arc<Semaphore>,
}

impl Registrar {
    /// For the authority that `site` may have; `node` is this daemon, which invitations name.
    pub(crate) fn new(site: SiteDir, node: NodeId, audit: Arc<Audit>) -> Self {
        Self { site, node, audit, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Answers `node`, whose key TLS has proven; with the payload.
    pub(crate) async fn answer(self, node: NodeId, addr: SocketAddr, wish: Enrolment) -> (Enrolled, Bytes) {
        let refused = |why: String| (Enrolled::Refused { why }, Bytes::new());
        let Ok(_turn) = self.turn.clone().acquire_owned().await else {
            return refused("the daemon is stopping".into());
        };
        let this = self.clone();
        match tokio::task::spawn_blocking(move || this.work(node, addr, wish)).await {
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
                tracing::warn!(%node, %addr, %error, "{what}: refused");
                Err(error.to_string())
            }
        }
    }

    /// The authority's own trouble is for its log; the other end learns that there is some.
    fn trouble(&self, error: &tidecast_identity::Error) -> String {
        tracing::error!(dir = %self.site.ca().display(), %error, "the certificate authority cannot issue");
        "the certificate authority has an internal error; its log has the cause".into()
    }
}
