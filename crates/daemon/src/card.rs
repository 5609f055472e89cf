//! This daemon's own card, made from the certificate that the site gave it, and made anew before it ends.

use std::path::Path;

use data_encoding::BASE64;
use tidecast_identity::{Holder, Identity, NodeId, NodeKey};

use crate::error::Error;
use crate::peer::message::Hello;
use crate::trust::{Distrust, Trust};

/// How long a card is good for, seconds: it outlives a revoked certificate nowhere, as lists are looked at anyway.
const LIFETIME: u64 = 24 * 3600;
/// Made anew this often, seconds.
pub(crate) const RENEW: u64 = LIFETIME / 4;

/// It is said that a certificate ends when it has so long left, seconds.
const SOON: u64 = 7 * 24 * 3600;

/// The card in base64; empty without a certificate.
///
/// # Errors
/// The file cannot be read, or nobody would believe what it holds at this time.
pub(crate) fn make(certificate: Option<&Path>, key: &NodeKey) -> Result<String, Error> {
    let Some(path) = certificate else { return Ok(String::new()) };
    let pem = std::fs::read(path).map_err(|source| Error::Dir { path: path.to_owned(), source })?;
    if pem.windows(11).any(|part| part == b"PRIVATE KEY") {
        tidecast_identity::read_private(path)?;
    }
    let (holder, now) = (Holder::from_pem(&pem, key)?, crate::now());
    let unfit = |why: String| Error::Certificate { path: path.to_owned(), why };
    let (from, until) = holder.validity()?;
    if now >= until {
        return Err(unfit("it has expired, or one of its chain has: have a new one issued".into()));
    }
    if now < from {
        return Err(unfit("it is not yet valid: look at the clock of this host".into()));
    }
    if until - now < SOON {
        let hours = (until - now) / 3600;
        tracing::warn!(path = %path.display(), "this daemon's certificate ends in {} d {} h", hours / 24, hours % 24);
    }
    Ok(BASE64.encode(&holder.card(key.id(), now, LIFETIME)?.encode()))
}

/// Looks at this daemon as another one of its site will.
///
/// # Errors
/// Nobody will ever believe it by this certificate, under this name.
pub(crate) fn check(path: &Path, trust: &Trust, hello: &Hello, node: NodeId) -> Result<(), Error> {
    match trust.judge(hello, node) {
        Ok(_) | Err(Distrust::Nobody) => Ok(()),
        Err(Distrust::Pretender { said, proven }) => {
            let fits = match &proven {
                Identity::Host(host) => format!("{host}, and run by root"),
                Identity::User(user) => format!("{user}.HOST, and run by {user}"),
            };
            let why =
                format!("it is for {proven}, whose daemon is called {fits} (--name), but this one is {said}");
            let by = hello.user.as_ref().map_or(String::new(), |user| format!(" of {user}"));
            Err(Error::Certificate { path: path.to_owned(), why: why + &by })
        }
        // Others may believe other roots.
        Err(why) => {
            tracing::warn!(path = %path.display(), %why, "this daemon would not believe another one with its certificate");
            Ok(())
        }
    }
}
