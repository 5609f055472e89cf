//! A member's description of itself: addresses, incarnation, card.
//!
//! The description is signed by the member's own key. Other members pass it on by gossip. They can only declare it
//! suspect or down: they cannot change its addresses, or raise its incarnation and so silence it. Data that a newer
//! program adds follows with its length, and is signed and passed on like the rest.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tidecast_identity::NodeId;

use crate::Keys;
use tidecast_identity::bytes::{Reader, put_address, put_field};

/// Maximum number of addresses of one member.
pub const MAX_ADDRESSES: usize = 4;
const CONTEXT: &[u8] = b"tidecast member 1\0";
/// Maximum length of data that a newer program adds.
const MAX_MORE: usize = 512;
const SIGNATURE: usize = 64;

/// A member. Cheap to clone.
#[derive(Clone)]
pub struct Peer(Arc<Description>);

struct Description {
    node: NodeId,
    incarnation: u64,
    card: [u8; 32],
    addresses: Vec<SocketAddr>,
    /// The encoded description, with the signature.
    bytes: Vec<u8>,
}

impl Peer {
    /// Signs a description of this node. Of two descriptions the one with the higher `incarnation` wins; addresses beyond
    /// [`MAX_ADDRESSES`] are dropped.
    #[must_use]
    pub fn sign(keys: &dyn Keys, incarnation: u64, card: [u8; 32], addresses: &[SocketAddr]) -> Self {
        let addresses: Vec<_> = addresses.iter().copied().take(MAX_ADDRESSES).collect();
        let mut bytes = Vec::new();
        bytes.extend(keys.node().0);
        bytes.extend(incarnation.to_be_bytes());
        bytes.extend(card);
        bytes.push(addresses.len() as u8);
        addresses.iter().for_each(|a| put_address(&mut bytes, *a));
        put_field(&mut bytes, &[]);
        let signature = keys.sign(&[CONTEXT, &bytes].concat());
        bytes.extend(signature);
        Self(Arc::new(Description { node: keys.node(), incarnation, card, addresses, bytes }))
    }

    /// A node of which only the id is known: enough to send it a first message, but not a valid description.
    pub(crate) fn unknown(node: NodeId) -> Self {
        let mut bytes = node.0.to_vec();
        bytes.extend([0; 8 + 32 + 1 + 2 + SIGNATURE]);
        Self(Arc::new(Description { node, incarnation: 0, card: [0; 32], addresses: Vec::new(), bytes }))
    }

    /// Decodes a description; its signature is not checked.
    pub(crate) fn read(r: &mut Reader<'_>) -> Option<Self> {
        let (node, incarnation, card) = (NodeId(r.array()?), r.u64()?, r.array()?);
        let count = usize::from(r.u8()?);
        let addresses = (count <= MAX_ADDRESSES).then(|| (0..count).map(|_| r.address()).collect());
        let addresses: Vec<_> = Option::flatten(addresses)?;
        let (more, signature) = (r.field(MAX_MORE)?, r.array::<SIGNATURE>()?);
        let mut bytes = node.0.to_vec();
        bytes.extend(incarnation.to_be_bytes());
        bytes.extend(card);
        bytes.push(addresses.len() as u8);
        addresses.iter().for_each(|a| put_address(&mut bytes, *a));
        put_field(&mut bytes, more);
        bytes.extend(signature);
        Some(Self(Arc::new(Description { node, incarnation, card, addresses, bytes })))
    }

    /// True when the member has signed it.
    pub(crate) fn is_signed(&self, keys: &dyn Keys) -> bool {
        let Some((text, signature)) = self.0.bytes.split_last_chunk::<SIGNATURE>() else { return false };
        keys.verify(self.0.node, &[CONTEXT, text].concat(), signature)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Its node id.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.0.node
    }

    /// Its addresses, best first.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.0.addresses
    }

    /// Its incarnation.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.0.incarnation
    }

    /// Hash of its card (`tidecast_identity::Card::hash`).
    #[must_use]
    pub fn card(&self) -> [u8; 32] {
        self.0.card
    }
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.bytes == other.0.bytes
    }
}

impl Eq for Peer {}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({} #{})", self.0.node.short(), self.0.incarnation)
    }
}

impl foca::Identity for Peer {
    type Addr = NodeId;

    /// Never by itself: a new description must be signed, which `Gossip` does when this node was declared down.
    fn renew(&self) -> Option<Self> {
        None
    }

    fn addr(&self) -> NodeId {
        self.0.node
    }

    fn win_addr_conflict(&self, other: &Self) -> bool {
        // If a member signs two descriptions of one incarnation, all members choose the same one.
        (self.0.incarnation, &self.0.bytes) > (other.0.incarnation, &other.0.bytes)
    }
}
