//! A small site's certificate authority: it issues and revokes the certificates of nodes.

use std::io::Write as _;
use std::path::Path;

use tidecast_event::ca::{Certificate, Issued, Made, Revoked, Shown};
use tidecast_event::{Context as _, Error};
use tidecast_identity::{CERT_LIFETIME, Identity, NodeId, SiteCa};
use tidecast_node::now;

/// Creates an authority in `dir`: its root certificate, its key, an empty revocation list and a trust file.
///
/// # Errors
/// The directory has an authority already, or cannot be written.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let temporary = tempfile::tempdir()?;
/// # let dir = temporary.path().join("ca");
/// tidecast::ca::init(&dir, "Lab of Genomics")?;
/// let (issued, pem) = tidecast::ca::issue(&dir, &"host:node01".parse()?, None, None, None)?;
/// assert!(pem.unwrap_or_default().contains("PRIVATE KEY") && issued.key);
/// tidecast::ca::revoke(&dir, Some("host:node01"))?;
/// assert!(tidecast::ca::show(&dir)?.certificates[0].revoked.is_some());
/// # Ok(())
/// # }
/// ```
pub fn init(dir: &Path, name: &str) -> Result<Made, Error> {
    let ca = SiteCa::init(dir, name, now()).context("cannot create the authority")?;
    Ok(Made {
        name: ca.name().to_owned(),
        certificate: dir.join(SiteCa::CERT),
        crl: dir.join(SiteCa::CRL),
        not_after: ca.not_after(),
    })
}

/// Issues a certificate for the key of `node`, or for a new key. `lifetime`: seconds, by default a year.
///
/// The certificate and the new key are written to `file` (PEM, mode 0600), whole or not at all, if that name is free;
/// else they are returned, and the caller decides: whoever reads the key can act for the identity.
///
/// # Errors
/// `file` is a file or directory that exists; the authority cannot be read or its root has expired; `file` cannot be written.
pub fn issue(
    dir: &Path,
    identity: &Identity,
    node: Option<NodeId>,
    lifetime: Option<u64>,
    file: Option<&Path>,
) -> Result<(Issued, Option<String>), Error> {
    if let Some(path) = file.filter(|path| path.metadata().is_ok_and(|meta| meta.is_file() || meta.is_dir()))
    {
        return Err(Error::usage(format!(
            "{} exists; remove it, or name another file with -o",
            path.display()
        )));
    }
    let lifetime = lifetime.unwrap_or(CERT_LIFETIME);
    let issued =
        SiteCa::open(dir).and_then(|ca| ca.issue(identity, node, lifetime, now())).map_err(Error::fault)?;
    let free = file.filter(|path| path.symlink_metadata().is_err());
    if let Some(path) = free {
        write_private(path, issued.pem.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let pem = free.is_none().then_some(issued.pem);
    let (serial, not_after) = (issued.serial, issued.not_after);
    let (identity, file) = (identity.to_string(), file.map(Path::to_path_buf));
    Ok((Issued { identity, serial, not_after, key: node.is_none(), file }, pem))
}

/// A new file, readable by its owner alone, whole or not at all.
fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let dir = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    Ok(())
}

/// Revokes a certificate by its serial number, or all of an identity (`host:NAME`, `user:NAME`); `None` only renews the
/// date of the revocation list.
///
/// # Errors
/// There is no such certificate, or the authority cannot be read or written.
pub fn revoke(dir: &Path, which: Option<&str>) -> Result<Revoked, Error> {
    let ca = SiteCa::open(dir).map_err(Error::fault)?;
    let revoked = match which {
        Some(which) => ca.revoke(which, now()),
        None => ca.renew_crl(now()).map(|()| Vec::new()),
    };
    Ok(Revoked { revoked: revoked.map_err(Error::fault)?, crl: dir.join(SiteCa::CRL) })
}

/// The authority of `dir`, with all certificates that it issued.
///
/// # Errors
/// The authority cannot be read.
pub fn show(dir: &Path) -> Result<Shown, Error> {
    let ca = SiteCa::open(dir).map_err(Error::fault)?;
    let certificates = ca.certificates().map_err(Error::fault)?.into_iter().map(|cert| Certificate {
        serial: cert.serial,
        identity: cert.identity.to_string(),
        node: cert.node.map(|node| node.to_string()),
        not_after: cert.not_after,
        revoked: cert.revoked,
    });
    Ok(Shown { name: ca.name().to_owned(), not_after: ca.not_after(), certificates: certificates.collect() })
}
