//! Verifies the identity of other daemons.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use parking_lot::Mutex;
use tidecast_identity::{Card, Identity, NodeId};

use crate::host::file_stamp::Stamp;
use crate::links::rejections::plain;
use crate::model::message::Hello;
use crate::model::name::is_of_user;

/// The trust files are checked for changes this often: a revocation takes effect within this time.
const LOOK: Duration = Duration::from_secs(2);

/// Clocks that differ by this much, seconds, are named.
const APART: u64 = 60;

/// Why another daemon is not trusted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    #[error(
        "this host trusts no other host: set the site's CA in its configuration (see: tidecast ca --help)"
    )]
    NoTrust,
    #[error("node {0} is not listed, and it presented no card")]
    Unlisted(NodeId),
    #[error("the card is not base64")]
    NotBase64,
    #[error(transparent)]
    Card(#[from] tidecast_identity::CardError),
    #[error("it is named {}, but its certificate is for {proven}", plain(.claimed))]
    NameMismatch { claimed: String, proven: Identity },
}

impl TrustError {
    /// Its card, or the certificate that it was made from, has run out: by now it may have another.
    pub(crate) fn has_expired(&self) -> bool {
        matches!(self, Self::Card(tidecast_identity::CardError::Expired { .. }))
    }

    fn is_about_time(&self) -> bool {
        matches!(self, Self::Card(tidecast_identity::CardError::NotYetValid { .. })) || self.has_expired()
    }

    /// In words; where the time matters, with how far the clocks of the two hosts are apart.
    pub(crate) fn describe(&self, hello: &Hello, ours: &str) -> String {
        let (theirs, now) = (hello.clock, crate::clock::now());
        let apart = theirs.abs_diff(now);
        if !self.is_about_time() || theirs == 0 || apart < APART {
            return self.to_string();
        }
        let (behind, ahead) =
            if theirs > now { (ours, plain(&hello.name)) } else { (&*plain(&hello.name), ours.into()) };
        let apart = tidecast_identity::date::span(apart);
        format!("{self}; the clock of {behind} is {apart} behind the clock of {ahead}: correct the wrong one")
    }
}

/// The daemons that this one trusts: a file that is reloaded when it changes.
pub(crate) struct Trust {
    path: Option<PathBuf>,
    now: Mutex<Read>,
}

struct Read {
    trust: Option<tidecast_identity::Trust>,
    looked: Instant,
    /// Stamps of the files that were loaded, and of those that failed to load, which is logged once.
    taken: Vec<Stamp>,
    refused: Option<Vec<Stamp>>,
}

impl Trust {
    /// Loads the trust file at `path`; without a path no daemon is trusted.
    ///
    /// # Errors
    /// It cannot be read or is not valid.
    pub(crate) fn open(path: Option<PathBuf>) -> Result<Self, tidecast_identity::Error> {
        let trust = path.as_deref().map(tidecast_identity::Trust::read).transpose()?;
        let taken = stamps(trust.as_ref());
        Ok(Self { path, now: Mutex::new(Read { trust, looked: Instant::now(), taken, refused: None }) })
    }

    /// Reads the files again, whether they have changed or not.
    pub(crate) fn read_again(&self) {
        let mut read = self.now.lock();
        read.taken.clear();
        read.refused = None;
        self.read(&mut read);
    }

    /// Whether no other daemon is trusted.
    pub(crate) fn trusts_none(&self) -> bool {
        self.path.is_none()
    }

    /// The identity of `node`, which sent `hello`.
    pub(crate) fn judge(&self, hello: &Hello, node: NodeId) -> Result<Identity, TrustError> {
        let identity = self.identity(&hello.card, node, false)?;
        if is_called(&identity, hello) {
            return Ok(identity);
        }
        Err(TrustError::NameMismatch { claimed: hello.name.clone(), proven: identity })
    }

    /// The identity that a card proves for the holder of `node`'s key; `lapsed`: accept a card that has
    /// expired since. A revoked certificate is rejected either way.
    pub(crate) fn identity(&self, card: &str, node: NodeId, lapsed: bool) -> Result<Identity, TrustError> {
        let mut read = self.now.lock();
        self.look_again(&mut read);
        let trust = read.trust.as_ref().ok_or(TrustError::NoTrust)?;
        if card.is_empty() {
            return trust.listed(node).cloned().ok_or(TrustError::Unlisted(node));
        }
        let card = Card::decode(&BASE64.decode(card.as_bytes()).map_err(|_| TrustError::NotBase64)?)?;
        let now = crate::clock::now();
        let at = if lapsed { now.min(card.not_after.saturating_sub(1)) } else { now };
        Ok(trust.verify(&card, node, at)?.identity)
    }

    /// Fingerprints of the trusted roots, which the daemons of a site share.
    pub(crate) fn roots(&self) -> Vec<[u8; 32]> {
        self.now.lock().trust.as_ref().map(tidecast_identity::Trust::roots).unwrap_or_default()
    }

    fn look_again(&self, read: &mut Read) {
        if read.looked.elapsed() > LOOK {
            self.read(read);
        }
    }

    fn read(&self, read: &mut Read) {
        let Some(path) = self.path.as_deref() else { return };
        read.looked = Instant::now();
        let there = stamps(read.trust.as_ref());
        if there == read.taken {
            return;
        }
        match tidecast_identity::Trust::read(path) {
            Ok(trust) => {
                // A file that changes meanwhile has another stamp at the next look.
                let taken = if trust.files().len() == there.len() { there } else { Vec::new() };
                (read.trust, read.taken, read.refused) = (Some(trust), taken, None);
            }
            Err(error) => {
                if read.refused.as_ref() != Some(&there) {
                    tracing::error!(%error, "cannot use the new trust file; the old one stays in use");
                }
                read.refused = Some(there);
            }
        }
    }
}

/// Stamps of all trust files.
fn stamps(trust: Option<&tidecast_identity::Trust>) -> Vec<Stamp> {
    trust.map(|trust| trust.files().iter().map(|file| Stamp::of(file)).collect()).unwrap_or_default()
}

/// Whether a daemon may use the name in its hello: a host's daemon is named as its host, a user's USER.HOST.
fn is_called(identity: &Identity, hello: &Hello) -> bool {
    match identity {
        Identity::Host(host) => hello.name == *host && hello.user.is_none(),
        Identity::User(user) => is_of_user(&hello.name, user) && hello.user.as_ref() == Some(user),
    }
}
