//! libtorrent's SSL torrents: a root certificate in the manifest, peers with certificates that it signed.
//!
//! The convention (libtorrent manual, "SSL torrents"): the info dictionary's `ssl-cert` holds a root in PEM; a peer
//! connects by TLS with the hexadecimal 20-byte info-hash as server name (SNI); each side checks that the other's
//! certificate chains to that root and names the torrent, or `*`, in a DNS alternative name or the common name.
//! Host names are not checked. TLS 1.2 and 1.3 are both supported, as stock clients need. Promises: the root's key
//! stays in the state directory; a peer without a certificate of the root gets no byte.

use std::path::Path;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName as Dn, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::client::Resumption;
use rustls::crypto::ring as provider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::verifier::{CertificatePolicy, PolicyResult, Signed, Verifier};
use crate::{Error, files};

/// Longest PEM text that is parsed, bytes: a manifest could contain a larger one.
const MAX_PEM: usize = 64 << 10;

fn tls(e: impl std::fmt::Display) -> Error {
    Error::Tls(e.to_string())
}

/// A publisher's root: signs the certificates of the peers of its SSL torrents.
#[derive(Debug)]
pub struct SslRoot {
    issuer: Issuer<'static, KeyPair>,
    cert_pem: String,
}

impl SslRoot {
    /// Name of the file in the state directory: the root's certificate and key, PEM.
    pub const FILE: &str = "ssl-root.pem";

    /// The root of `state_dir`, made there (0600) the first time.
    ///
    /// # Errors
    /// The file cannot be read or written, may be read by others, or is damaged.
    pub fn load_or_create(state_dir: &Path) -> Result<Self, Error> {
        let path = state_dir.join(Self::FILE);
        if let Some(root) = Self::load(&path)? {
            return Ok(root);
        }
        files::make_dir(state_dir)?;
        let key = KeyPair::generate().map_err(tls)?;
        let cert = root_params(&key).self_signed(&key).map_err(tls)?;
        let pem = cert.pem() + &key.serialize_pem();
        files::create(&path, pem.as_bytes())?;
        // Read back, so that of two processes that start at once both use the file that won.
        let why = "it disappeared during reading".to_owned();
        Self::load(&path)?.ok_or(Error::Damaged { path, why })
    }

    fn load(path: &Path) -> Result<Option<Self>, Error> {
        let Some(bytes) = files::read_secret(path)? else {
            return Ok(None);
        };
        let damaged = |why: &str| Error::Damaged { path: path.to_owned(), why: why.to_owned() };
        let text = String::from_utf8(bytes).map_err(|_| damaged("not text"))?;
        let at = text.find("-----BEGIN PRIVATE KEY").ok_or_else(|| damaged("no private key"))?;
        let (cert_pem, key_pem) = text.split_at(at);
        let key = KeyPair::from_pem(key_pem).map_err(|_| damaged("the key does not parse"))?;
        certificates(cert_pem).map_err(|_| damaged("the certificate does not parse"))?;
        let issuer = Issuer::new(root_params(&key), key);
        Ok(Some(Self { issuer, cert_pem: cert_pem.to_owned() }))
    }

    /// The root certificate for the manifest's `ssl-cert`, PEM.
    #[must_use]
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// A certificate and key with which a peer may join the torrent called `name`.
    ///
    /// # Errors
    /// [`Error::Tls`] if it cannot be made.
    pub fn issue(&self, name: &str) -> Result<SslPeer, Error> {
        let key = KeyPair::generate().map_err(tls)?;
        let mut params = dated();
        params.distinguished_name.push(DnType::CommonName, name);
        // An alternative name holds ASCII only; the common name above carries any other.
        if let Ok(ascii) = name.to_owned().try_into() {
            params.subject_alt_names.push(SanType::DnsName(ascii));
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let cert = params.signed_by(&key, &self.issuer).map_err(tls)?;
        Ok(SslPeer { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }
}

fn dated() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = Dn::new();
    params.not_before = date_time_ymd(2020, 1, 1);
    // The convention knows no renewal: a torrent and its certificates live as long as each other.
    params.not_after = date_time_ymd(2120, 1, 1);
    params
}

fn root_params(key: &KeyPair) -> CertificateParams {
    let mut params = dated();
    let id = params.key_identifier(key);
    let short = HEXLOWER.encode(id.get(..8).unwrap_or(&id));
    params.distinguished_name.push(DnType::CommonName, format!("Tidecast SSL torrents {short}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// The credentials of a peer of an SSL torrent: its certificate and private key, PEM. `Debug` hides the key.
#[derive(Clone)]
pub struct SslPeer {
    /// Certificate, PEM.
    pub cert_pem: String,
    /// Private key (PKCS #8), PEM.
    pub key_pem: String,
}

impl std::fmt::Debug for SslPeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SslPeer").field("cert_pem", &self.cert_pem).finish_non_exhaustive()
    }
}

impl SslPeer {
    /// Reads the files that `tidecast publish --ssl-export` or another program wrote.
    ///
    /// # Errors
    /// A file is missing, cannot be read, or is not PEM text; other users may read the key.
    pub fn read(cert: &Path, key: &Path) -> Result<Self, Error> {
        let text = |path: &Path| {
            let fail = |source| Error::File { action: "read", path: path.to_owned(), source };
            std::fs::read_to_string(path).map_err(fail)
        };
        let key_pem = String::from_utf8(files::read_private(key)?);
        let key_pem = key_pem.map_err(|_| Error::Damaged { path: key.to_owned(), why: "not text".into() })?;
        Ok(Self { cert_pem: text(cert)?, key_pem })
    }
}

/// One SSL torrent as seen by a peer that may join it: the TLS configurations.
#[derive(Debug)]
pub struct SslTorrent {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl SslTorrent {
    /// `root_pem` is the manifest's `ssl-cert`, `name` the torrent's name.
    ///
    /// # Errors
    /// [`Error::Tls`] when a certificate or the key does not parse, or they do not belong together.
    pub fn new(root_pem: &str, name: &str, peer: &SslPeer) -> Result<Self, Error> {
        let provider = Arc::new(provider::default_provider());
        let mut roots = RootCertStore::empty();
        for cert in certificates(root_pem)? {
            roots.add(cert).map_err(tls)?;
        }
        let roots = Arc::new(roots);
        let inner = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(tls)?;
        let key = PrivateKeyDer::from_pem_slice(peer.key_pem.as_bytes()).map_err(tls)?;
        let verifier = Arc::new(Verifier(RootVerifier { roots, inner, name: name.to_owned() }));
        let certs = certificates(&peer.cert_pem)?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(tls)?
            .with_client_cert_verifier(verifier.clone())
            .with_single_cert(certs.clone(), key.clone_key())
            .map_err(tls)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(tls)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(certs, key)
            .map_err(tls)?;
        client.resumption = Resumption::disabled();
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }

    /// For accepting peers.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    /// For connecting to peers, with [`server_name`] as the name.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }
}

/// The server name (SNI) that selects the torrent: its 20-byte info-hash in hexadecimal.
#[must_use]
pub fn server_name(info_hash: &[u8; 20]) -> ServerName<'static> {
    let hex = HEXLOWER.encode(info_hash);
    // Forty hexadecimal digits are always a valid name; the fallback cannot be reached.
    ServerName::try_from(hex).unwrap_or_else(|_| crate::placeholder_name())
}

/// The info-hash that a connecting peer named (SNI), if it is one.
#[must_use]
pub fn info_hash_of(server_name: &str) -> Option<[u8; 20]> {
    data_encoding::HEXLOWER_PERMISSIVE.decode(server_name.as_bytes()).ok()?.try_into().ok()
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    if pem.len() > MAX_PEM {
        return Err(Error::Tls("the certificate is too long".into()));
    }
    let certs = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(tls)?;
    if certs.is_empty() { Err(Error::Tls("no certificate found".into())) } else { Ok(certs) }
}

/// True when the certificate names the torrent or `*`.
fn names(cert: &CertificateDer<'_>, torrent: &str) -> Option<bool> {
    let (_, cert) = X509Certificate::from_der(cert).ok()?;
    let fits = |name: &str| name == "*" || name == torrent;
    let alternative = cert.subject_alternative_name().ok()?;
    let mut alternative = alternative.iter().flat_map(|ext| &ext.value.general_names);
    let mut common = cert.subject().iter_common_name().filter_map(|cn| cn.as_str().ok());
    let found = alternative.any(|n| matches!(n, GeneralName::DNSName(n) if fits(n))) || common.any(fits);
    Some(found)
}

/// Chain to the torrent's root, and the torrent's name; webpki does the chain, both ways.
#[derive(Debug)]
struct RootVerifier {
    roots: Arc<RootCertStore>,
    inner: Arc<dyn ClientCertVerifier>,
    name: String,
}

impl RootVerifier {
    fn check_name(&self, cert: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        match names(cert, &self.name) {
            Some(true) => Ok(()),
            Some(false) => Err(CertificateError::NotValidForName.into()),
            None => Err(CertificateError::BadEncoding.into()),
        }
    }
}

impl CertificatePolicy for RootVerifier {
    fn server(&self, cert: &CertificateDer<'_>, more: &[CertificateDer<'_>], now: UnixTime) -> PolicyResult {
        let parsed = ParsedCertificate::try_from(cert)?;
        let algorithms = provider::default_provider().signature_verification_algorithms.all;
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            more,
            now,
            algorithms,
        )?;
        self.check_name(cert)
    }

    fn client(&self, cert: &CertificateDer<'_>, more: &[CertificateDer<'_>], now: UnixTime) -> PolicyResult {
        self.inner.verify_client_cert(cert, more, now)?;
        self.check_name(cert)
    }

    fn tls12(&self, message: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct) -> Signed {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn tls13(&self, message: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct) -> Signed {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }

    fn roots(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }
}
