//! The invitation: one word by which a host joins a site, once (`tidecast ca invite`, `tidecast daemon init --join`).
//!
//! `tidecastjoin1` + base32 of: version 1 · authority (32) · SHA-256 of the site's root certificate (32) · token id (8),
//! secret (16) · identity (length and text) · address count (1) and addresses · checksum. The invitation names the key
//! of the daemon that it is for and the root certificate that this daemon must answer with, so a joining host accepts
//! no other site; the secret never crosses the network (see [`EnrolRequest`]).

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::bytes::{Reader, put_address, put_field};
use crate::{
    EnrolRequest, Identity, MAX_ADDRS, MAX_TICKET_CHARS, NodeId, Secret, SwarmId, TicketError, Token,
    TokenId, armour,
};

const PREFIX: &str = "tidecastjoin1";
const VERSION: u8 = 1;
/// Longest identity, bytes.
const MAX_IDENTITY: usize = 80;

/// The right of one node to become `identity` in a site. `Display` writes it, `FromStr` reads it.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// The node that issues certificates: TLS proves its key to the joining host.
    pub authority: NodeId,
    /// SHA-256 of the site's root certificate (DER).
    pub root: [u8; 32],
    /// The right to enrol, once.
    pub token: Token,
    /// The host or user that the joining node becomes.
    pub identity: Identity,
    /// Addresses of the authority, at most [`MAX_ADDRS`].
    pub addrs: Vec<SocketAddr>,
}

impl Invitation {
    /// The request by which `node` enrols.
    #[must_use]
    pub fn request(&self, node: NodeId) -> EnrolRequest {
        EnrolRequest::new(&self.token, SwarmId(self.root), self.authority, node)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.authority.0);
        out.extend_from_slice(&self.root);
        out.extend_from_slice(&self.token.id.0);
        out.extend_from_slice(&self.token.secret.0);
        put_field(&mut out, self.identity.to_string().as_bytes());
        let addrs = self.addrs.get(..MAX_ADDRS).unwrap_or(&self.addrs);
        out.push(addrs.len() as u8);
        addrs.iter().for_each(|addr| put_address(&mut out, *addr));
        out
    }

    fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let authority = NodeId(r.array()?);
        let root = r.array()?;
        let token = Token { id: TokenId(r.array()?), secret: Secret(r.array()?) };
        let identity = r.text(MAX_IDENTITY)?.parse().ok()?;
        let count = usize::from(r.u8()?);
        if count > MAX_ADDRS {
            return None;
        }
        let addrs = (0..count).map(|_| r.address()).collect::<Option<Vec<_>>>()?;
        r.end()?;
        Some(Self { authority, root, token, identity, addrs })
    }
}

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&armour::write(PREFIX, self.encode()))
    }
}

impl FromStr for Invitation {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let body = armour::read(PREFIX, text, MAX_TICKET_CHARS)?;
        let mut r = Reader::new(&body);
        match r.u8() {
            Some(VERSION) => Self::decode(&mut r).ok_or(TicketError::Content("a field is malformed")),
            Some(other) => Err(TicketError::Version(other)),
            None => Err(TicketError::Content("it is empty")),
        }
    }
}
