//! This daemon's own card, made from the certificate that the site gave it: made again before it ends, and when the
//! certificate's file has changed. A certificate that cannot serve replaces none that can.

use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use parking_lot::Mutex;
use tidecast_identity::date::{span, utc};
use tidecast_identity::{Holder, Identity, NodeId, NodeKey};

use crate::host::file_stamp::Stamp;
use crate::links::trust::{Trust, TrustError};
use crate::model::error::Error;
use crate::model::message::Hello;

/// Lifetime of a card, seconds. It does not prolong a revoked certificate: revocation lists are checked in
/// any case.
const LIFETIME: u64 = 24 * 3600;
/// Made again this often, seconds.
const RENEW: u64 = LIFETIME / 4;

/// The expiry of a certificate is logged when it has this long left, seconds; while the daemon runs, also a
/// third of its lifetime at most, so that certificates of one hour do not warn at every renewal.
const SOON: u64 = 7 * 24 * 3600;

/// The site's certificate for this daemon.
pub(crate) struct Certificate {
    path: Option<PathBuf>,
    key: NodeKey,
    now: Mutex<Now>,
}

struct Now {
    holder: Option<Holder>,
    /// Stamps of the file that was loaded, and of one that was rejected, which is logged once.
    taken: Stamp,
    refused: Option<Stamp>,
    made: u64,
}

impl Certificate {
    /// Opens the certificate; with its first card in base64, empty without a certificate.
    ///
    /// # Errors
    /// The file cannot be read, or its certificate cannot authenticate anyone at this time.
    pub(crate) fn open(path: Option<PathBuf>, key: NodeKey) -> Result<(Self, String), Error> {
        let taken = path.as_deref().map_or_else(Stamp::default, Stamp::of);
        let (holder, card) = match path.as_deref() {
            Some(path) => {
                let (holder, card) = read(path, &key)?;
                warn_before_end(path, &holder, 1);
                (Some(holder), card)
            }
            None => (None, String::new()),
        };
        let now = Now { holder, taken, refused: None, made: crate::clock::now() };
        Ok((Self { path, key, now: Mutex::new(now) }, card))
    }

    /// A new card, if it is time for one: the file has changed, or the last card is old. `asked`: an administrator wants the
    /// file read in any case. `fits` judges a new certificate; one that is not taken is tried again.
    pub(crate) fn renew(&self, asked: bool, fits: impl Fn(&str) -> Result<(), Error>) -> Option<String> {
        let path = self.path.as_deref()?;
        let mut state = self.now.lock();
        let stamp = Stamp::of(path);
        if asked || stamp != state.taken {
            let read = read(path, &self.key).and_then(|(holder, card)| fits(&card).map(|()| (holder, card)));
            match read {
                Ok((holder, card)) => {
                    warn_before_end(path, &holder, 3);
                    let until = holder.validity().map_or(0, |(_, until)| until);
                    tracing::info!(path = %path.display(), "reloaded the certificate, valid until {}", utc(until));
                    *state =
                        Now { holder: Some(holder), taken: stamp, refused: None, made: crate::clock::now() };
                    return Some(card);
                }
                Err(error) => {
                    if asked || state.refused.as_ref() != Some(&stamp) {
                        let until = state.holder.as_ref().and_then(|holder| holder.validity().ok());
                        let until = utc(until.map_or(0, |(_, until)| until));
                        tracing::error!(%error, "cannot use the new certificate; the old one stays in use until {until}");
                    }
                    state.refused = Some(stamp);
                }
            }
        }
        if crate::clock::now() < state.made + RENEW {
            return None;
        }
        state.made = crate::clock::now();
        warn_before_end(path, state.holder.as_ref()?, 3);
        let card = card(path, state.holder.as_ref()?, &self.key);
        card.inspect_err(|error| tracing::error!(%error, "cannot renew this daemon's card")).ok()
    }
}

fn read(path: &Path, key: &NodeKey) -> Result<(Holder, String), Error> {
    let unfit = |why: String| Error::Certificate { path: path.to_owned(), why };
    let pem = std::fs::read(path).map_err(|source| Error::Dir { path: path.to_owned(), source })?;
    if pem.windows(11).any(|part| part == b"PRIVATE KEY") {
        tidecast_identity::read_private(path)?;
    }
    let holder = Holder::from_pem(&pem, key).map_err(|error| unfit(error.to_string()))?;
    let card = card(path, &holder, key)?;
    Ok((holder, card))
}

fn warn_before_end(path: &Path, holder: &Holder, part: u64) {
    let Ok((from, until)) = holder.validity() else { return };
    let left = until.saturating_sub(crate::clock::now());
    if left < SOON.min((until - from) / part) {
        tracing::warn!(path = %path.display(), "this daemon's certificate expires in {}", span(left));
    }
}

fn card(path: &Path, holder: &Holder, key: &NodeKey) -> Result<String, Error> {
    let unfit = |why: String| Error::Certificate { path: path.to_owned(), why };
    let (now, (from, until)) = (crate::clock::now(), holder.validity()?);
    let clock = utc(now);
    if now >= until {
        let ago = span(now - until);
        return Err(unfit(format!(
            "it, or a certificate of its chain, has expired: valid until {}, {ago} before the clock of this host ({clock}); have a new one issued",
            utc(until)
        )));
    }
    if now < from {
        let behind = span(from - now);
        return Err(unfit(format!(
            "not valid before {}; the clock of this host shows {clock} and is probably {behind} behind: set it",
            utc(from)
        )));
    }
    let card = holder.card(key.id(), now, LIFETIME).map_err(|error| unfit(error.to_string()))?;
    Ok(BASE64.encode(&card.encode()))
}

/// Checks this daemon's certificate as another daemon of its site will check it.
///
/// # Errors
/// No daemon can accept this certificate for this name.
pub(crate) fn check(path: &Path, trust: &Trust, hello: &Hello, node: NodeId) -> Result<(), Error> {
    match trust.judge(hello, node) {
        Ok(_) | Err(TrustError::NoTrust) => Ok(()),
        Err(TrustError::NameMismatch { claimed, proven }) => {
            let fits = match &proven {
                Identity::Host(host) => format!("{host} and run by root"),
                Identity::User(user) => {
                    format!("{}.HOST and run by {user}", crate::model::name::of_user(user))
                }
            };
            let why = format!(
                "it is for {proven}, whose daemon must be named {fits} (--name); this daemon is {claimed}"
            );
            let by = hello.user.as_ref().map_or(String::new(), |user| format!(" of {user}"));
            Err(Error::Certificate { path: path.to_owned(), why: why + &by })
        }
        // Other daemons may trust other roots.
        Err(why) => {
            tracing::warn!(path = %path.display(), %why, "this daemon would reject its own certificate if another daemon presented it");
            Ok(())
        }
    }
}
