//! Signing and verifying, provided by the caller: real keys, or cheap ones in a simulation.

use tidecast_identity::{NodeId, NodeKey};

/// This node's key, and the public keys of all nodes.
pub trait Keys {
    /// This node.
    fn node(&self) -> NodeId;
    /// This node's signature of `message`, which starts with its own context string.
    fn sign(&self, message: &[u8]) -> [u8; 64];
    /// True when `node` has signed `message`.
    fn verify(&self, node: NodeId, message: &[u8], signature: &[u8; 64]) -> bool;
}

impl Keys for NodeKey {
    fn node(&self) -> NodeId {
        self.id()
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        NodeKey::sign(self, message)
    }

    fn verify(&self, node: NodeId, message: &[u8], signature: &[u8; 64]) -> bool {
        node.verify(message, signature)
    }
}
