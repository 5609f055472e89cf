//! Handshakes in memory: two rustls connections joined by buffers, no socket.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tidecast_identity::ssl_torrent::{SslPeer, SslRoot, SslTorrent, info_hash_of, server_name};
use tidecast_identity::{ALPN, NodeKey, Tls, peer_node_id, placeholder_name};

/// Runs a handshake to its end or first error, then a few bytes each way.
fn connect(
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name: ServerName<'static>,
) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let mut c = ClientConnection::new(client, name)?;
    let mut s = ServerConnection::new(server)?;
    for _ in 0..20 {
        let mut wire = Vec::new();
        while c.wants_write() {
            c.write_tls(&mut wire).unwrap();
        }
        let mut rest = &wire[..];
        while !rest.is_empty() {
            s.read_tls(&mut rest).unwrap();
            s.process_new_packets()?;
        }
        let mut wire = Vec::new();
        while s.wants_write() {
            s.write_tls(&mut wire).unwrap();
        }
        let mut rest = &wire[..];
        while !rest.is_empty() {
            c.read_tls(&mut rest).unwrap();
            c.process_new_packets()?;
        }
        if !c.is_handshaking() && !s.is_handshaking() && !c.wants_write() && !s.wants_write() {
            return Ok((c, s));
        }
    }
    panic!("the handshake neither ended nor failed");
}

/// A client that checks nothing of the server, as an intruder or a bare stock client would.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls_pki_types::UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        use rustls::SignatureScheme as S;
        vec![S::ED25519, S::ECDSA_NISTP256_SHA256]
    }
}

fn careless(version: &'static SupportedProtocolVersion, peer: Option<&SslPeer>) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone));
    Arc::new(match peer {
        None => builder.with_no_client_auth(),
        Some(peer) => {
            let cert = CertificateDer::from_pem_slice(peer.cert_pem.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(peer.key_pem.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![cert], key).unwrap()
        }
    })
}

fn node() -> Tls {
    Tls::new(&NodeKey::generate().unwrap()).unwrap()
}

#[test]
fn each_side_learns_the_others_key() {
    let (a, b) = (node(), node());
    for config in [a.client(), a.client_of(b.id()).unwrap()] {
        let (c, s) = connect(config, b.server(), placeholder_name()).unwrap();
        assert_eq!(peer_node_id(c.peer_certificates()).unwrap(), b.id());
        assert_eq!(peer_node_id(s.peer_certificates()).unwrap(), a.id());
        assert_eq!(c.alpn_protocol(), Some(ALPN));
        assert_eq!(c.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
        let suite = c.negotiated_cipher_suite().unwrap().suite();
        assert_eq!(suite, rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
        assert_eq!(s.server_name(), None, "no name is sent");
    }
}

#[test]
fn another_node_than_expected_is_refused() {
    let (a, b, c) = (node(), node(), node());
    let e = connect(a.client_of(c.id()).unwrap(), b.server(), placeholder_name()).unwrap_err();
    assert!(e.to_string().contains(&c.id().to_string()), "{e}");
}

#[test]
fn a_client_without_certificate_or_without_our_protocol_is_refused() {
    let b = node();
    let bare = careless(&TLS13, None);
    assert!(connect(bare, b.server(), placeholder_name()).is_err());
    let dir = tempfile::tempdir().unwrap();
    let p256 = SslRoot::load_or_create(dir.path()).unwrap().issue("x").unwrap();
    let other_kind = careless(&TLS13, Some(&p256));
    assert!(connect(other_kind, b.server(), placeholder_name()).is_err());
    let old = careless(&TLS12, Some(&p256));
    assert!(connect(old, b.server(), placeholder_name()).is_err());
    let mut config = ClientConfig::clone(&node().client());
    config.alpn_protocols = vec![b"h2".to_vec()];
    assert!(connect(config.into(), b.server(), placeholder_name()).is_err());
}

#[test]
fn a_certificate_stolen_without_its_key_is_refused() {
    let (a, b) = (node(), node());
    // The thief shows a's certificate, seen in a handshake, but can sign only with a key of its own.
    let (_, s) = connect(a.client(), b.server(), placeholder_name()).unwrap();
    let stolen = s.peer_certificates().unwrap()[0].clone();
    let dir = tempfile::tempdir().unwrap();
    NodeKey::load_or_create(dir.path()).unwrap();
    let own = std::fs::read(dir.path().join(NodeKey::FILE)).unwrap();
    let own = PrivatePkcs8KeyDer::from_pem_slice(&own).unwrap();
    let signer = rustls::crypto::ring::sign::any_eddsa_type(&own).unwrap();
    let forged = Arc::new(rustls::sign::CertifiedKey::new(vec![stolen.into_owned()], signer));
    #[derive(Debug)]
    struct Forged(Arc<rustls::sign::CertifiedKey>);
    impl rustls::client::ResolvesClientCert for Forged {
        fn resolve(
            &self,
            _hints: &[&[u8]],
            _schemes: &[rustls::SignatureScheme],
        ) -> Option<Arc<rustls::sign::CertifiedKey>> {
            Some(self.0.clone())
        }
        fn has_certs(&self) -> bool {
            true
        }
    }
    let mut config = ClientConfig::clone(&a.client());
    config.client_auth_cert_resolver = Arc::new(Forged(forged));
    let e = connect(config.into(), b.server(), placeholder_name()).unwrap_err();
    assert!(e.to_string().contains("BadSignature"), "{e}");
}

fn ssl(dir: &std::path::Path, name: &str) -> (SslRoot, SslTorrent) {
    let root = SslRoot::load_or_create(dir).unwrap();
    let peer = root.issue(name).unwrap();
    let torrent = SslTorrent::new(root.cert_pem(), name, &peer).unwrap();
    (root, torrent)
}

/// As `tidecast publish --ssl-export` writes them.
fn write(peer: &SslPeer, dir: &std::path::Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let (cert, key) = (dir.join("peer.crt"), dir.join("peer.key"));
    std::fs::write(&cert, &peer.cert_pem).unwrap();
    std::fs::write(&key, &peer.key_pem).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    (cert, key)
}

#[test]
fn peers_of_an_ssl_torrent_meet_in_tls12_and_13() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["data", "données 2026", "*"] {
        let (root, a) = ssl(dir.path(), name);
        let peer = root.issue(name).unwrap();
        let (cert, key) = write(&peer, dir.path());
        let b = SslTorrent::new(root.cert_pem(), name, &SslPeer::read(&cert, &key).unwrap()).unwrap();
        let hash = [0xab; 20];
        let (_, s) = connect(a.client(), b.server(), server_name(&hash)).unwrap();
        assert_eq!(info_hash_of(s.server_name().unwrap()), Some(hash));
        // An old stock client, which has TLS 1.2 only.
        let old = careless(&TLS12, Some(&peer));
        let (c, _) = connect(old, b.server(), server_name(&hash)).unwrap();
        assert_eq!(c.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_2));
    }
}

#[test]
fn a_root_is_made_once_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (first, a) = ssl(dir.path(), "data");
    let (again, b) = ssl(dir.path(), "data");
    assert_eq!(first.cert_pem(), again.cert_pem());
    connect(a.client(), b.server(), server_name(&[1; 20])).unwrap();
}

#[test]
fn ssl_peers_of_another_root_or_torrent_are_refused() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (root, good) = ssl(one.path(), "data");
    let (other_root, _) = ssl(two.path(), "data");
    let other = other_root.issue("data").unwrap();
    // It knows the right root (it is public) but was certified by another.
    let foreign = SslTorrent::new(root.cert_pem(), "data", &other).unwrap();
    let sni = || server_name(&[7; 20]);
    assert!(connect(foreign.client(), good.server(), sni()).is_err());
    assert!(connect(good.client(), foreign.server(), sni()).is_err());
    let bare = careless(&TLS13, None);
    assert!(connect(bare, good.server(), sni()).is_err(), "no certificate at all");
    // The right root, but for another torrent.
    let elsewhere = SslTorrent::new(root.cert_pem(), "data", &root.issue("secrets").unwrap()).unwrap();
    assert!(connect(elsewhere.client(), good.server(), sni()).is_err());
    assert!(connect(good.client(), elsewhere.server(), sni()).is_err());
}

#[test]
fn bad_pem_of_an_ssl_torrent_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (root, _) = ssl(dir.path(), "data");
    let peer = root.issue("data").unwrap();
    assert!(!format!("{peer:?}").contains("PRIVATE"));
    assert!(SslTorrent::new("no certificate", "data", &peer).is_err());
    assert!(SslTorrent::new(&"x".repeat(1 << 20), "data", &peer).is_err());
    let swapped = SslPeer { cert_pem: root.cert_pem().to_owned(), ..peer.clone() };
    let mixed = SslTorrent::new(root.cert_pem(), "data", &swapped);
    assert!(mixed.is_err(), "certificate and key do not belong together");
}
