//! The files of a host that has joined a site: below the daemon's directory, so that the daemon can renew them.
//!
//! `site/trust.toml`, `site/ca.crt` and `site/ca.crl` say whom the daemon trusts, `site/host.pem` is its certificate, and
//! `site/authority.json` names the node that renews it. `ca/` is the authority itself, on the one host that keeps it.
//! `authority.json` is written last: a host has joined when it is there.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidecast_identity::{Enrolled, Identity, NodeId, SiteCa, replace_private};

use super::error::SiteError;

const AUTHORITY: &str = "authority.json";

/// The node that issues certificates, as a host that has joined remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) node: NodeId,
    /// Where it was reached, the best address first; empty on the host that keeps it.
    pub(crate) addresses: Vec<SocketAddr>,
    /// The host or user that this node is.
    pub(crate) identity: Identity,
}

#[derive(Serialize, Deserialize)]
struct Record {
    node: String,
    addresses: Vec<SocketAddr>,
    identity: String,
}

/// What a daemon whose directory is `dir` has of its site.
#[derive(Clone, Debug)]
pub struct SiteDir {
    dir: PathBuf,
}

impl SiteDir {
    /// Below the directory of a daemon.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The directory of these files.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join("site")
    }

    /// The directory of the certificate authority, on the host that keeps it.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca")
    }

    /// The file that says whom the daemon trusts.
    #[must_use]
    pub fn trust(&self) -> PathBuf {
        self.path().join(SiteCa::TRUST.0)
    }

    /// The daemon's certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.path().join("host.pem")
    }

    pub(crate) fn crl(&self) -> PathBuf {
        self.path().join(SiteCa::CRL)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path().join(SiteCa::CERT)
    }

    /// The host or user that this node became by joining, and the address of the daemon that keeps the authority, if that
    /// is another host; None if it has not joined.
    ///
    /// # Errors
    /// The record of it is damaged.
    pub fn joined(&self) -> Result<Option<(Identity, Option<SocketAddr>)>, SiteError> {
        Ok(self.authority()?.map(|authority| (authority.identity, authority.addresses.first().copied())))
    }

    pub(crate) fn authority(&self) -> Result<Option<Authority>, SiteError> {
        let path = self.path().join(AUTHORITY);
        let damaged = |why: String| SiteError::Damaged { path: path.clone(), why };
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(damaged(error.to_string())),
        };
        let record: Record = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        let node = record.node.parse().map_err(|error| damaged(format!("{error}")))?;
        let identity = record.identity.parse().map_err(|_| damaged("the identity does not parse".into()))?;
        Ok(Some(Authority { node, addresses: record.addresses, identity }))
    }

    /// Writes all files; each appears whole, and the record that makes the host a joined one comes last.
    pub(crate) fn write(&self, enrolled: &Enrolled, authority: &Authority) -> Result<(), SiteError> {
        let dir = self.path();
        std::fs::create_dir_all(&dir)
            .map_err(|source| crate::Error::Dir { path: dir.clone(), source })
            .map_err(SiteError::Dir)?;
        replace_private(&self.root(), enrolled.root.as_bytes())?;
        replace_private(&self.crl(), enrolled.crl.as_bytes())?;
        // The host that keeps the authority reads its list itself: a revocation counts there at once.
        let (_, trust) = SiteCa::TRUST;
        let is_kept_here = authority.addresses.is_empty();
        let trust = if is_kept_here { trust.replace("\"ca.", "\"../ca/ca.") } else { trust.to_owned() };
        replace_private(&self.trust(), trust.as_bytes())?;
        replace_private(&self.certificate(), enrolled.certificate.as_bytes())?;
        let record = Record {
            node: authority.node.to_string(),
            addresses: authority.addresses.clone(),
            identity: authority.identity.to_string(),
        };
        let record = serde_json::to_vec_pretty(&record).map_err(|e| SiteError::Invalid(e.to_string()))?;
        Ok(replace_private(&dir.join(AUTHORITY), &record)?)
    }
}
