//! For whom another daemon speaks.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use data_encoding::BASE64;
use parking_lot::Mutex;
use tidecast_identity::{Card, Identity, NodeId};

use crate::peer::message::Hello;
use crate::peer::refusals::plain;

/// The files of trust are looked at again after so long: a revocation takes effect within it.
const LOOK: Duration = Duration::from_secs(2);

/// Why another daemon is not believed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Distrust {
    #[error("this host trusts no other: name the site's CA in its configuration (tidecast ca --help)")]
    Nobody,
    #[error("its node {0} is not listed, and it shows no card")]
    Unlisted(NodeId),
    #[error("its card is not base64")]
    Garbled,
    #[error(transparent)]
    Card(#[from] tidecast_identity::CardError),
    #[error("it calls itself {}, but speaks for {proven}", plain(.said))]
    Pretender { said: String, proven: Identity },
}

/// Whom this daemon believes: a file that is read again when it changes.
pub(crate) struct Trust {
    path: Option<PathBuf>,
    now: Mutex<Read>,
}

struct Read {
    trust: Option<tidecast_identity::Trust>,
    looked: Instant,
    changed: Option<SystemTime>,
}

impl Trust {
    /// Believes as `path` says; nobody without one.
    ///
    /// # Errors
    /// It cannot be read or makes no sense.
    pub(crate) fn open(path: Option<PathBuf>) -> Result<Self, tidecast_identity::Error> {
        let changed = path.as_deref().and_then(newest);
        let trust = path.as_deref().map(tidecast_identity::Trust::read).transpose()?;
        Ok(Self { path, now: Mutex::new(Read { trust, looked: Instant::now(), changed }) })
    }

    /// Whether it trusts nobody at all.
    pub(crate) fn is_nobody(&self) -> bool {
        self.path.is_none()
    }

    /// For whom `node`, which said `hello`, speaks.
    pub(crate) fn judge(&self, hello: &Hello, node: NodeId) -> Result<Identity, Distrust> {
        let identity = self.identity(&hello.card, node, false)?;
        if is_called(&identity, hello) {
            return Ok(identity);
        }
        Err(Distrust::Pretender { said: hello.name.clone(), proven: identity })
    }

    /// For whom the holder of `node`'s key speaks by a card; `lapsed`: spoke while the card was good, which may have ended
    /// since. What was revoked counts for nothing either way.
    pub(crate) fn identity(&self, card: &str, node: NodeId, lapsed: bool) -> Result<Identity, Distrust> {
        let mut read = self.now.lock();
        self.look_again(&mut read);
        let trust = read.trust.as_ref().ok_or(Distrust::Nobody)?;
        if card.is_empty() {
            return trust.listed(node).cloned().ok_or(Distrust::Unlisted(node));
        }
        let card = Card::decode(&BASE64.decode(card.as_bytes()).map_err(|_| Distrust::Garbled)?)?;
        let now = crate::now();
        let at = if lapsed { now.min(card.not_after.saturating_sub(1)) } else { now };
        Ok(trust.verify(&card, node, at)?.identity)
    }

    /// Fingerprints of the roots that are believed: what the daemons of a site have in common.
    pub(crate) fn roots(&self) -> Vec<[u8; 32]> {
        self.now.lock().trust.as_ref().map(tidecast_identity::Trust::roots).unwrap_or_default()
    }

    fn look_again(&self, read: &mut Read) {
        let Some(path) = self.path.as_deref().filter(|_| read.looked.elapsed() > LOOK) else { return };
        read.looked = Instant::now();
        let changed = newest(path);
        if changed == read.changed {
            return;
        }
        match tidecast_identity::Trust::read(path) {
            Ok(trust) => (read.trust, read.changed) = (Some(trust), changed),
            Err(error) => {
                tracing::error!(%error, "the new list of whom to trust is not taken: the old one stands")
            }
        }
    }
}

/// When anything beside the file of trust changed last: it names others in its directory.
fn newest(path: &std::path::Path) -> Option<SystemTime> {
    let beside = std::fs::read_dir(path.parent()?).ok()?;
    beside.filter_map(|entry| entry.ok()?.metadata().ok()?.modified().ok()).max()
}

/// Whether a daemon may have the name that it says: a host's daemon is called as its host, a user's USER.HOST.
fn is_called(identity: &Identity, hello: &Hello) -> bool {
    match identity {
        Identity::Host(host) => hello.name == *host && hello.user.is_none(),
        Identity::User(user) => {
            let rest = hello.name.strip_prefix(user.as_str()).and_then(|rest| rest.strip_prefix('.'));
            rest.is_some_and(|host| !host.is_empty()) && hello.user.as_ref() == Some(user)
        }
    }
}
