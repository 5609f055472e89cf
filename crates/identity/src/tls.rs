//! Mutual TLS 1.3 between Tidecast nodes, which are identified by their keys.
//!
//! Promises: a finished handshake proves that the peer holds the key of the node id read from its certificate, and,
//! if a node was expected, that it is that node. The certificate is a mere envelope for the key: its names, dates
//! and self-signature are ignored.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring as provider};
use rustls::server::{NoServerSessionStorage, ParsedCertificate};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, ServerConfig, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::verifier::{CertificatePolicy, PolicyResult, Signed, Verifier};
use crate::{Error, NodeId, NodeKey};

/// Protocol name negotiated by ALPN; a peer without it is not a Tidecast node.
pub const ALPN: &[u8] = b"tidecast/1";

/// No certificate of a Tidecast node is longer (bytes).
const MAX_CERT: usize = 1024;

/// DER of an Ed25519 SubjectPublicKeyInfo before the 32 key bytes (RFC 8410).
const ED25519_SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// A node's side of TLS: the configurations for accepting and for connecting, made once.
#[derive(Clone, Debug)]
pub struct Tls {
    key: NodeKey,
    cert: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Tls {
    /// Makes the certificate that carries `key`.
    ///
    /// # Errors
    /// [`Error::Tls`] if the certificate cannot be made, or rustls refuses it.
    pub fn new(key: &NodeKey) -> Result<Self, Error> {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "tidecast node");
        let cert = params.self_signed(&key.rcgen()?).map_err(|e| Error::Tls(e.to_string()))?;
        debug_assert!(cert.der().len() <= MAX_CERT);
        let (cert, provider) = (cert.der().clone(), Arc::new(crypto()));
        let server = server(key, &cert, &provider).map_err(refused)?;
        let client = client(key, &cert, &provider, None).map_err(refused)?;
        Ok(Self { key: key.clone(), cert, provider, server, client })
    }

    /// This node's name.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.key.id()
    }

    /// For accepting connections: any node that proves its key; rights are checked by the caller.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    /// For accepting connections that use any of these protocols (ALPN), preferred ones first.
    #[must_use]
    pub fn server_speaking(&self, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        let mut config = (*self.server).clone();
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Arc::new(config)
    }

    /// For connecting to this node, or to any, with another protocol (ALPN) than a swarm's.
    ///
    /// # Errors
    /// [`Error::Tls`] if rustls refuses the configuration.
    pub fn client_speaking(&self, protocol: &[u8], node: Option<NodeId>) -> Result<Arc<ClientConfig>, Error> {
        let mut config = client(&self.key, &self.cert, &self.provider, node).map_err(refused)?;
        Arc::make_mut(&mut config).alpn_protocols = vec![protocol.to_vec()];
        Ok(config)
    }

    /// For connecting to any node.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// For connecting to this node and no other.
    ///
    /// # Errors
    /// [`Error::Tls`] if rustls refuses the configuration.
    pub fn client_of(&self, node: NodeId) -> Result<Arc<ClientConfig>, Error> {
        client(&self.key, &self.cert, &self.provider, Some(node)).map_err(refused)
    }
}

fn refused(error: rustls::Error) -> Error {
    Error::Tls(error.to_string())
}

fn server(
    key: &NodeKey,
    cert: &CertificateDer<'static>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(Verifier(KeyVerifier::new(None))))
        .with_single_cert(vec![cert.clone()], key.private_der())?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A resumed session would save little in a cluster and keeps state for strangers.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn client(
    key: &NodeKey,
    cert: &CertificateDer<'static>,
    provider: &Arc<CryptoProvider>,
    expect: Option<NodeId>,
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier(KeyVerifier::new(expect))))
        .with_client_auth_cert(vec![cert.clone()], key.private_der())?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// rustls requires a server name; nodes have none, and this one is neither sent nor compared.
#[must_use]
pub fn placeholder_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into())
}

/// The node at the other end, from `peer_certificates()` of either side of a finished handshake.
///
/// # Errors
/// [`Error::BadCertificate`] when there is not exactly one Ed25519 certificate.
pub fn peer_node_id(certs: Option<&[CertificateDer<'_>]>) -> Result<NodeId, Error> {
    match certs {
        Some([cert]) => node_id_of(cert).map_err(Error::BadCertificate),
        _ => Err(Error::BadCertificate("expected exactly one")),
    }
}

fn node_id_of(cert: &CertificateDer<'_>) -> Result<NodeId, &'static str> {
    if cert.len() > MAX_CERT {
        return Err("too long");
    }
    let parsed = ParsedCertificate::try_from(cert).map_err(|_| "not well-formed")?;
    let spki = parsed.subject_public_key_info();
    spki.as_ref()
        .strip_prefix(&ED25519_SPKI)
        .and_then(|key| key.try_into().ok())
        .map(NodeId)
        .ok_or("the key is not Ed25519")
}

/// ring with AES-128-GCM first: the fastest wherever the processor has AES instructions.
fn crypto() -> CryptoProvider {
    use provider::{cipher_suite, kx_group};
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
        ],
        kx_groups: vec![kx_group::X25519],
        ..provider::default_provider()
    }
}

/// Accepts any certificate that carries an Ed25519 key (or only the expected one); the handshake
/// signature then proves possession.
#[derive(Debug)]
struct KeyVerifier {
    expect: Option<NodeId>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl KeyVerifier {
    fn new(expect: Option<NodeId>) -> Self {
        Self { expect, algorithms: provider::default_provider().signature_verification_algorithms }
    }

    fn check(&self, cert: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        if !more.is_empty() {
            return Err(other("expected exactly one certificate".into()));
        }
        let id = node_id_of(cert).map_err(|why| other(why.into()))?;
        match self.expect {
            Some(expect) if expect != id => Err(other(format!("expected node {expect}, found node {id}"))),
            _ => Ok(()),
        }
    }
}

fn other(why: String) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Why(why)))))
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Why(String);

impl CertificatePolicy for KeyVerifier {
    fn server(&self, cert: &CertificateDer<'_>, more: &[CertificateDer<'_>], _: UnixTime) -> PolicyResult {
        self.check(cert, more)
    }

    fn client(&self, cert: &CertificateDer<'_>, more: &[CertificateDer<'_>], _: UnixTime) -> PolicyResult {
        self.check(cert, more)
    }

    fn tls12(&self, _: &[u8], _: &CertificateDer<'_>, _: &DigitallySignedStruct) -> Signed {
        Err(other("TLS 1.2 is not supported between Tidecast nodes".into()))
    }

    fn tls13(&self, message: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct) -> Signed {
        if dss.scheme != SignatureScheme::ED25519 {
            return Err(other("the handshake signature is not Ed25519".into()));
        }
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}
