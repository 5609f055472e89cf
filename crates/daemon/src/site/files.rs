//! The files of a host that has joined a site: below the daemon's directory, so that the daemon can renew them.
//!
//! `site/trust.toml`, `site/ca.crt` and `site/ca.crl` name the trusted authority, `site/host.pem` is its
//! certificate, and `site/authority.json` names the node that renews it. `ca/` is the authority itself, on
//! the one host that keeps it. `authority.json` is written last: a host has joined when it is there.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidecast_identity::{Enrolled, Identity, NodeId, SiteCa};
use tidecast_paths::Root;

use super::error::SiteError;

/// The directory of these files, below the daemon's.
const SITE: &str = "site";
const CA: &str = "ca";
/// The daemon's certificate.
pub(crate) const CERTIFICATE: &str = "host.pem";
const AUTHORITY: &str = "authority.json";
/// No file of a site is longer, bytes: a revocation list of many certificates.
const MAX_FILE: u64 = 16 << 20;

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

/// The site's files of a daemon whose directory is `dir`.
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
        self.dir.join(SITE)
    }

    /// The directory of the certificate authority, on the host that keeps it.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.dir.join(CA)
    }

    /// Whether this host keeps the authority.
    #[must_use]
    pub fn keeps_authority(&self) -> bool {
        // An interrupted foundation leaves the directory alone.
        Root::open(&self.dir).is_ok_and(|root| root.is_file(Path::new(CA).join(SiteCa::ROOT)))
    }

    /// The file of trusted roots and nodes.
    #[must_use]
    pub fn trust(&self) -> PathBuf {
        let (name, _) = SiteCa::TRUST;
        self.path().join(name)
    }

    /// The daemon's certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.path().join(CERTIFICATE)
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
        let Some(bytes) = self.read(AUTHORITY)? else { return Ok(None) };
        let damaged = |why: String| self.damaged(AUTHORITY, why);
        let record: Record = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        let node = record.node.parse().map_err(|error| damaged(format!("{error}")))?;
        let identity = record.identity.parse().map_err(|_| damaged("the identity does not parse".into()))?;
        Ok(Some(Authority { node, addresses: record.addresses, identity }))
    }

    /// Writes all files; each appears whole, and the record that makes the host a joined one comes last.
    pub(crate) fn write(&self, enrolled: &Enrolled, authority: &Authority) -> Result<(), SiteError> {
        Root::open(&self.dir)
            .and_then(|root| root.ensure_dir(SITE, 0o700))
            .map_err(|source| self.failed(source))?;
        self.put(SiteCa::CERT, enrolled.root.as_bytes())?;
        self.put(SiteCa::CRL, enrolled.crl.as_bytes())?;
        // The host that keeps the authority reads its list itself: a revocation counts there at once.
        let (name, trust) = SiteCa::TRUST;
        let is_kept_here = authority.addresses.is_empty();
        let trust = if is_kept_here { trust.replace("\"ca.", "\"../ca/ca.") } else { trust.to_owned() };
        self.put(name, trust.as_bytes())?;
        self.put(CERTIFICATE, enrolled.certificate.as_bytes())?;
        let record = Record {
            node: authority.node.to_string(),
            addresses: authority.addresses.clone(),
            identity: authority.identity.to_string(),
        };
        let record = serde_json::to_vec_pretty(&record).map_err(|e| SiteError::Invalid(e.to_string()))?;
        self.put(AUTHORITY, &record)
    }

    /// The content of a file; None if the file is absent.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SiteError> {
        let read = || {
            let root = Root::open(&self.dir)?;
            let path = Path::new(SITE).join(name);
            match root.look(&path)? {
                Some(there) if there.len <= MAX_FILE => root.read(&path).map(Some),
                Some(_) => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
                None => Ok(None),
            }
        };
        match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map_err(|error| self.damaged(name, error.to_string())),
        }
    }

    /// Puts a file in place, whole and durably. One that is the same already stays, and is not read again by the daemon.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), SiteError> {
        if self.read(name).is_ok_and(|there| there.is_some_and(|there| there == bytes)) {
            return Ok(());
        }
        let path = Path::new(SITE).join(name);
        Root::open(&self.dir)
            .and_then(|root| root.write_whole(&path, bytes, 0o600).and_then(|()| root.sync(SITE)))
            .map_err(|source| self.failed(source))
    }

    pub(crate) fn damaged(&self, name: &str, why: String) -> SiteError {
        SiteError::Damaged { path: self.path().join(name), why }
    }

    fn failed(&self, source: io::Error) -> SiteError {
        SiteError::Dir(crate::Error::Dir { path: self.path(), source })
    }
}
