//! The ClassAds that HTCondor and a plugin exchange (protocol 4).

use std::time::{SystemTime, UNIX_EPOCH};

use tidecast_classad::{Ad, Expr, Value};

/// Properties of the plugin; its version is added to them.
pub const SELF: [&str; 4] = [
    "MultipleFileSupport = true",
    "PluginType = \"FileTransfer\"",
    "ProtocolVersion = 4",
    "SupportedMethods = \"tidecast\"",
];

/// A file that is to come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Of the cache, or of something in it.
    pub url: String,
    /// Where it is to be.
    pub local: String,
    /// It is to go, not to come.
    pub upload: bool,
    /// Why its ad cannot be obeyed.
    pub amiss: Option<&'static str>,
}

/// The files of an input, whose ads are in the new syntax or the old one. Ads with neither Url nor
/// LocalFileName have other purposes (PluginData) and are skipped; but an input without any ad was truncated
/// or is malformed.
pub(super) fn wanted(text: &[u8]) -> Result<Vec<Wanted>, String> {
    let ads = Ad::parse_all(text).map_err(|e| format!("not ClassAds: {e}"))?;
    if ads.is_empty() {
        return Err("no ClassAd in the file".into());
    }
    let about_files =
        ads.iter().filter(|ad| ["Url", "LocalFileName"].iter().any(|name| ad.get(name).is_some()));
    Ok(about_files.map(wanted_by).collect())
}

fn wanted_by(ad: &Ad) -> Wanted {
    let word = |name: &str| match ad.get(name) {
        Some(Expr::Literal(value)) => value.as_str().filter(|word| !word.is_empty()).map(str::to_owned),
        _ => None,
    };
    let (url, local) = (word("Url"), word("LocalFileName"));
    let amiss = match (&url, &local) {
        (None, _) => Some("the ClassAd lacks a string attribute Url"),
        (_, None) => Some("the ClassAd lacks a string attribute LocalFileName"),
        _ => None,
    };
    Wanted { url: url.unwrap_or_default(), local: local.unwrap_or_default(), upload: false, amiss }
}

/// How a transfer went.
#[derive(Debug)]
pub struct Transfer {
    pub(super) wanted: Wanted,
    pub(super) bytes: u64,
    /// Seconds since 1970.
    pub(super) start: f64,
    pub(super) end: f64,
    /// Why it did not come.
    pub error: Option<Error>,
}

impl Transfer {
    /// A transfer that failed, just now.
    pub(super) fn failed(wanted: Wanted, error: Error) -> Self {
        let why = match wanted.url.as_str() {
            "" => error.why,
            url => format!("{url}: {}", error.why),
        };
        let now = seconds();
        Self { wanted, bytes: 0, start: now, end: now, error: Some(Error { why, ..error }) }
    }

    /// The ad of it, on one line.
    #[must_use]
    pub fn ad(&self) -> Ad {
        let mut ad = Ad::new();
        let mut set = |name: &str, value: Value| drop(ad.insert(name, Expr::from(value)));
        let bytes = i64::try_from(self.bytes).unwrap_or(i64::MAX);
        set("TransferSuccess", Value::from(self.error.is_none()));
        set("TransferUrl", Value::from(self.wanted.url.as_str()));
        set("TransferFileName", Value::from(self.wanted.local.as_str()));
        set("TransferProtocol", Value::from("tidecast"));
        set("TransferType", Value::from(if self.wanted.upload { "upload" } else { "download" }));
        set("TransferFileBytes", Value::from(bytes));
        set("TransferTotalBytes", Value::from(bytes));
        set("TransferStartTime", Value::from(self.start as i64));
        set("TransferEndTime", Value::from(self.end as i64));
        set("ConnectionTimeSeconds", Value::from(self.end - self.start));
        if let Some(error) = &self.error {
            set("TransferError", Value::from(error.why.as_str()));
            let mut data = Ad::new();
            data.insert("Retryable", Expr::from(Value::from(i64::from(error.retryable))));
            data.insert("ErrorType", Expr::from(Value::from(error.kind)));
            data.insert("ErrorString", Expr::from(Value::from(error.why.as_str())));
            ad.insert("TransferErrorData", Expr::List([Expr::Ad(data)].into()));
        }
        ad
    }
}

/// Why a file did not come, in HTCondor's words.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Error {
    /// In one word.
    pub(super) kind: &'static str,
    pub(super) retryable: bool,
    /// For people.
    pub why: String,
}

pub(super) fn error(kind: &'static str, retryable: bool, why: impl ToString) -> Error {
    Error { kind, retryable, why: why.to_string() }
}

/// Since 1970.
pub(super) fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn several_ads_are_told_apart_whatever_their_strings_hold() {
        let new = br#"[ LocalFileName = "/s/a]b"; Url = "tidecast://h/n/\"[x" ]
            [ PluginData = [ a = 1 ] ]
            [ Url = "tidecast://h/m"; LocalFileName = "/s/m" ]"#;
        let old = br#"
LocalFileName = "/s/a]b"
Url = "tidecast://h/n/\"[x"

PluginData = "a"


url = "tidecast://h/m"
LocalFileName = "/s/m"
"#;
        for text in [&new[..], &old[..]] {
            let found = wanted(text).unwrap();
            let urls: Vec<(&str, &str)> = found.iter().map(|w| (w.url.as_str(), w.local.as_str())).collect();
            assert_eq!(urls, [("tidecast://h/n/\"[x", "/s/a]b"), ("tidecast://h/m", "/s/m")]);
            assert!(found.iter().all(|w| w.amiss.is_none()));
        }
    }

    #[test]
    fn what_is_not_understood_is_not_taken_for_nothing_to_do() {
        for bad in [
            "",
            " \n",
            "garbage",
            "[",
            "]",
            "[ Url = \"x",
            "[ = ]",
            "[ a = 1 ] garbage",
            "garbage [ a = 1 ]",
            "Url = \"tidecast://h/n\"\n\ngarbage",
        ] {
            assert!(wanted(bad.as_bytes()).is_err(), "{bad}");
        }
        let text = r#"[ Url = "tidecast://h/n" ] [ Url = "u"; LocalFileName = "/s/n" ] [ LocalFileName = "/s/n" ]
            [ Url = strcat("a", "b"); LocalFileName = "/s/n" ] [ Url = "u"; LocalFileName = "" ]"#;
        let amiss: Vec<bool> = wanted(text.as_bytes()).unwrap().iter().map(|w| w.amiss.is_some()).collect();
        assert_eq!(amiss, [true, false, true, true, true]);
        assert!(wanted(b"[ PluginData = [ a = 1 ] ]").unwrap().is_empty());
    }
}
