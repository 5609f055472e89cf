//! Cards as daemons meet them: of the site's own CA, of an existing one, and invalid ones.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use tidecast_identity::{Card, CardError, Holder, Identity, MAX_CARD, NodeKey, SiteCa, Trust};

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 24 * 3600;

struct Site {
    dir: tempfile::TempDir,
    ca: SiteCa,
    key: NodeKey,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = SiteCa::init(&dir.path().join("ca"), "Test site", NOW).unwrap();
        Self { dir, ca, key: NodeKey::generate().unwrap() }
    }

    fn trust(&self) -> Trust {
        let file = |name| std::fs::read(self.dir.path().join("ca").join(name)).unwrap();
        Trust::site(&file(SiteCa::CERT), Some(&file(SiteCa::CRL))).unwrap()
    }

    fn card(&self, who: &str, lifetime: u64) -> Card {
        let issued = self.ca.issue(&who.parse().unwrap(), Some(self.key.id()), lifetime, NOW).unwrap();
        Holder::from_pem(issued.pem.as_bytes(), &self.key)
            .unwrap()
            .card(self.key.id(), NOW, 30 * DAY)
            .unwrap()
    }
}

#[test]
fn a_card_says_for_whom_a_node_speaks() {
    let site = Site::new();
    for (who, node) in [("host:n1.lab", Some(site.key.id())), ("user:alice", None)] {
        let issued = site.ca.issue(&who.parse().unwrap(), node, 10 * DAY, NOW).unwrap();
        assert_eq!(issued.pem.contains("PRIVATE KEY"), node.is_none());
        let holder = Holder::from_pem(issued.pem.as_bytes(), &site.key).unwrap();
        let card = holder.card(site.key.id(), NOW, 30 * DAY).unwrap();
        let card = Card::decode(&card.encode()).unwrap();
        let verified = site.trust().verify(&card, site.key.id(), NOW + DAY).unwrap();
        assert_eq!(verified.identity.to_string(), who);
        assert_eq!(verified.not_after, NOW + 10 * DAY, "no longer than its certificate");
    }
}

#[test]
fn a_card_has_its_time() {
    let site = Site::new();
    let card = site.card("host:n1", 10 * DAY);
    let at = |now| site.trust().verify(&card, site.key.id(), now).map(|v| v.identity.to_string());
    assert_eq!(at(NOW - 200), Ok("host:n1".into()), "clocks may differ a little");
    assert_eq!(at(NOW - 400), Err(CardError::NotYetValid { start: NOW, now: NOW - 400 }));
    assert_eq!(at(NOW + 10 * DAY - 1), Ok("host:n1".into()));
    let (end, now) = (NOW + 10 * DAY, NOW + 10 * DAY + 1);
    assert_eq!(at(now), Err(CardError::Expired { end, now }));
    // No card outlives its root.
    let long = site.card("host:n1", 100 * 365 * DAY);
    let root_ended = site.ca.not_after() + 1;
    let ended = site.trust().verify(&long, site.key.id(), root_ended).map(drop);
    assert!(matches!(ended, Err(CardError::Expired { end, .. }) if end < root_ended), "{ended:?}");
}

#[test]
fn the_wrong_ca_is_refused() {
    let (site, other) = (Site::new(), Site::new());
    let card = site.card("host:n1", DAY);
    // The same name, another key.
    assert!(other.trust().verify(&card, site.key.id(), NOW).is_err());
    assert_eq!(Trust::default().verify(&card, site.key.id(), NOW), Err(CardError::UnknownIssuer));
}

#[test]
fn a_card_is_of_one_node_and_one_certificate() {
    let site = Site::new();
    let card = site.card("host:n1", DAY);
    let thief = NodeKey::generate().unwrap();
    assert_eq!(site.trust().verify(&card, thief.id(), NOW), Err(CardError::WrongNode));
    let mut renamed = card.clone();
    renamed.node = thief.id();
    assert_eq!(site.trust().verify(&renamed, thief.id(), NOW), Err(CardError::BadSignature));
    let mut prolonged = card;
    prolonged.not_after += 1;
    assert_eq!(site.trust().verify(&prolonged, site.key.id(), NOW), Err(CardError::BadSignature));
    // A certificate for a key that the holder does not have.
    let issued = site.ca.issue(&Identity::User("bob".into()), Some(site.key.id()), DAY, NOW).unwrap();
    assert!(Holder::from_pem(issued.pem.as_bytes(), &thief).unwrap().card(thief.id(), NOW, DAY).is_err());
}

#[test]
fn no_changed_byte_is_believed() {
    let site = Site::new();
    let bytes = site.card("host:n1", DAY).encode();
    let trust = site.trust();
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        let believed = Card::decode(&bytes).and_then(|card| trust.verify(&card, site.key.id(), NOW));
        assert!(believed.is_err(), "byte {at}: {believed:?}");
    }
}

#[test]
fn what_is_revoked_counts_no_more() {
    let site = Site::new();
    let (one, two) = (site.card("host:n1", DAY), site.card("host:n2", DAY));
    assert!(site.trust().verify(&one, site.key.id(), NOW).is_ok());
    assert_eq!(site.ca.revoke("host:n1", NOW).unwrap().len(), 1);
    assert_eq!(site.trust().verify(&one, site.key.id(), NOW), Err(CardError::Revoked));
    assert!(site.trust().verify(&two, site.key.id(), NOW).is_ok());
    assert!(site.ca.revoke("host:n3", NOW).is_err(), "nothing to revoke");
    // Another process sees it, and a new list has a higher number and still names it.
    let ca = SiteCa::open(&site.dir.path().join("ca")).unwrap();
    let known = ca.certificates().unwrap();
    assert_eq!(known.iter().filter(|c| c.revoked == Some(NOW)).count(), 1);
    ca.renew_crl(NOW + 60).unwrap();
    assert_eq!(site.trust().verify(&one, site.key.id(), NOW + 60), Err(CardError::Revoked));
}

#[test]
fn a_stale_list_counts_unless_the_site_wants_it_fresh() {
    let site = Site::new();
    let card = site.card("host:n1", 365 * DAY);
    let file = |name: &str| Ok(std::fs::read(site.dir.path().join("ca").join(name)).unwrap());
    let read = |fresh: bool| {
        let text = format!("fresh_crl = {fresh}\n[[root]]\ncertificate = \"ca.crt\"\ncrl = \"ca.crl\"\n");
        Trust::from_toml(&text, file).unwrap()
    };
    let card_late = Holder::from_pem(
        site.ca
            .issue(&"host:n1".parse().unwrap(), Some(site.key.id()), 365 * DAY, NOW)
            .unwrap()
            .pem
            .as_bytes(),
        &site.key,
    )
    .unwrap()
    .card(site.key.id(), NOW + 100 * DAY, DAY)
    .unwrap();
    assert!(read(true).verify(&card, site.key.id(), NOW).is_ok());
    assert!(read(false).verify(&card_late, site.key.id(), NOW + 100 * DAY).is_ok());
    assert_eq!(read(true).verify(&card_late, site.key.id(), NOW + 100 * DAY), Err(CardError::StaleList));
}

#[test]
fn the_authority_keeps_its_key_to_itself() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new();
    let dir = site.dir.path().join("ca");
    let wanted =
        [("ca.pem", 0o600), ("ca.json", 0o600), ("ca.crt", 0o644), ("ca.crl", 0o644), ("trust.toml", 0o644)];
    for (name, wanted) in wanted {
        let mode = std::fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, wanted, "{name}");
    }
    assert!(!std::fs::read_to_string(dir.join("ca.crt")).unwrap().contains("PRIVATE"));
    assert!(SiteCa::init(&dir, "again", NOW).is_err(), "a CA is never written over");
    assert!(SiteCa::open(&dir.join("no")).is_err());
    assert!(SiteCa::init(&dir.join("x"), "", NOW).is_err());
    std::fs::set_permissions(dir.join("ca.pem"), PermissionsExt::from_mode(0o644)).unwrap();
    assert!(SiteCa::open(&dir).is_err(), "others can read its key");
}

#[test]
fn a_site_without_a_ca_lists_its_nodes() {
    let (one, two) = (NodeKey::generate().unwrap().id(), NodeKey::generate().unwrap().id());
    let text = format!("[[node]]\nid = \"{one}\"\nidentity = \"host:n1\"\n");
    let trust = Trust::from_toml(&text, |_| unreachable!()).unwrap();
    assert_eq!(trust.listed(one).map(ToString::to_string).as_deref(), Some("host:n1"));
    assert_eq!(trust.listed(two), None);
    for wrong in [
        "[[node]]\nid = \"x\"\nidentity = \"host:n1\"",
        "nodes = 1",
        "[[root]]\ncertificate = \"x\"\n[[root.map]]\nidentity = \"user:a\"",
    ] {
        assert!(Trust::from_toml(wrong, |_| unreachable!()).is_err(), "{wrong}");
    }
}

/// Runs openssl in `dir`; false if it is not installed.
fn openssl(dir: &Path, words: &str) -> bool {
    let words: Vec<_> = words.split(' ').collect();
    match Command::new("openssl").args(&words).current_dir(dir).output() {
        Ok(out) => {
            assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
            true
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("SKIPPED: there is no openssl here; cards of an existing CA were NOT tested");
            false
        }
        Err(e) => panic!("{e}"),
    }
}

/// A root of RSA, an intermediate of ECDSA, both by openssl; false if it is not installed.
fn existing_ca(dir: &Path) -> bool {
    std::fs::write(
        dir.join("mid.ext"),
        "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n",
    )
    .unwrap();
    openssl(
        dir,
        "req -x509 -newkey rsa:2048 -nodes -keyout root.key -out root.crt -days 30 -subj /C=DE/O=Uni/CN=Root",
    ) && openssl(
        dir,
        "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout mid.key -out mid.csr -subj /C=DE/O=Uni/CN=Mid",
    ) && openssl(
        dir,
        "x509 -req -in mid.csr -CA root.crt -CAkey root.key -CAcreateserial -days 20 -extfile mid.ext -out mid.crt",
    )
}

/// A certificate by the intermediate, with its key: PEM with the chain.
fn leaf(dir: &Path, new: &str, subject: &str, ext: &str) -> String {
    std::fs::write(dir.join("leaf.ext"), ext).unwrap();
    openssl(dir, &format!("req -new {new} -nodes -keyout leaf.key -out leaf.csr -subj {subject}"));
    openssl(
        dir,
        "x509 -req -in leaf.csr -CA mid.crt -CAkey mid.key -CAcreateserial -days 10 -extfile leaf.ext -out leaf.crt",
    );
    ["leaf.crt", "mid.crt", "leaf.key"].map(|f| std::fs::read_to_string(dir.join(f)).unwrap()).concat()
}

fn today() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

const RULES: &str = r#"
[[root]]
certificate = "root.crt"
[[root.map]]
subject = "C=DE,O=Uni,CN=Alice A."
identity = "user:alice"
[[root.map]]
dns = "*.lab.example"
identity = "host:*"
[[root.map]]
email = "bob@example.org"
identity = "user:bob"
"#;

#[test]
fn an_existing_ca_serves_with_rules() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    if !existing_ca(dir) {
        return;
    }
    std::fs::write(dir.join("trust.toml"), RULES).unwrap();
    let (trust, node) = (Trust::read(&dir.join("trust.toml")).unwrap(), NodeKey::generate().unwrap());
    let judge = |pem: &str| {
        let card = Holder::from_pem(pem.as_bytes(), &node).unwrap().card(node.id(), today(), DAY).unwrap();
        let card = Card::decode(&card.encode()).unwrap();
        trust.verify(&card, node.id(), today()).map(|v| v.identity.to_string())
    };
    let usage = "keyUsage=digitalSignature\nextendedKeyUsage=";
    let names = [
        ("-newkey rsa:2048", "/C=DE/O=Uni/CN=Alice_A.", "clientAuth", "", Err(())),
        (
            "-newkey ec -pkeyopt ec_paramgen_curve:P-384",
            "/CN=x",
            "serverAuth",
            "DNS:n1.lab.example",
            Ok("host:n1"),
        ),
        ("-newkey ed25519", "/CN=x", "clientAuth", "email:Bob@example.org", Ok("user:bob")),
        ("-newkey rsa:2048", "/CN=x", "clientAuth", "DNS:a.n1.lab.example", Err(())),
        ("-newkey rsa:2048", "/CN=x", "clientAuth", "DNS:n1.lab.example,email:bob@example.org", Err(())),
        ("-newkey rsa:2048", "/CN=x", "clientAuth", "URI:tidecast:host/n1", Err(())),
        ("-newkey rsa:2048", "/CN=x", "codeSigning", "DNS:n1.lab.example", Err(())),
    ];
    for (new, subject, purpose, alt, expected) in names {
        let alt = if alt.is_empty() { String::new() } else { format!("\nsubjectAltName={alt}") };
        let got = judge(&leaf(dir, new, subject, &format!("{usage}{purpose}{alt}\n")));
        assert_eq!(got.as_deref().map_err(|_| ()), expected, "{new} {subject} {purpose} {alt}: {got:?}");
    }
    // A subject with a space, which the little helper above cannot pass.
    let alice = leaf(dir, "-newkey rsa:3072", "/C=DE/O=Uni/CN=Alice\u{a0}A.", "keyUsage=digitalSignature\n");
    assert!(matches!(judge(&alice), Err(CardError::NoIdentity(_))), "a look-alike");
    assert_eq!(
        judge(&leaf(
            dir,
            "-newkey rsa:2048",
            "/CN=x",
            "keyUsage=keyEncipherment\nsubjectAltName=DNS:n1.lab.example\n"
        )),
        Err(CardError::KeyUsage)
    );
    // Without the intermediate there is no chain to the root.
    let alone: String = leaf(dir, "-newkey ed25519", "/CN=x", "subjectAltName=DNS:n1.lab.example\n");
    let at = alone.match_indices("-----BEGIN CERTIFICATE").nth(1).unwrap().0;
    let key = alone.find("-----BEGIN PRIVATE").unwrap();
    assert_eq!(judge(&format!("{}{}", &alone[..at], &alone[key..])), Err(CardError::UnknownIssuer));
}

#[test]
fn a_subject_is_matched_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    if !existing_ca(dir) {
        return;
    }
    std::fs::write(dir.join("trust.toml"), RULES.replace("Alice A.", "Alice")).unwrap();
    let (trust, node) = (Trust::read(&dir.join("trust.toml")).unwrap(), NodeKey::generate().unwrap());
    let judge = |subject: &str| {
        let pem = leaf(dir, "-newkey ed25519", subject, "keyUsage=digitalSignature\n");
        let card = Holder::from_pem(pem.as_bytes(), &node).unwrap().card(node.id(), today(), DAY).unwrap();
        trust.verify(&card, node.id(), today()).map(|v| v.identity.to_string())
    };
    assert_eq!(judge("/C=DE/O=Uni/CN=Alice").as_deref(), Ok("user:alice"));
    assert!(judge("/C=DE/O=Uni,CN=Alice").is_err(), "one value that looks like two");
    assert!(judge("/O=Uni/C=DE/CN=Alice").is_err());
}

#[test]
fn a_chain_has_an_end() {
    let site = Site::new();
    let issued = site.ca.issue(&Identity::Host("n1".into()), None, DAY, NOW).unwrap();
    let cert = &issued.pem[..issued.pem.find("-----BEGIN PRIVATE").unwrap()];
    assert!(Holder::from_pem((cert.repeat(5) + &issued.pem).as_bytes(), &site.key).is_err());
    // By hand: a card that announces too many certificates.
    let mut bytes = site.card("host:n1", DAY).encode();
    bytes[1 + 32 + 16] = 5;
    assert_eq!(Card::decode(&bytes), Err(CardError::ChainTooLong));
    // A certificate of ours is no CA, whatever stands above it.
    let root = std::fs::read_to_string(site.dir.path().join("ca/ca.crt")).unwrap();
    let other = Site::new();
    let card = Holder::from_pem((issued.pem.clone() + &root).as_bytes(), &site.key).unwrap();
    let card = card.card(site.key.id(), NOW, DAY).unwrap();
    assert!(site.trust().verify(&card, site.key.id(), NOW).is_ok(), "the root itself may be in it");
    assert!(other.trust().verify(&card, site.key.id(), NOW).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_a_card_that_is_written_the_same_or_none(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(card) = Card::decode(&bytes) {
            prop_assert_eq!(card.encode(), bytes);
        }
    }

    #[test]
    fn no_cut_or_longer_card_is_one(cut in 0usize..500, more in 1usize..10) {
        let site = Site::new();
        let bytes = site.card("user:a", DAY).encode();
        prop_assert!(bytes.len() < MAX_CARD);
        let cut = cut % bytes.len();
        prop_assert!(Card::decode(&bytes[..cut]).is_err());
        prop_assert!(Card::decode(&[bytes.as_slice(), &vec![0; more]].concat()).is_err());
    }
}
