//! A small certificate authority, in one directory, for sites without a CA.
//!
//! The root (ECDSA P-256, ten years) signs certificates for hosts and users directly; there are no intermediates.
//! `ca.pem` (root and key, 0600) and `ca.json` (issued and revoked certificates) are the state; `ca.crt` and `ca.crl`
//! are made from them, for the daemons. Promises: every change is made under a lock on the newest state and is
//! durable before it is answered; files appear whole or not at all; a revocation list only ever has a higher number
//! than those before it.

pub(crate) mod enrolment;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData,
    RevokedCertParams, SanType, SerialNumber, SignatureAlgorithm,
};
use ring::rand::SecureRandom;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use self::enrolment::Invited;
use crate::credential::CLOCK_SKEW;
use crate::{Error, Identity, NodeId, files};

/// Default lifetime of a certificate, seconds: a year.
pub const CERT_LIFETIME: u64 = 365 * DAY;
/// How long a root lasts, seconds: ten years. No certificate of it lasts longer.
const ROOT_LIFETIME: u64 = 10 * 365 * DAY;
/// When the next revocation list is due, seconds.
const CRL_LIFETIME: u64 = 90 * DAY;
const DAY: u64 = 24 * 3600;
/// Most certificates that have not run out.
const MAX_ISSUED: usize = 50_000;
const FORMAT: u32 = 1;

/// The authority of a site.
pub struct SiteCa {
    dir: PathBuf,
    name: String,
    root_pem: String,
    not_after: u64,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for SiteCa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SiteCa").field("dir", &self.dir).field("name", &self.name).finish_non_exhaustive()
    }
}

/// A certificate that the authority has issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertInfo {
    /// Serial number, hexadecimal.
    pub serial: String,
    /// The identity that it proves.
    pub identity: Identity,
    /// The node whose key it has; none if a key was created for it.
    pub node: Option<NodeId>,
    /// When it runs out, seconds since 1970.
    pub not_after: u64,
    /// When it was revoked, if it was.
    pub revoked: Option<u64>,
}

/// A new certificate.
#[derive(Clone)]
pub struct Issued {
    /// Serial number, hexadecimal.
    pub serial: String,
    /// When it runs out, seconds since 1970.
    pub not_after: u64,
    /// The certificate and, if a key was made for it, that: PEM. A reader of the key can act for the
    /// identity.
    pub pem: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("serial", &self.serial).finish_non_exhaustive()
    }
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct State {
    format: u32,
    /// Number of the latest revocation list.
    crl: u64,
    /// Certificates that have not run out, by serial number.
    issued: BTreeMap<String, Entry>,
    /// Invitations that have not expired, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    invitations: BTreeMap<String, Invited>,
}

impl State {
    fn add(&mut self, serial: &str, entry: Entry) -> Result<(), Error> {
        if self.issued.len() >= MAX_ISSUED {
            return Err(Error::TooMany { what: "certificates", limit: MAX_ISSUED });
        }
        self.issued.insert(serial.to_owned(), entry);
        Ok(())
    }
}

#[derive(Clone, Serialize, Deserialize)]
struct Entry {
    identity: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    not_after: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked: Option<u64>,
    /// For how long it was issued, seconds: its renewals last as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lifetime: Option<u64>,
}

impl SiteCa {
    /// Root certificate and key, PEM, 0600.
    pub const ROOT: &str = "ca.pem";
    const STATE: &str = "ca.json";
    /// The root certificate alone, PEM: the daemons of the site trust it.
    pub const CERT: &str = "ca.crt";
    /// The revocation list, PEM: the daemons check it.
    pub const CRL: &str = "ca.crl";

    /// The trust file for the two files above: TOML.
    pub const TRUST: (&str, &str) = ("trust.toml", "[[root]]\ncertificate = \"ca.crt\"\ncrl = \"ca.crl\"\n");

    /// Makes the authority called `name` in `dir`.
    ///
    /// # Errors
    /// There is one already, or a file cannot be written.
    pub fn init(dir: &Path, name: &str, now: u64) -> Result<Self, Error> {
        let sound = (1..=64).contains(&name.len()) && !name.chars().any(char::is_control);
        if !sound {
            return Err(Error::Ca("the name must have 1 to 64 bytes and no control characters".into()));
        }
        files::make_dir(dir)?;
        files::check_own(dir)?;
        let key = KeyPair::generate().map_err(|_| Error::Random)?;
        let mut params = root_params(name);
        (params.not_before, params.not_after) = dates(now, ROOT_LIFETIME)?;
        let cert = params.self_signed(&key).map_err(failed)?;
        let pem = cert.pem() + &key.serialize_pem();
        if !files::create(&dir.join(Self::ROOT), pem.as_bytes())? {
            return Err(Error::Ca(format!("{} already contains a CA", dir.display())));
        }
        let (name, text) = Self::TRUST;
        files::replace_public(&dir.join(name), text.as_bytes())?;
        let ca = Self::open(dir)?;
        ca.change(now, |_| Ok::<_, Error>(()))?;
        Ok(ca)
    }

    /// The authority in `dir`.
    ///
    /// # Errors
    /// It does not exist, others may read its files, or they are damaged.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(Self::ROOT);
        let Some(bytes) = files::read_secret(&path)? else {
            return Err(Error::Ca(format!(
                "no CA in {dir}; create one with: tidecast ca init {dir}",
                dir = dir.display()
            )));
        };
        files::check_own(dir)?;
        let damaged = |why: &str| Error::Damaged { path: path.clone(), why: why.to_owned() };
        let text = String::from_utf8(bytes).map_err(|_| damaged("not text"))?;
        let at = text.find("-----BEGIN PRIVATE KEY").ok_or_else(|| damaged("no private key"))?;
        let (root_pem, key_pem) = text.split_at(at);
        let key = KeyPair::from_pem(key_pem).map_err(|_| damaged("the key does not parse"))?;
        let der =
            CertificateDer::from_pem_slice(root_pem.as_bytes()).map_err(|_| damaged("no certificate"))?;
        let (_, cert) =
            X509Certificate::from_der(&der).map_err(|_| damaged("the certificate does not parse"))?;
        let name = cert.subject().iter_common_name().next().and_then(|cn| cn.as_str().ok());
        let name = name.ok_or_else(|| damaged("the certificate has no name"))?.to_owned();
        let not_after = cert.validity().not_after.timestamp().try_into().unwrap_or(0);
        let issuer = Issuer::new(root_params(&name), key);
        Ok(Self { dir: dir.to_owned(), name, root_pem: root_pem.to_owned(), not_after, issuer })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When its root runs out, seconds since 1970.
    #[must_use]
    pub fn not_after(&self) -> u64 {
        self.not_after
    }

    /// Issues a certificate for `identity`: for the key of `node`, or for a fresh key, which comes with it.
    ///
    /// # Errors
    /// The root has run out, there are too many certificates, or the state cannot be written.
    pub fn issue(
        &self,
        identity: &Identity,
        node: Option<NodeId>,
        lifetime: u64,
        now: u64,
    ) -> Result<Issued, Error> {
        let (issued, entry) = self.sign(identity, node, lifetime, now)?;
        self.change(now, |state| state.add(&issued.serial, entry))?;
        Ok(issued)
    }

    fn sign(
        &self,
        identity: &Identity,
        node: Option<NodeId>,
        lifetime: u64,
        now: u64,
    ) -> Result<(Issued, Entry), Error> {
        let lifetime = lifetime.min(self.not_after.saturating_sub(now));
        if lifetime == 0 {
            return Err(Error::Ca(
                "cannot issue a certificate: the lifetime is 0, or the root certificate has expired".into(),
            ));
        }
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = dates(now, lifetime)?;
        params.distinguished_name = common_name(&identity.to_string());
        let uri = identity.uri().try_into().map_err(failed)?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let serial = serial()?;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        let pem = match node {
            Some(node) => params.signed_by(&NodePublic(node), &self.issuer).map_err(failed)?.pem(),
            None => {
                let key = KeyPair::generate().map_err(|_| Error::Random)?;
                params.signed_by(&key, &self.issuer).map_err(failed)?.pem() + &key.serialize_pem()
            }
        };
        let (serial, not_after) = (HEXLOWER.encode(&serial), now + lifetime);
        let node = node.map(|n| n.to_string());
        let entry = Entry {
            identity: identity.to_string(),
            node,
            not_after,
            revoked: None,
            lifetime: Some(lifetime),
        };
        Ok((Issued { serial, not_after, pem }, entry))
    }

    /// Revokes a certificate by its serial number, or all of an identity; returns their serial numbers.
    ///
    /// # Errors
    /// No such certificate that is still valid, or the state cannot be written.
    pub fn revoke(&self, which: &str, now: u64) -> Result<Vec<String>, Error> {
        let mut revoked = Vec::new();
        self.change(now, |state| {
            for (serial, entry) in &mut state.issued {
                if *serial == which || entry.identity == which {
                    entry.revoked.get_or_insert(now);
                    revoked.push(serial.clone());
                }
            }
            if revoked.is_empty() {
                return Err(Error::Ca(format!(
                    "no valid certificate {which:?}; `tidecast ca show` with the CA's directory lists them"
                )));
            }
            Ok(())
        })?;
        Ok(revoked)
    }

    /// A revocation list with a new number and date, in place of one that is soon out of date.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn renew_crl(&self, now: u64) -> Result<(), Error> {
        self.change(now, |_| Ok::<_, Error>(()))
    }

    /// The certificates that have not run out.
    ///
    /// # Errors
    /// The state cannot be read or is damaged.
    pub fn certificates(&self) -> Result<Vec<CertInfo>, Error> {
        let damaged = || self.damaged("malformed certificate in the file");
        let info = |(serial, entry): (String, Entry)| {
            let identity = entry.identity.parse().map_err(|_| damaged())?;
            let node = entry.node.map(|n| n.parse()).transpose().map_err(|_| damaged())?;
            Ok(CertInfo { serial, identity, node, not_after: entry.not_after, revoked: entry.revoked })
        };
        self.read()?.issued.into_iter().map(info).collect()
    }

    fn damaged(&self, why: &str) -> Error {
        Error::Damaged { path: self.dir.join(Self::STATE), why: why.to_owned() }
    }

    fn read(&self) -> Result<State, Error> {
        let Some(bytes) = files::read_secret(&self.dir.join(Self::STATE))? else {
            return Ok(State { format: FORMAT, ..State::default() });
        };
        let state: State = serde_json::from_slice(&bytes).map_err(|e| self.damaged(&e.to_string()))?;
        let serials = state.issued.keys().all(|s| HEXLOWER.decode(s.as_bytes()).is_ok());
        if state.format != FORMAT || !serials {
            return Err(self.damaged("unknown format"));
        }
        Ok(state)
    }

    /// Changes the state under the lock, then writes the files that depend on it.
    fn change<E: From<Error>>(
        &self,
        now: u64,
        change: impl FnOnce(&mut State) -> Result<(), E>,
    ) -> Result<(), E> {
        let _lock = files::lock(&self.dir.join("ca.lock"))?;
        let mut state = self.read()?;
        // RFC 5280, 3.3: a revoked certificate stays in one list beyond its end.
        state.issued.retain(|_, entry| entry.not_after.saturating_add(CRL_LIFETIME) > now);
        state.invitations.retain(|_, invited| !invited.has_expired(now));
        change(&mut state)?;
        state.crl += 1;
        let list = self.sign_list(&state, now)?;
        let json = serde_json::to_vec_pretty(&state).map_err(|e| self.damaged(&e.to_string()))?;
        files::replace(&self.dir.join(Self::STATE), &json)?;
        files::replace_public(&self.dir.join(Self::CERT), self.root_pem.as_bytes())?;
        Ok(files::replace_public(&self.dir.join(Self::CRL), list.as_bytes())?)
    }

    fn sign_list(&self, state: &State, now: u64) -> Result<String, Error> {
        let revoked = |(serial, entry): (&String, &Entry)| {
            let serial = HEXLOWER.decode(serial.as_bytes()).ok()?;
            let revocation_time = date(entry.revoked?).ok()?;
            let serial_number = SerialNumber::from_slice(&serial);
            Some(RevokedCertParams {
                serial_number,
                revocation_time,
                reason_code: None,
                invalidity_date: None,
            })
        };
        let params = CertificateRevocationListParams {
            this_update: date(now)?,
            next_update: date(now + CRL_LIFETIME)?,
            crl_number: SerialNumber::from(state.crl),
            issuing_distribution_point: None,
            revoked_certs: state.issued.iter().filter_map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).and_then(|list| list.pem()).map_err(failed)
    }
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Ca(e.to_string())
}

fn common_name(name: &str) -> DistinguishedName {
    let mut dn = DistinguishedName::new();
    dn.push(DnType::CommonName, name);
    dn
}

fn root_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn date(seconds: u64) -> Result<OffsetDateTime, Error> {
    let seconds = i64::try_from(seconds).map_err(failed)?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(failed)
}

/// Clocks differ: valid from a little earlier.
fn dates(now: u64, lifetime: u64) -> Result<(OffsetDateTime, OffsetDateTime), Error> {
    Ok((date(now.saturating_sub(CLOCK_SKEW))?, date(now.saturating_add(lifetime))?))
}

/// Sixteen random bytes, as a positive number (RFC 5280, 4.1.2.2).
fn serial() -> Result<[u8; 16], Error> {
    let mut serial = [0; 16];
    ring::rand::SystemRandom::new().fill(&mut serial).map_err(|_| Error::Random)?;
    serial[0] = serial[0] & 0x3f | 0x40;
    Ok(serial)
}

/// The public key of a node, for a certificate.
struct NodePublic(NodeId);

impl PublicKeyData for NodePublic {
    fn der_bytes(&self) -> &[u8] {
        &self.0.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ED25519
    }
}
