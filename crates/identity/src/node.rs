//! A node's name and key: Ed25519, made once and kept in the state directory.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use data_encoding::{BASE32_NOPAD, BASE32_NOPAD_NOCASE, HEXLOWER_PERMISSIVE};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::{Error, files};

/// Name of a node: its Ed25519 public key. Written as 52 lower-case base32 characters; hexadecimal is read too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub [u8; 32]);

impl NodeId {
    /// True when `signature` over `message` was made by this node's key (RFC 8032).
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, signature).is_ok()
    }

    /// The first 10 characters, for logs and tables; unique enough for people, not for programs.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string().chars().take(10).collect()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE32_NOPAD.encode(&self.0).to_ascii_lowercase())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({})", self.short())
    }
}

impl FromStr for NodeId {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Error> {
        let bytes = match s.len() {
            52 => BASE32_NOPAD_NOCASE.decode(s.as_bytes()).ok(),
            64 => HEXLOWER_PERMISSIVE.decode(s.as_bytes()).ok(),
            _ => None,
        };
        bytes
            .and_then(|b| b.try_into().ok())
            .map(Self)
            .ok_or_else(|| Error::BadNodeId(s.chars().take(80).collect()))
    }
}

/// A node's secret key. Cheap to clone; `Debug` shows the public half only.
#[derive(Clone)]
pub struct NodeKey {
    pair: Arc<Ed25519KeyPair>,
    pkcs8: Arc<PrivatePkcs8KeyDer<'static>>,
    id: NodeId,
}

impl NodeKey {
    /// File name of the key in the state directory.
    pub const FILE: &str = "node.key";
    /// File name of the second key; see [`NodeKey::for_member`].
    pub const MEMBER_FILE: &str = "member.key";

    /// A fresh key that is kept nowhere.
    ///
    /// # Errors
    /// [`Error::Random`] when the system's random generator fails.
    pub fn generate() -> Result<Self, Error> {
        let doc =
            Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).map_err(|_| Error::Random)?;
        Self::from_pkcs8(doc.as_ref().to_vec()).ok_or(Error::Random)
    }

    /// The key of `state_dir`, made there (directory 0700, file 0600) the first time. Of two processes
    /// that start at once, both get the same key.
    ///
    /// # Errors
    /// The file cannot be read or written, may be read by others, or is not a key.
    pub fn load_or_create(state_dir: &Path) -> Result<Self, Error> {
        Self::load_or_create_as(state_dir, Self::FILE)
    }

    /// The key with which a node of `state_dir` joins a swarm of `authority`: its own; where the swarm's owner is this
    /// very key, because owner and member share a state directory (a shared home), a second one that is kept beside it.
    ///
    /// # Errors
    /// As [`NodeKey::load_or_create`].
    pub fn for_member(state_dir: &Path, authority: NodeId) -> Result<Self, Error> {
        let own = Self::load_or_create(state_dir)?;
        if own.id == authority { Self::load_or_create_as(state_dir, Self::MEMBER_FILE) } else { Ok(own) }
    }

    fn load_or_create_as(state_dir: &Path, name: &str) -> Result<Self, Error> {
        let path = state_dir.join(name);
        if let Some(key) = Self::load(&path)? {
            return Ok(key);
        }
        files::make_dir(state_dir)?;
        let key = Self::generate()?;
        if files::create(&path, key.to_pem()?.as_bytes())? {
            return Ok(key);
        }
        let why = || "it disappeared during reading".to_owned();
        Self::load(&path)?.ok_or_else(|| Error::Damaged { path: path.clone(), why: why() })
    }

    fn load(path: &Path) -> Result<Option<Self>, Error> {
        let Some(pem) = files::read_secret(path)? else {
            return Ok(None);
        };
        let damaged = || Error::Damaged { path: path.to_owned(), why: "not an Ed25519 key".into() };
        let der = PrivatePkcs8KeyDer::from_pem_slice(&pem).map_err(|_| damaged())?;
        Self::from_pkcs8(der.secret_pkcs8_der().to_vec()).map(Some).ok_or_else(damaged)
    }

    fn from_pkcs8(der: Vec<u8>) -> Option<Self> {
        let pair = Ed25519KeyPair::from_pkcs8(&der).ok()?;
        let id = NodeId(pair.public_key().as_ref().try_into().ok()?);
        Some(Self { pair: Arc::new(pair), pkcs8: Arc::new(der.into()), id })
    }

    fn to_pem(&self) -> Result<String, Error> {
        Ok(self.rcgen()?.serialize_pem())
    }

    /// Name of the node that holds this key.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Ed25519 signature of `message` (RFC 8032). The caller's message starts with a context of its own,
    /// so that no signature means two things.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut out = [0; 64];
        let signature = self.pair.sign(message);
        debug_assert_eq!(signature.as_ref().len(), out.len());
        out.copy_from_slice(signature.as_ref());
        out
    }

    pub(crate) fn rcgen(&self) -> Result<rcgen::KeyPair, Error> {
        rcgen::KeyPair::try_from(&*self.pkcs8).map_err(|e| Error::Tls(e.to_string()))
    }

    pub(crate) fn private_der(&self) -> PrivateKeyDer<'static> {
        self.pkcs8.clone_key().into()
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeKey").field("id", &self.id).finish_non_exhaustive()
    }
}
