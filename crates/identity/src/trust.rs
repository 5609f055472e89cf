//! The trust of a site's daemons: roots, revocation lists, and the identity that a certificate proves.
//!
//! A root is that of [`crate::SiteCa`], whose certificates contain an identity themselves (`tidecast:host/NAME`),
//! or an existing one of the site, with rules that map its certificates to identities. With rules, a `tidecast:`
//! URI in a certificate is ignored: that CA does not know its meaning and may sign it on request. A site without a
//! CA lists its nodes. docs/trust.md describes the file.
//!
//! Promises: chains are built and checked by webpki (signatures, dates, CA flags, path lengths, name constraints,
//! extended key usage, revocation of every certificate), each root alone, with its own lists and rules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring as provider;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime};
use serde::Deserialize;
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage, OwnedCertRevocationList,
    RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy, anchor_from_trusted_cert,
};
use x509_parser::prelude::{CertificateRevocationList, FromDer, GeneralName, X509Certificate, X509Name};

use crate::credential::CLOCK_SKEW;
use crate::{Card, CardError, Error, Identity, NodeId};

/// The result of verifying a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The identity of the node.
    pub identity: Identity,
    /// Until when, seconds since 1970: the end of the card or its certificate.
    pub not_after: u64,
}

/// The trust settings.
#[derive(Debug, Default)]
pub struct Trust {
    roots: Vec<Root>,
    nodes: BTreeMap<NodeId, Identity>,
    fresh_lists: bool,
    files: Vec<PathBuf>,
}

#[derive(Debug)]
struct Root {
    anchor: TrustAnchor<'static>,
    /// When the root itself is good, seconds since 1970.
    valid: (u64, u64),
    lists: Arc<Vec<CertRevocationList<'static>>>,
    /// None: its certificates name their identity.
    rules: Option<Vec<Rule>>,
}

/// The file `trust.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    fresh_crl: bool,
    root: Vec<RootSettings>,
    node: Vec<NodeSettings>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RootSettings {
    certificate: String,
    crl: Option<String>,
    map: Option<Vec<Rule>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeSettings {
    id: String,
    identity: String,
}

/// One of `subject`, `dns`, `email`, `uri`, and the identity that it maps to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    subject: Option<String>,
    dns: Option<String>,
    email: Option<String>,
    uri: Option<String>,
    identity: String,
}

impl Trust {
    /// Reads `trust.toml`; the files it names lie beside it unless their paths are absolute.
    ///
    /// # Errors
    /// [`Error::File`] or [`Error::Trust`], with the name that is wrong.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = String::from_utf8_lossy(&read(path)?).into_owned();
        let dir = path.parent().unwrap_or(Path::new("."));
        let files = std::cell::RefCell::new(vec![path.to_owned()]);
        let mut trust = Self::from_toml(&text, |name| {
            let file = dir.join(name);
            files.borrow_mut().push(file.clone());
            read(&file)
        })?;
        trust.files = files.into_inner();
        Ok(trust)
    }

    /// As [`Trust::read`], the text given, the files it names by `file`.
    ///
    /// # Errors
    /// As there.
    pub fn from_toml(text: &str, file: impl Fn(&str) -> Result<Vec<u8>, Error>) -> Result<Self, Error> {
        let settings: Settings = toml::from_str(text).map_err(|e| Error::Trust(e.to_string()))?;
        let mut trust = Self { fresh_lists: settings.fresh_crl, ..Self::default() };
        for node in settings.node {
            let identity = node.identity.parse().map_err(bad)?;
            trust.nodes.insert(node.id.parse()?, identity);
        }
        for root in settings.root {
            root.map.iter().flatten().try_for_each(Rule::check)?;
            let list = root.crl.as_deref().map(&file).transpose()?;
            trust.add_root(&file(&root.certificate)?, list.as_deref(), root.map)?;
        }
        Ok(trust)
    }

    /// Trusts a site CA: its root and revocation list, PEM.
    ///
    /// # Errors
    /// [`Error::Trust`] when one does not parse.
    pub fn site(root: &[u8], list: Option<&[u8]>) -> Result<Self, Error> {
        let mut trust = Self::default();
        trust.add_root(root, list, None)?;
        Ok(trust)
    }

    fn add_root(&mut self, pem: &[u8], list: Option<&[u8]>, rules: Option<Vec<Rule>>) -> Result<(), Error> {
        let lists = Arc::new(list.map(lists).transpose()?.unwrap_or_default());
        let certs = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(bad)?;
        if certs.is_empty() {
            return Err(Error::Trust("no root certificate in the file".into()));
        }
        for cert in certs {
            let (_, parsed) = X509Certificate::from_der(&cert).map_err(bad)?;
            if !parsed.is_ca() {
                return Err(Error::Trust(format!("{} is not a CA certificate", subject(parsed.subject()))));
            }
            let seconds = |t: i64| u64::try_from(t).unwrap_or(0);
            let valid = parsed.validity();
            let valid = (seconds(valid.not_before.timestamp()), seconds(valid.not_after.timestamp()));
            let anchor = anchor_from_trusted_cert(&cert).map_err(bad)?.to_owned();
            self.roots.push(Root { anchor, valid, lists: lists.clone(), rules: rules.clone() });
        }
        Ok(())
    }

    /// The files that were read: after a change they must be read again.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// SHA-256 of the name and key of each root.
    #[must_use]
    pub fn roots(&self) -> Vec<[u8; 32]> {
        let print = |root: &Root| {
            let (name, key) = (&root.anchor.subject, &root.anchor.subject_public_key_info);
            let sum = ring::digest::digest(&ring::digest::SHA256, &[name.as_ref(), key.as_ref()].concat());
            sum.as_ref().first_chunk().copied().unwrap_or_default()
        };
        self.roots.iter().map(print).collect()
    }

    /// The identity of a listed node, with or without a card.
    #[must_use]
    pub fn listed(&self, node: NodeId) -> Option<&Identity> {
        self.nodes.get(&node)
    }

    /// Verifies the card of `node`, whose key TLS has proven.
    ///
    /// # Errors
    /// Why it is not valid.
    pub fn verify(&self, card: &Card, node: NodeId, now: u64) -> Result<Verified, CardError> {
        if card.node != node {
            return Err(CardError::WrongNode);
        }
        if now >= card.not_after {
            return Err(CardError::Expired { end: card.not_after, now });
        }
        if now.saturating_add(CLOCK_SKEW) < card.not_before {
            return Err(CardError::NotYetValid { start: card.not_before, now });
        }
        // The most useful reason is that of a root which could have issued it.
        let mut reason = CardError::UnknownIssuer;
        for root in &self.roots {
            match root.check(card, self.fresh_lists, now) {
                Ok(verified) if card.is_signed() => return Ok(verified),
                Ok(_) => return Err(CardError::BadSignature),
                Err(CardError::UnknownIssuer) => {}
                Err(why) => reason = why,
            }
        }
        Err(reason)
    }
}

impl Root {
    fn check(&self, card: &Card, fresh: bool, now: u64) -> Result<Verified, CardError> {
        let Some((leaf, issuers)) = card.chain.split_first() else { return Err(CardError::Malformed) };
        if now.saturating_add(CLOCK_SKEW) < self.valid.0 {
            return Err(CardError::NotYetValid { start: self.valid.0, now });
        }
        if now >= self.valid.1 {
            return Err(CardError::Expired { end: self.valid.1, now });
        }
        self.check_chain(leaf, issuers, fresh, now)?;
        let parse =
            |e: x509_parser::nom::Err<x509_parser::error::X509Error>| CardError::Certificate(e.to_string());
        for issuer in issuers {
            let (_, issuer) = X509Certificate::from_der(issuer).map_err(parse)?;
            let usage = issuer.key_usage().map_err(|e| CardError::Certificate(e.to_string()))?;
            if usage.is_some_and(|u| !u.value.key_cert_sign()) {
                return Err(CardError::KeyUsage);
            }
        }
        let (_, cert) = X509Certificate::from_der(leaf).map_err(parse)?;
        let usage = cert.key_usage().map_err(|e| CardError::Certificate(e.to_string()))?;
        if usage.is_some_and(|u| !u.value.digital_signature()) {
            return Err(CardError::KeyUsage);
        }
        let end = u64::try_from(cert.validity().not_after.timestamp()).unwrap_or(0);
        Ok(Verified { identity: self.identity(&cert)?, not_after: end.min(card.not_after) })
    }

    fn check_chain(
        &self,
        leaf: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        fresh: bool,
        now: u64,
    ) -> Result<(), CardError> {
        let cert = EndEntityCert::try_from(leaf).map_err(reason)?;
        let lists: Vec<_> = self.lists.iter().collect();
        let expiration = if fresh { ExpirationPolicy::Enforce } else { ExpirationPolicy::Ignore };
        let check = |usage| {
            let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
                options
                    .with_depth(RevocationCheckDepth::Chain)
                    .with_status_policy(UnknownStatusPolicy::Allow)
                    .with_expiration_policy(expiration)
                    .build()
            });
            cert.verify_for_usage(
                provider::default_provider().signature_verification_algorithms.all,
                std::slice::from_ref(&self.anchor),
                issuers,
                UnixTime::since_unix_epoch(std::time::Duration::from_secs(now)),
                usage,
                revocation,
                None,
            )
            .map(drop)
        };
        // Daemons call and are called: either purpose will do, and so will a certificate that names none.
        match check(KeyUsage::client_auth()) {
            Err(webpki::Error::RequiredEkuNotFoundContext(_)) => check(KeyUsage::server_auth()),
            other => other,
        }
        .map_err(reason)
    }

    fn identity(&self, cert: &X509Certificate<'_>) -> Result<Identity, CardError> {
        let names = cert.subject_alternative_name().map_err(|e| CardError::Certificate(e.to_string()))?;
        let names = names.map(|ext| ext.value.general_names.as_slice()).unwrap_or_default();
        let subject = subject(cert.subject());
        let mut found = match &self.rules {
            Some(rules) => rules.iter().filter_map(|rule| rule.apply(&subject, names)).collect(),
            None => {
                let uris =
                    names.iter().filter_map(|n| if let GeneralName::URI(u) = n { Some(*u) } else { None });
                uris.filter_map(Identity::from_uri).collect::<Vec<_>>()
            }
        };
        found.dedup();
        match found.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(CardError::NoIdentity(subject)),
            _ => Err(CardError::NoIdentity(format!("{subject} matches several identities"))),
        }
    }
}

impl Rule {
    fn check(&self) -> Result<(), Error> {
        let given = [&self.subject, &self.dns, &self.email, &self.uri].into_iter().flatten().count();
        let wild = self.dns.as_deref().is_some_and(|d| d.starts_with("*."));
        let who = if wild { self.identity.replacen('*', "x", 1) } else { self.identity.clone() };
        if given != 1 {
            return Err(Error::Trust(format!(
                "the rule for {} needs exactly one of subject, dns, email, uri",
                self.identity
            )));
        }
        who.parse::<Identity>().map(drop).map_err(bad)
    }

    fn apply(&self, subject: &str, names: &[GeneralName<'_>]) -> Option<Identity> {
        let by_name = || names.iter().find_map(|name| self.apply_name(name));
        let who =
            if self.subject.as_deref() == Some(subject) { Some(self.identity.clone()) } else { by_name() };
        who?.parse().ok()
    }

    fn apply_name(&self, name: &GeneralName<'_>) -> Option<String> {
        let is = |rule: &Option<String>, name: &str| {
            rule.as_ref().is_some_and(|r| r.eq_ignore_ascii_case(name)).then(|| self.identity.clone())
        };
        match name {
            GeneralName::RFC822Name(name) => is(&self.email, name),
            GeneralName::URI(name) => {
                self.uri.as_deref().filter(|uri| uri == name).map(|_| self.identity.clone())
            }
            GeneralName::DNSName(name) => {
                let Some(domain) = self.dns.as_deref().and_then(|d| d.strip_prefix('*')) else {
                    return is(&self.dns, name);
                };
                // `*` is one label, never none and never more.
                let name = name.to_ascii_lowercase();
                let label = name.strip_suffix(&domain.to_ascii_lowercase())?;
                let one = !label.is_empty() && !label.contains(['.', '*']);
                one.then(|| self.identity.replacen('*', label, 1))
            }
            _ => None,
        }
    }
}

/// Revocation lists, newest first: of two of one issuer the first is asked.
fn lists(pem: &[u8]) -> Result<Vec<CertRevocationList<'static>>, Error> {
    let mut lists = Vec::new();
    for der in CertificateRevocationListDer::pem_slice_iter(pem) {
        let der = der.map_err(bad)?;
        let (_, parsed) = CertificateRevocationList::from_der(&der).map_err(bad)?;
        let list = OwnedCertRevocationList::from_der(&der).map_err(bad)?;
        lists.push((parsed.last_update().timestamp(), CertRevocationList::from(list)));
    }
    if lists.is_empty() {
        return Err(Error::Trust("no revocation list in the file".into()));
    }
    lists.sort_by_key(|(when, _)| std::cmp::Reverse(*when));
    Ok(lists.into_iter().map(|(_, list)| list).collect())
}

/// A distinguished name in the form of rules: `C=DE,O=Uni,CN=Alice`, in the certificate's order; within a value a
/// backslash precedes `\ , + =`, so that no value can pass for two.
fn subject(name: &X509Name<'_>) -> String {
    let value = |a: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        let kind = x509_parser::objects::oid2abbrev(a.attr_type(), x509_parser::objects::oid_registry());
        let kind = kind.map_or_else(|_| a.attr_type().to_id_string(), str::to_owned);
        let mut text = kind + "=";
        for c in a.as_str().unwrap_or("?").chars() {
            if "\\,+=".contains(c) {
                text.push('\\');
            }
            text.push(if c.is_control() { '\u{fffd}' } else { c });
        }
        text
    };
    let rdn = |r: &x509_parser::x509::RelativeDistinguishedName<'_>| {
        r.iter().map(value).collect::<Vec<_>>().join("+")
    };
    name.iter_rdn().map(rdn).collect::<Vec<_>>().join(",")
}

/// The properties of a certificate (PEM) for writing a rule: subject, names, serial number, end.
///
/// # Errors
/// [`Error::Trust`] if it is not a certificate.
pub fn describe(pem: &[u8]) -> Result<Vec<(&'static str, String)>, Error> {
    let der = CertificateDer::from_pem_slice(pem).map_err(bad)?;
    let (_, cert) = X509Certificate::from_der(&der).map_err(bad)?;
    let mut rows = vec![("subject", subject(cert.subject())), ("issuer", subject(cert.issuer()))];
    let names = cert.subject_alternative_name().map_err(bad)?;
    for name in names.iter().flat_map(|ext| &ext.value.general_names) {
        match name {
            GeneralName::DNSName(n) => rows.push(("dns", (*n).to_owned())),
            GeneralName::RFC822Name(n) => rows.push(("email", (*n).to_owned())),
            GeneralName::URI(n) => {
                rows.push(("uri", (*n).to_owned()));
                rows.extend(Identity::from_uri(n).map(|who| ("identity", who.to_string())));
            }
            _ => {}
        }
    }
    rows.push(("serial", data_encoding::HEXLOWER.encode(cert.raw_serial())));
    rows.push(("not_after", cert.validity().not_after.timestamp().to_string()));
    Ok(rows)
}

fn bad(e: impl std::fmt::Display) -> Error {
    Error::Trust(e.to_string())
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::File { action: "read", path: path.to_owned(), source })
}

fn reason(e: webpki::Error) -> CardError {
    use webpki::Error as E;
    match e {
        E::CertExpired { time, not_after } => {
            CardError::Expired { end: not_after.as_secs(), now: time.as_secs() }
        }
        E::CertNotValidYet { time, not_before } => {
            CardError::NotYetValid { start: not_before.as_secs(), now: time.as_secs() }
        }
        E::CertRevoked => CardError::Revoked,
        E::CrlExpired { .. } => CardError::StaleList,
        E::UnknownIssuer => CardError::UnknownIssuer,
        E::MaximumPathDepthExceeded | E::PathLenConstraintViolated => CardError::ChainTooLong,
        E::RequiredEkuNotFoundContext(_) => CardError::KeyUsage,
        other => CardError::Certificate(other.to_string()),
    }
}
