//! A value that only the two ends of one session know, to which a proof can be bound.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::KeyLog;
use tidecast_hash::sha256;

/// The name under which rustls logs the exporter secret (RFC 8446, 7.1).
const SECRET: &str = "EXPORTER_SECRET";
/// Separates the binding from all else that could be made of this secret.
const LABEL: &[u8] = b"tidecast tls binding";

/// Takes the exporter secret of one session. rustls's unbuffered connections have no exporter of their own; the secret itself is not kept.
#[derive(Default)]
pub(crate) struct Exporter(OnceLock<[u8; 32]>);

impl Exporter {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The binding, when the handshake has got so far.
    pub(crate) fn binding(&self) -> Option<[u8; 32]> {
        self.0.get().copied()
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exporter(…)")
    }
}

impl KeyLog for Exporter {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        if self.will_log(label) {
            let _ = self.0.set(sha256(&[LABEL, secret].concat()));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == SECRET
    }
}
