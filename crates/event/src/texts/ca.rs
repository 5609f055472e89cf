//! Texts of a certificate authority.

use std::path::Path;

use tidecast_text::count;

use crate::ca::{Made, Revoked, Shown};

const DAY: u64 = 86_400;

impl Made {
    /// Lines for people. `dir`: the directory of the authority.
    #[must_use]
    pub fn lines(&self, dir: &Path) -> Vec<String> {
        let (trust, certificate, crl) =
            (dir.join("trust.toml"), self.certificate.display(), self.crl.display());
        vec![
            format!("created {} in {}; keep that directory secret", self.name, dir.display()),
            format!("copy {}, {certificate} and {crl} to all nodes", trust.display()),
        ]
    }
}

impl Revoked {
    /// Lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.revoked.iter().map(|serial| format!("revoked {serial}")).collect();
        lines.push(format!("copy the new {} to all nodes", self.crl.display()));
        lines
    }
}

impl Shown {
    /// Lines for people. `now`: seconds since 1970.
    #[must_use]
    pub fn lines(&self, now: u64) -> Vec<String> {
        let mut lines =
            vec![format!("{}: {}", self.name, count(self.certificates.len() as u64, "certificate"))];
        lines.extend(self.certificates.iter().map(|cert| {
            let state = match cert.revoked {
                Some(_) => "revoked".to_owned(),
                None if cert.not_after <= now => "expired".to_owned(),
                None => format!("{} days left", (cert.not_after - now) / DAY),
            };
            format!("{}  {:<24} {state}", cert.serial, cert.identity)
        }));
        lines
    }
}
