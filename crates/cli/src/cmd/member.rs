//! By what right a node takes part: open BitTorrent, a private swarm as owner or with a ticket, an SSL torrent.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use tidecast_identity::ssl_torrent::{SslPeer, SslRoot, SslTorrent};
use tidecast_identity::{Access, Authority, MAX_ADDRS, MAX_USES, ManifestId, NodeKey, Terms, Ticket, Tls};
use tidecast_metainfo::Manifest;
use tidecast_net::{Membership, Network, Security, local_addresses};

use super::now;
use crate::cli::SwarmArgs;
use crate::failure::Failure;
use crate::units::Span;

/// The manifest's v2 hash, or its v1 hash where it has no other.
pub(crate) fn manifest_id(manifest: &Manifest) -> Result<ManifestId> {
    let v2 = manifest.hash_v2().map(ManifestId::V2);
    v2.or(manifest.hash_v1().map(ManifestId::V1)).context("the manifest has no hash")
}

/// True for manifests that `publish --private` or `share` made: their swarm is for ticket holders. Other programs'
/// private manifests (BEP 27) only ask that peers come from their trackers.
pub(crate) fn needs_ticket(manifest: &Manifest) -> bool {
    manifest.private() && manifest.has_extra() && manifest.ssl_cert().is_none()
}

/// As the owner of the manifest's private swarm.
pub(crate) fn owner(manifest: &Manifest, state_dir: &Path) -> Result<(Security, Authority)> {
    let key = NodeKey::load_or_create(state_dir)?;
    let swarm = manifest_id(manifest)?.swarm();
    let authority = Authority::open(state_dir, &key)?;
    let membership = Membership::owner(Tls::new(&key)?, swarm, Authority::open(state_dir, &key)?);
    Ok((Security::Private(Box::new(membership)), authority))
}

/// With a ticket.
pub(crate) fn holder(ticket: &Ticket, state_dir: &Path) -> Result<Security> {
    let Access::Private { authority, token } = &ticket.access else { return Ok(Security::Open) };
    let key = NodeKey::for_member(state_dir, *authority)?;
    let (swarm, token) = (ticket.manifest.swarm(), Some(token.clone()));
    let membership = Membership::member(Tls::new(&key)?, swarm, *authority, token, None);
    Ok(Security::Private(Box::new(membership)))
}

/// As a peer of an SSL torrent: with the certificate that the user gave, or one of our own root.
pub(crate) fn ssl(manifest: &Manifest, args: &SwarmArgs, state_dir: &Path) -> Result<Security> {
    let root = manifest.ssl_cert().context("the manifest has no root certificate")?;
    let root = std::str::from_utf8(root).context("the manifest's root certificate is not text")?;
    let name = manifest.name();
    let peer = match (&args.ssl_cert, &args.ssl_key) {
        (Some(cert), Some(key)) => SslPeer::read(cert, key)?,
        _ => {
            let own = SslRoot::load_or_create(state_dir)?;
            if own.cert_pem().trim() != root.trim() {
                return Err(anyhow!(
                    "this is an SSL torrent of another publisher: give the certificate that it issued \
                     (--ssl-cert FILE --ssl-key FILE)"
                ));
            }
            own.issue(&name)?
        }
    };
    Ok(Security::Ssl(std::sync::Arc::new(SslTorrent::new(root, &name, &peer)?)))
}

/// For how long and for how many a new ticket is good.
#[derive(clap::Args, Debug, Clone, Copy)]
pub(crate) struct TicketArgs {
    /// Expire the ticket after this time (e.g. 12h, 7d); default: valid until revoked
    #[arg(long, value_name = "DURATION")]
    expires: Option<Span>,
    /// Limit the number of nodes that may enrol; default: no limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_USES)))]
    uses: Option<u32>,
}

impl TicketArgs {
    /// What the ticket states, from now on.
    ///
    /// # Errors
    /// Usage errors: it would end at once, or there will be no ticket that lets anybody in.
    pub(crate) fn terms(self, makes_ticket: bool) -> Result<Terms, Failure> {
        if self.expires.is_some_and(|span| span.0.as_secs() == 0) {
            return Err(Failure::usage(anyhow!("--expires: a ticket lasts at least 1 s")));
        }
        let expires = self.expires.map(|span| now().saturating_add(span.0.as_secs()));
        let terms = Terms { expires, uses: self.uses };
        if !makes_ticket && terms != Terms::default() {
            let why = "--expires and --uses are for tickets of private swarms; anybody may join this one";
            return Err(Failure::usage(anyhow!(why)));
        }
        Ok(terms)
    }
}

/// A new ticket for `manifest`, which is served at `listen`.
pub(crate) fn ticket(
    manifest: &Manifest,
    authority: Option<&Authority>,
    terms: Terms,
    plain: bool,
    listen: &[SocketAddr],
    network: Option<&Network>,
) -> Result<Ticket> {
    let id = manifest_id(manifest)?;
    let access = match authority {
        None => Access::Open,
        Some(authority) => {
            let token = authority.issue(id.swarm(), terms, now())?;
            Access::Private { authority: authority.id(), token }
        }
    };
    let name = Some(super::show::plain(&manifest.name()));
    Ok(Ticket { manifest: id, plain, access, terms, name, addrs: reachable(listen, network)? })
}

/// Where others can reach us: instead of "any address" those of this host, fastest first; loopback only if there is
/// no other.
fn reachable(listen: &[SocketAddr], network: Option<&Network>) -> Result<Vec<SocketAddr>> {
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
