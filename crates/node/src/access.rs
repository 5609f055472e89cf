//! The right of a node to join: open BitTorrent, a private swarm as owner or with a ticket, an SSL torrent.

use std::net::SocketAddr;
use std::path::Path;

use tidecast_event::{Context as _, Error, Fault as _};
use tidecast_identity::ssl_torrent::{SslPeer, SslRoot, SslTorrent};
use tidecast_identity::{Access, Authority, MAX_ADDRS, NodeKey, Terms, Ticket, Tls};
use tidecast_metainfo::Manifest;
use tidecast_net::{Membership, Network, Security, local_addresses};

use crate::manifest::manifest_id;
use crate::options::SslFiles;
use crate::source::Source;
use crate::{now, plain};

/// True for manifests that `publish --private` or `share` made: their swarm is for ticket holders. Other programs'
/// private manifests (BEP 27) only ask that peers come from their trackers.
pub fn needs_ticket(manifest: &Manifest) -> bool {
    manifest.private() && manifest.has_extra() && manifest.ssl_cert().is_none()
}

/// As the owner of the manifest's private swarm.
pub fn owner(manifest: &Manifest, state_dir: &Path) -> Result<(Security, Authority), Error> {
    let key = NodeKey::load_or_create(state_dir).fault()?;
    let swarm = manifest_id(manifest)?.swarm();
    let authority = Authority::open(state_dir, &key).fault()?;
    let membership =
        Membership::owner(Tls::new(&key).fault()?, swarm, Authority::open(state_dir, &key).fault()?);
    Ok((Security::Private(Box::new(membership)), authority))
}

/// With a ticket.
pub fn holder(ticket: &Ticket, state_dir: &Path) -> Result<Security, Error> {
    let Access::Private { authority, token } = &ticket.access else { return Ok(Security::Open) };
    let key = NodeKey::for_member(state_dir, *authority).fault()?;
    let (swarm, token) = (ticket.manifest.swarm(), Some(token.clone()));
    let membership = Membership::member(Tls::new(&key).fault()?, swarm, *authority, token, None);
    Ok(Security::Private(Box::new(membership)))
}

/// As a peer of an SSL torrent: with the certificate that the user gave, or one of our own root.
pub fn ssl(manifest: &Manifest, given: Option<&SslFiles>, state_dir: &Path) -> Result<Security, Error> {
    let root = manifest.ssl_cert().context("the manifest has no root certificate")?;
    let root = std::str::from_utf8(root).context("the manifest's root certificate is not text")?;
    let name = manifest.name();
    let peer = match given {
        Some(SslFiles { cert, key }) => SslPeer::read(cert, key).fault()?,
        None => {
            let own = SslRoot::load_or_create(state_dir).fault()?;
            if own.cert_pem().trim() != root.trim() {
                return Err(Error::fault(
                    "this is an SSL torrent of another publisher: give a certificate issued by the publisher \
                     (--ssl-cert FILE --ssl-key FILE)",
                ));
            }
            own.issue(&name).fault()?
        }
    };
    Ok(Security::Ssl(std::sync::Arc::new(SslTorrent::new(root, &name, &peer).fault()?)))
}

/// A new ticket for `manifest`, which is served at `listen`.
pub fn ticket(
    manifest: &Manifest,
    authority: Option<&Authority>,
    terms: Terms,
    plain_is_meant: bool,
    listen: &[SocketAddr],
    network: Option<&Network>,
) -> Result<Ticket, Error> {
    let id = manifest_id(manifest)?;
    let access = match authority {
        None => Access::Open,
        Some(authority) => {
            let token = authority.issue(id.swarm(), terms, now()).fault()?;
            Access::Private { authority: authority.id(), token }
        }
    };
    let name = Some(plain(&manifest.name()));
    Ok(Ticket {
        manifest: id,
        plain: plain_is_meant,
        access,
        terms,
        name,
        addrs: reachable(listen, network)?,
    })
}

/// Addresses at which peers can reach this node: instead of "any address" those of this host, fastest first;
/// loopback only if there is no other.
fn reachable(listen: &[SocketAddr], network: Option<&Network>) -> Result<Vec<SocketAddr>, Error> {
    let mut all: Vec<SocketAddr> = Vec::new();
    for addr in listen {
        if !addr.ip().is_unspecified() {
            all.push(*addr);
            continue;
        }
        let local = local_addresses().context("cannot list this host's networks")?;
        let fits = |v4: bool| addr.is_ipv6() || v4;
        let chosen = local.iter().filter(|a| fits(a.ip.is_ipv4()) && network.is_none_or(|n| n.holds(a)));
        let (outside, inside): (Vec<_>, Vec<_>) = chosen.partition(|a| !a.loopback);
        let best = if outside.is_empty() { inside } else { outside };
        all.extend(best.into_iter().map(|a| SocketAddr::new(a.ip, addr.port())));
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|addr| seen.insert(*addr));
    all.truncate(MAX_ADDRS);
    Ok(all)
}

/// For this source.
///
/// # Errors
/// Keys cannot be read or made.
pub fn of_source(source: &Source, state_dir: &Path) -> Result<Security, Error> {
    match source.private_ticket() {
        Some(ticket) => holder(ticket, state_dir),
        None => Ok(Security::Open),
    }
}

/// The right that a manifest alone gives.
///
/// # Errors
/// It gives none: a ticket or a certificate is needed.
pub fn of_manifest(
    manifest: &Manifest,
    ssl_files: Option<&SslFiles>,
    plain_is_meant: bool,
    state_dir: &Path,
) -> Result<Security, Error> {
    if manifest.ssl_cert().is_some() {
        return ssl(manifest, ssl_files, state_dir);
    }
    if needs_ticket(manifest) && !plain_is_meant {
        return Err(Error::fault(format!(
            "{} requires a ticket: ask its publisher for one (tidecast get TICKET)",
            plain(&manifest.name())
        )));
    }
    Ok(Security::Open)
}

/// Whether anyone with the manifest may join and nothing is encrypted, though that was not requested.
#[must_use]
pub fn is_open(manifest: &Manifest, plain_is_meant: bool) -> bool {
    !plain_is_meant && !manifest.private() && manifest.ssl_cert().is_none()
}
