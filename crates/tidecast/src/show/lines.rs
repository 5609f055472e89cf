//! The lines in which `show` presents a manifest or a ticket.

use tidecast_event::show::Ticket;
use tidecast_identity::date::utc;
use tidecast_metainfo::{FileRef, Manifest, Version};
use tidecast_text::{Size, Span, count, escaped, escaped_bytes};

/// Lines for people: the properties of a manifest, then its files. Names and texts are escaped.
pub fn manifest_lines(manifest: &Manifest) -> impl Iterator<Item = String> {
    let properties = rows(manifest).into_iter().map(|(name, value)| format!("{name:<12} {value}"));
    properties.chain(manifest.files().map(file_line))
}

/// Lines for people: the properties of a ticket. `now`: seconds since 1970.
#[must_use]
pub fn ticket_lines(shown: &Ticket, now: u64) -> Vec<String> {
    let mut rows = vec![("manifest", shown.manifest.clone())];
    rows.extend(shown.name.as_deref().map(|name| ("name", plain(name))));
    let access = if shown.private { "private: for nodes with the ticket" } else { "open: any peer may join" };
    rows.push(("access", access.to_owned()));
    rows.extend(shown.owner.clone().map(|owner| ("owner", owner)));
    rows.extend(shown.ticket.clone().map(|number| ("ticket", number)));
    if shown.private {
        rows.push(("expires", shown.expires.map_or_else(|| "never".to_owned(), |at| expiry(at, now))));
        let uses = shown.uses.map_or_else(|| "no limit".to_owned(), |uses| count(uses.into(), "node"));
        let used = shown.used.map_or_else(String::new, |used| format!(", {used} used"));
        rows.push(("uses", format!("{uses}{used}")));
    }
    rows.extend(shown.addresses.iter().map(|addr| ("address", addr.clone())));
    rows.iter().map(|(name, value)| format!("{name:<12} {value}")).collect()
}

/// A time, and the duration until then.
fn expiry(at: u64, now: u64) -> String {
    let date = utc(at);
    match at.checked_sub(now) {
        Some(left) if left > 0 => format!("{date} (in {})", Span(std::time::Duration::from_secs(left))),
        _ => format!("{date} (expired, by the clock of this host)"),
    }
}

fn rows(m: &Manifest) -> Vec<(&'static str, String)> {
    let version = match m.version() {
        Version::V1 => "v1 (SHA-1)",
        Version::V2 => "v2 (SHA-256)",
        Version::Hybrid => "hybrid: v1 and v2",
    };
    let files = count(m.file_count().into(), "file");
    let mut rows = vec![
        ("name", plain(&m.name())),
        ("version", version.to_owned()),
        ("size", format!("{} ({} bytes) in {files}", Size(m.total_len()), m.total_len())),
        ("pieces", format!("{} of {}", m.piece_count(), Size(m.piece_length().into()))),
    ];
    if m.unique_len() < m.total_len() {
        let same = m.total_len() - m.unique_len();
        rows.push(("duplicate", format!("{} in files with the same content as another", Size(same))));
    }
    rows.extend(m.hash_v2().map(|h| ("v2 hash", data_encoding::HEXLOWER.encode(&h))));
    rows.extend(m.hash_v1().map(|h| ("v1 hash", data_encoding::HEXLOWER.encode(&h))));
    rows.push(("magnet", tidecast_node::magnet(m)));
    if m.private() {
        rows.push(("private", "yes: peers only from its trackers, tickets or --peer".into()));
    }
    if m.ssl_cert().is_some() {
        rows.push(("ssl torrent", "yes: peers need a certificate signed by its root".into()));
    }
    rows.extend(m.trackers().iter().flatten().map(|url| ("tracker", plain(url))));
    rows.extend(m.web_seeds().iter().map(|url| ("web seed", plain(url))));
    rows.extend(m.left_out().exclude.iter().map(|pattern| ("excluded", plain(pattern))));
    rows.extend(m.prefix().map(|p| ("built for", escaped_bytes(p).to_string())));
    rows.extend(m.created_by().map(|by| ("created by", plain(by))));
    rows.extend(m.comment().map(|text| ("comment", plain(text))));
    rows
}

fn file_line(file: FileRef<'_>) -> String {
    let size = Size(file.len()).to_string();
    let target = file.symlink().map(|t| format!(" -> {}", escaped_bytes(&t))).unwrap_or_default();
    let mark = if file.is_executable() { "x" } else { "-" };
    format!("{size:>10} {mark} {}{target}", file.path())
}

/// A text from a file or peer, without characters that control a terminal.
fn plain(text: &str) -> String {
    escaped(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_tickets_are_marked() {
        assert!(expiry(10, 4).ends_with("UTC (in 6.00 s)"), "{}", expiry(10, 4));
        assert!(expiry(10, 10).contains("expired"));
    }
}
