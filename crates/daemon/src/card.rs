//! This daemon's own card, made from the certificate that the site gave it, and made anew before it ends.

use std::path::Path;

use data_encoding::BASE64;
use tidecast_identity::{Holder, NodeKey};

use crate::error::Error;

/// How long a card is good for, seconds: it outlives a revoked certificate nowhere, as lists are looked at anyway.
const LIFETIME: u64 = 24 * 3600;
/// Made anew this often, seconds.
pub(crate) const RENEW: u64 = LIFETIME / 4;

/// The card in base64; empty without a certificate.
pub(crate) fn make(certificate: Option<&Path>, key: &NodeKey) -> Result<String, Error> {
    let Some(path) = certificate else { return Ok(String::new()) };
    let pem = std::fs::read(path).map_err(|source| Error::Dir { path: path.to_owned(), source })?;
    let card = Holder::from_pem(&pem, key)?.card(key.id(), crate::now(), LIFETIME)?;
    Ok(BASE64.encode(&card.encode()))
}
