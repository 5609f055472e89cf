//! Identities of nodes, and their rights to join swarms.
//!
//! A node is its Ed25519 key ([`NodeKey`], named by [`NodeId`]). Two Tidecast nodes use mutual TLS 1.3 with these
//! keys ([`Tls`]), so that after the handshake each knows the other's [`NodeId`]; there is no certificate
//! authority, no host name and no expiry to manage. A private swarm has an owner ([`Authority`]): it issues
//! [`Ticket`]s, a node with a ticket enrols its own key and receives a short-lived signed [`Credential`], and every
//! member checks the others' with a [`Gate`]. The secret in a ticket never crosses the network: only a proof bound
//! to the enrolling key does. Between the daemons of a site a certificate authority, the site's own or a small one
//! ([`SiteCa`]), certifies the host or user that a node acts for ([`Identity`]): by its [`Card`], verified with the
//! trusted roots ([`Trust`]). [`ssl_torrent`] follows libtorrent's convention instead, so that stock clients can
//! join an authenticated swarm.
//!
//! Promises: no socket, no clock (the time is an argument), no `unsafe`; files only for the key, the authority's
//! state and the SSL root, written atomically, readable by their owner alone. Every decoder bounds its input and
//! rejects unknown forms.

mod armour;
mod authority;
pub mod bytes;
mod ca;
mod card;
mod credential;
pub mod date;
mod error;
mod files;
mod gate;
mod identity;
mod invitation;
mod node;
pub mod ssl_torrent;
mod ticket;
mod tls;
mod trust;
mod verifier;

pub use authority::{Authority, TokenInfo};
pub use ca::enrolment::{EnrolError, Enrolled, root_hash};
pub use ca::{CERT_LIFETIME, CertInfo, Issued, SiteCa};
pub use card::{Card, CardError, Holder, MAX_CARD};
pub use credential::{
    CLOCK_SKEW, Credential, DEFAULT_LIFETIME, EnrolRequest, MAX_LIFETIME, MAX_REVOKED, RevocationList,
    SwarmId,
};
pub use error::{Error, Refused, TicketError};
pub use files::{own_dir, read_private};
pub use gate::Gate;
pub use identity::{BadIdentity, Identity};
pub use invitation::Invitation;
pub use node::{NodeId, NodeKey};
pub use ticket::{
    Access, MAX_ADDRS, MAX_NAME, MAX_TICKET_CHARS, MAX_USES, ManifestId, Secret, Terms, Ticket, Token,
    TokenId,
};
pub use tls::{ALPN, Tls, peer_node_id, placeholder_name};
pub use trust::{Trust, Verified, describe};
