//! The ClassAds that HTCondor and a plugin exchange (protocol 4).

use tidecast_classad::{Ad, Expr, Value};

/// What the plugin is; its version is said beside it.
pub(super) const SELF: [&str; 4] = [
    "MultipleFileSupport = true",
    "PluginType = \"FileTransfer\"",
    "ProtocolVersion = 4",
    "SupportedMethods = \"tidecast\"",
];

/// A file that is to come.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) url: String,
    pub(super) local: String,
}

/// The files of an input. Ads without a Url say other things (PluginData), and are passed over.
pub(super) fn wanted(text: &[u8]) -> Result<Vec<Wanted>, String> {
    let mut wanted = Vec::new();
    for one in split(text)? {
        let ad = Ad::parse_new(one).map_err(|e| e.to_string())?;
        let word = |name: &str| match ad.get(name) {
            Some(Expr::Literal(value)) => value.as_str().map(str::to_owned),
            _ => None,
        };
        let Some(url) = word("Url") else { continue };
        let local = word("LocalFileName").ok_or_else(|| format!("{url} has no LocalFileName"))?;
        wanted.push(Wanted { url, local });
    }
    Ok(wanted)
}

/// Ads one after the other: where each begins and ends, with regard to strings.
fn split(text: &[u8]) -> Result<Vec<&[u8]>, String> {
    let (mut ads, mut depth, mut start) = (Vec::new(), 0u32, 0);
    let mut quote: Option<u8> = None;
    let mut bytes = text.iter().copied().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (quote, byte) {
            (Some(_), b'\\') => drop(bytes.next()),
            (Some(end), _) => quote = quote.filter(|_| byte != end),
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'[') => {
                if depth == 0 {
                    start = at;
                }
                depth += 1;
            }
            (None, b']') => {
                depth = depth.checked_sub(1).ok_or("a ] without its [")?;
                if depth == 0 {
                    ads.extend(text.get(start..=at));
                }
            }
            _ => {}
        }
    }
    if depth > 0 || quote.is_some() { Err("an ad does not end".into()) } else { Ok(ads) }
}

/// How a transfer went.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) wanted: Wanted,
    pub(super) bytes: u64,
    /// Seconds since 1970.
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) error: Option<super::Error>,
}

impl Transfer {
    /// The ad of it, on one line.
    pub(super) fn ad(&self) -> Ad {
        let mut ad = Ad::new();
        let mut set = |name: &str, value: Value| drop(ad.insert(name, Expr::from(value)));
        let bytes = i64::try_from(self.bytes).unwrap_or(i64::MAX);
        set("TransferSuccess", Value::from(self.error.is_none()));
        set("TransferUrl", Value::from(self.wanted.url.as_str()));
        set("TransferFileName", Value::from(self.wanted.local.as_str()));
        set("TransferProtocol", Value::from("tidecast"));
        set("TransferType", Value::from("download"));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn several_ads_are_told_apart_whatever_their_strings_hold() {
        let text = br#"[ LocalFileName = "/s/a]b"; Url = "tidecast://h/n/\"[x" ]
            [ PluginData = [ a = 1 ] ]
            [ Url = "tidecast://h/m"; LocalFileName = "/s/m" ]"#;
        let found = wanted(text).unwrap();
        let urls: Vec<(&str, &str)> = found.iter().map(|w| (w.url.as_str(), w.local.as_str())).collect();
        assert_eq!(urls, [("tidecast://h/n/\"[x", "/s/a]b"), ("tidecast://h/m", "/s/m")]);
        for bad in ["[", "]", "[ Url = \"x", "[ Url = \"tidecast://h/n\" ]", "[ = ]"] {
            assert!(wanted(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(wanted(b"").unwrap().is_empty());
    }
}
