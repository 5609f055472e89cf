//! How a daemon that has joined a site keeps its certificate and the revocation list fresh.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidecast_identity::{CLOCK_SKEW, Enrolled, Holder, NodeKey, SiteCa, root_hash};
use tokio::time::sleep;

use super::error::SiteError;
use super::files::{Authority, CERTIFICATE, SiteDir};
use super::join::ask;
use crate::links::peers::Links;
use crate::links::wire::Wire;
use crate::model::message::Enrolment;

/// The revocation list is fetched this often: a revocation reaches every host of the site within this time.
const LIST: Duration = Duration::from_secs(300);
const LEAST: Duration = Duration::from_secs(1);
/// A certificate is renewed in the last third of its time, and looked at in every tenth.
const DUE: u64 = 3;
const LOOKS: u64 = 10;

/// Renews by the authority that the host joined by. The daemon reads the files again when they change.
pub(crate) struct Renewal {
    pub(crate) site: SiteDir,
    pub(crate) key: NodeKey,
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) links: Arc<Links>,
}

/// The validity of a certificate, seconds since 1970.
struct Validity {
    from: u64,
    until: u64,
}

impl Validity {
    /// Without the time before now by which a certificate begins early, as clocks differ.
    fn lifetime(&self) -> u64 {
        self.until.saturating_sub(self.from).saturating_sub(CLOCK_SKEW)
    }

    fn is_due(&self, now: u64) -> bool {
        self.until.saturating_sub(now) < self.lifetime() / DUE
    }

    /// The time between two looks: minutes, or seconds for a certificate of a minute.
    fn pause(&self) -> Duration {
        Duration::from_secs(self.lifetime() / LOOKS).clamp(LEAST, LIST)
    }
}

impl Renewal {
    /// Until the task is ended; at once on a host that has joined no site.
    pub(crate) async fn keep(self) {
        let authority = match self.site.authority() {
            Ok(Some(authority)) => authority,
            Ok(None) => return,
            Err(error) => return tracing::error!(%error, "the certificate cannot be renewed"),
        };
        loop {
            sleep(self.validity().map_or(LIST, |validity| validity.pause())).await;
            if let Err(error) = self.renew(&authority).await {
                tracing::warn!(%error, "cannot renew the certificate or the revocation list; trying again");
            }
        }
    }

    /// A certificate, if it is due; the newest revocation list in any case.
    async fn renew(&self, authority: &Authority) -> Result<(), SiteError> {
        let is_due = self.validity()?.is_due(crate::clock::now());
        if authority.node == self.key.id() {
            return self.renew_here(authority, is_due).await;
        }
        let root = self.root()?;
        let wish = if is_due { Enrolment::Renew } else { Enrolment::List };
        let answered = ask(self.wire.clone(), authority.node, &self.addresses(authority), &wish).await?;
        if is_due {
            let enrolled = answered.files(authority.identity.clone(), &root, &self.key)?;
            return self.store(enrolled).await;
        }
        answered.check_root(&root)?;
        let (site, crl) = (self.site.clone(), answered.crl);
        blocking(move || site.put(SiteCa::CRL, crl.as_bytes())).await
    }

    /// This daemon keeps the authority itself.
    async fn renew_here(&self, authority: &Authority, is_due: bool) -> Result<(), SiteError> {
        let (site, node) = (self.site.clone(), authority.node);
        let work = move || -> Result<Option<Enrolled>, SiteError> {
            let (ca, now) = (SiteCa::open(&site.ca())?, crate::clock::now());
            ca.keep_crl_fresh(now)?;
            let renewed = is_due.then(|| ca.renew(node, now)).transpose();
            renewed.map_err(|error| SiteError::Refused(error.to_string()))
        };
        match blocking(work).await? {
            Some(enrolled) => self.store(enrolled).await,
            None => Ok(()),
        }
    }

    async fn store(&self, enrolled: Enrolled) -> Result<(), SiteError> {
        let site = self.site.clone();
        let until = tidecast_identity::date::utc(enrolled.not_after);
        blocking(move || {
            site.put(SiteCa::CRL, enrolled.crl.as_bytes())?;
            site.put(CERTIFICATE, enrolled.certificate.as_bytes())
        })
        .await?;
        tracing::info!("the certificate was renewed: valid until {until}");
        Ok(())
    }

    /// Where the authority may be: where a channel to it is up, where it says that it listens, where it was.
    fn addresses(&self, authority: &Authority) -> Vec<SocketAddr> {
        let mut addresses = Vec::new();
        if let Some(link) = self.links.to(authority.node) {
            addresses.extend(link.peer.called.then_some(link.peer.addr));
            addresses.extend(&link.peer.hello.addresses);
        }
        addresses.extend(&authority.addresses);
        let mut known = std::collections::HashSet::new();
        addresses.retain(|addr| known.insert(*addr));
        addresses
    }

    fn validity(&self) -> Result<Validity, SiteError> {
        let (from, until) = Holder::from_pem(&self.file(CERTIFICATE)?, &self.key)?.validity()?;
        Ok(Validity { from, until })
    }

    /// SHA-256 of the site's root certificate.
    fn root(&self) -> Result<[u8; 32], SiteError> {
        let pem = String::from_utf8(self.file(SiteCa::CERT)?).unwrap_or_default();
        root_hash(&pem).ok_or_else(|| self.site.damaged(SiteCa::CERT, "it holds no certificate".into()))
    }

    fn file(&self, name: &str) -> Result<Vec<u8>, SiteError> {
        self.site.read(name)?.ok_or_else(|| self.site.damaged(name, "it is missing".into()))
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SiteError> + Send + 'static,
) -> Result<T, SiteError> {
    let failed = |_| SiteError::Invalid("a thread failed".into());
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_year_is_renewed_in_its_last_third() {
        let day = 24 * 3600;
        let year = Validity { from: 0, until: CLOCK_SKEW + 365 * day };
        assert_eq!(year.pause(), LIST);
        assert!(!year.is_due(240 * day) && year.is_due(250 * day) && year.is_due(400 * day));
        let minute = Validity { from: 0, until: CLOCK_SKEW + 60 };
        assert_eq!(
            (minute.pause(), minute.is_due(CLOCK_SKEW + 39), minute.is_due(CLOCK_SKEW + 41)),
            (Duration::from_secs(6), false, true)
        );
        assert_eq!(Validity { from: 5, until: 5 }.pause(), LEAST);
    }
}
