//! How a host founds a site, is invited to one, and joins it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use tidecast_control::ConnectAttempts;
use tidecast_identity::{
    EnrolRequest, Enrolled as Files, Holder, Identity, Invitation, NodeId, NodeKey, SiteCa, SwarmId, Tls,
    root_hash,
};
use tokio::time::timeout;

use super::error::SiteError;
use super::files::{Authority, SiteDir};
use crate::host::state_dir;
use crate::links::addresses;
use crate::links::frame;
use crate::links::wire::{Tcp, Wire, Wired};
use crate::model::message::{Enrolled, Enrolment, Hello};

/// The authority answers within this time.
const ANSWER: Duration = Duration::from_secs(20);

/// A host that has joined a site.
#[derive(Clone, Debug)]
pub struct Joined {
    /// The host or user that it is.
    pub identity: Identity,
    /// Its key.
    pub node: NodeId,
    /// When its certificate expires, seconds since 1970. The daemon renews it before.
    pub not_after: u64,
    /// Where its files are.
    pub files: PathBuf,
}

/// An invitation to make.
#[derive(Clone, Debug)]
pub struct Invite {
    /// The host or user that the joining node becomes.
    pub identity: Identity,
    /// For how long the invitation is valid, seconds.
    pub patience: u64,
    /// How long its certificates last, seconds; None: a year.
    pub lifetime: Option<u64>,
    /// Where the daemon that keeps the authority listens.
    pub listen: SocketAddr,
}

/// Makes a certificate authority called `name` below a daemon's directory, and that daemon the first of its site.
///
/// # Errors
/// The host has joined a site already, or a file cannot be written.
pub fn found(dir: &Path, name: &str, identity: Identity) -> Result<Joined, SiteError> {
    let site = SiteDir::of(dir);
    let key = open(&site, dir)?;
    let now = crate::clock::now();
    // The files of an interrupted run are used.
    let ca =
        if site.keeps_authority() { SiteCa::open(&site.ca()) } else { SiteCa::init(&site.ca(), name, now) }?;
    let token = ca.invite(&identity, 60, None, now)?;
    let request = EnrolRequest::new(&token, SwarmId(ca.root_hash()?), key.id(), key.id());
    let enrolled = ca.enrol(&request, key.id(), key.id(), now);
    let enrolled = enrolled.map_err(|error| SiteError::Refused(error.to_string()))?;
    let authority = Authority { node: key.id(), addresses: Vec::new(), identity };
    finish(&site, &enrolled, &authority, key.id())
}

/// Makes an invitation on the host that keeps the authority, below the directory of its daemon.
///
/// # Errors
/// The authority is kept elsewhere, or cannot write its state; the directory has files of another user.
pub fn invite(dir: &Path, invite: &Invite) -> Result<Invitation, SiteError> {
    let site = SiteDir::of(dir);
    state_dir::secure(dir)?;
    let ca = SiteCa::open(&site.ca())?;
    let node = NodeKey::load_or_create(dir)?.id();
    let token = ca.invite(&invite.identity, invite.patience, invite.lifetime, crate::clock::now())?;
    Ok(Invitation {
        authority: node,
        root: ca.root_hash()?,
        token,
        identity: invite.identity.clone(),
        addrs: addresses::of(Some(invite.listen), invite.listen.port()),
    })
}

/// Joins the site of an invitation: a certificate for the key of the daemon whose directory is `dir`.
///
/// # Errors
/// The host has joined a site already; the authority cannot be reached, or refuses; a file cannot be written.
pub async fn join(dir: &Path, invitation: &Invitation) -> Result<Joined, SiteError> {
    let site = SiteDir::of(dir);
    let key = open(&site, dir)?;
    let wire = Arc::new(Tcp(Tls::new(&key)?));
    let request = BASE64.encode(&invitation.request(key.id()).to_bytes());
    let wish = Enrolment::Join { request };
    let answered = ask(wire, invitation.authority, &invitation.addrs, &wish).await?;
    let enrolled = answered.files(invitation.identity.clone(), &invitation.root, &key)?;
    let mut addresses = invitation.addrs.clone();
    addresses.retain(|addr| *addr != answered.addr);
    addresses.insert(0, answered.addr);
    let authority =
        Authority { node: invitation.authority, addresses, identity: invitation.identity.clone() };
    finish(&site, &enrolled, &authority, key.id())
}

/// The key of a daemon that has joined no site yet.
fn open(site: &SiteDir, dir: &Path) -> Result<NodeKey, SiteError> {
    if site.authority()?.is_some() {
        return Err(SiteError::Joined(site.path()));
    }
    state_dir::secure(dir)?;
    Ok(NodeKey::load_or_create(dir)?)
}

fn finish(
    site: &SiteDir,
    enrolled: &Files,
    authority: &Authority,
    node: NodeId,
) -> Result<Joined, SiteError> {
    site.write(enrolled, authority)?;
    let (identity, files) = (authority.identity.clone(), site.path());
    Ok(Joined { identity, node, not_after: enrolled.not_after, files })
}

/// The authority's answer.
pub(crate) struct Answered {
    /// Where it was reached.
    pub(crate) addr: SocketAddr,
    certificate: Option<String>,
    root: String,
    pub(crate) crl: String,
}

impl Answered {
    /// The files of `identity`, with a certificate for `key`.
    pub(crate) fn files(
        &self,
        identity: Identity,
        root: &[u8; 32],
        key: &NodeKey,
    ) -> Result<Files, SiteError> {
        self.check_root(root)?;
        let none = || SiteError::Invalid("it has no certificate".into());
        let certificate = self.certificate.clone().ok_or_else(none)?;
        let holder = Holder::from_pem(certificate.as_bytes(), key)?;
        holder.card(key.id(), crate::clock::now(), 1)?;
        let (_, not_after) = holder.validity()?;
        let (root, crl) = (self.root.clone(), self.crl.clone());
        Ok(Files { identity, certificate, root, crl, not_after })
    }

    /// The answer is of the site that this node has joined.
    pub(crate) fn check_root(&self, root: &[u8; 32]) -> Result<(), SiteError> {
        match root_hash(&self.root) {
            Some(hash) if hash == *root => Ok(()),
            _ => Err(SiteError::Invalid("it has the root certificate of another site".into())),
        }
    }
}

/// Asks the authority, at the first of its addresses that answers.
pub(crate) async fn ask(
    wire: Arc<dyn Wire>,
    authority: NodeId,
    addresses: &[SocketAddr],
    wish: &Enrolment,
) -> Result<Answered, SiteError> {
    let mut attempts = ConnectAttempts::new(addresses.to_vec(), move |addr| wire.clone().connect(addr));
    let mut last = SiteError::Unreachable("no address of it is known".into());
    while let Some((addr, connected)) = attempts.next_delayed().await {
        let shaken = match connected {
            Ok(handshake) => handshake.await,
            Err(error) => Err(error),
        };
        match shaken {
            Ok((stream, found)) if found == authority => {
                let talk = timeout(ANSWER, talk(stream, addr, wish)).await;
                return talk.map_err(|_| SiteError::Unreachable(format!("{addr} did not answer in time")))?;
            }
            Ok((_, found)) => last = SiteError::OtherNode { addr, found },
            Err(error) => last = SiteError::Unreachable(error.to_string()),
        }
    }
    Err(last)
}

async fn talk(mut stream: Wired, addr: SocketAddr, wish: &Enrolment) -> Result<Answered, SiteError> {
    let invalid = |error: frame::FrameError| SiteError::Invalid(error.to_string());
    let ended = || SiteError::Invalid(format!("{addr} ended the connection"));
    frame::write(&mut stream, wish, &[]).await.map_err(invalid)?;
    let _hello: (Hello, Bytes) = frame::read(&mut stream).await.map_err(invalid)?.ok_or_else(ended)?;
    match frame::read(&mut stream).await.map_err(invalid)?.ok_or_else(ended)? {
        (Enrolled::Refused { why }, _) => Err(SiteError::Refused(crate::links::rejections::plain(&why))),
        (Enrolled::Granted { certificate, root }, crl) => {
            let crl =
                String::from_utf8(crl.to_vec()).map_err(|error| SiteError::Invalid(error.to_string()))?;
            Ok(Answered { addr, certificate, root, crl })
        }
    }
}
