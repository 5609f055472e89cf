//! `tidecast show MANIFEST|TICKET`: shows the contents of a manifest, or of a ticket.

use anyhow::anyhow;
use tidecast::{Source, Ticket};
use tidecast_metainfo::{FileRef, Manifest, Version};
use tidecast_text::{Size, Span, count, escaped_bytes};

use super::{Context, now};
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, fields_of};

/// Show the contents of a manifest, or of a ticket
///
/// The secret of a ticket is not shown. On the host that issued it, with the same state directory, the number of nodes that
/// have used it is shown too.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  tidecast show genomes.torrent\n  tidecast show @ticket")]
pub(crate) struct Args {
    /// Manifest (.torrent), or a ticket; @FILE reads the ticket from a file, - from standard input [default:
    /// $TIDECAST_TICKET]
    #[arg(value_name = "MANIFEST|TICKET")]
    manifest: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let manifest = match tidecast::given_source(args.manifest.as_deref())? {
        Source::File(manifest) => *manifest,
        Source::Ticket(ticket) => return show_ticket(&ticket, context, reporter),
        Source::Magnet(_) => {
            let why = "a magnet link does not contain the manifest; show the manifest (.torrent) itself";
            return Err(Failure::usage(anyhow!(why)));
        }
    };
    let shown = tidecast::show(&manifest);
    if !reporter.is_json() {
        // With JSON the output is one object, which has the warnings.
        shown.warnings.iter().for_each(|warning| reporter.warning(warning));
        for (name, value) in rows(&manifest) {
            reporter.result(&format!("{name:<12} {value}"));
        }
        manifest.files().for_each(|file| reporter.result(&file_line(file)));
    }
    Ok(fields_of(&shown))
}

fn show_ticket(ticket: &Ticket, context: &Context<'_>, reporter: &Reporter) -> Outcome {
    let shown = tidecast::show_ticket(ticket, context.state_dir().ok().as_deref());
    let mut rows = vec![("manifest", shown.manifest.clone())];
    rows.extend(shown.name.as_deref().map(|name| ("name", plain(name))));
    let access = if shown.private { "private: for nodes with the ticket" } else { "open: any peer may join" };
    rows.push(("access", access.to_owned()));
    rows.extend(shown.owner.clone().map(|owner| ("owner", owner)));
    rows.extend(shown.ticket.clone().map(|number| ("ticket", number)));
    if shown.private {
        rows.push(("expires", shown.expires.map_or_else(|| "never".to_owned(), |at| expiry(at, now()))));
        let uses = shown.uses.map_or_else(|| "no limit".to_owned(), |uses| count(uses.into(), "node"));
        let used = shown.used.map_or_else(String::new, |used| format!(", {used} used"));
        rows.push(("uses", format!("{uses}{used}")));
    }
    rows.extend(shown.addresses.iter().map(|addr| ("address", addr.clone())));
    rows.iter().for_each(|(name, value)| reporter.result(&format!("{name:<12} {value}")));
    Ok(fields_of(&shown))
}

/// A time, and the duration until then.
fn expiry(at: u64, now: u64) -> String {
    let date = utc(at);
    match at.checked_sub(now) {
        Some(left) if left > 0 => format!("{date} (in {})", Span(std::time::Duration::from_secs(left))),
        _ => format!("{date} (expired, by the clock of this host)"),
    }
}

/// Seconds since 1970 as UTC (RFC 3339); days by the civil calendar of 400-year eras.
fn utc(at: u64) -> String {
    let (days, second) = (at / 86_400 + 719_468, at % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", year + era * 400 + next)
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
    rows.extend(m.prefix().map(|p| ("built for", escaped_bytes(p).to_string())));
    rows.extend(m.created_by().map(|by| ("created by", plain(by))));
    rows.extend(m.comment().map(|text| ("comment", plain(text))));
    rows
}

/// A text from a file or peer, without characters that control a terminal.
pub(crate) fn plain(text: &str) -> String {
    crate::names::line(text)
}

fn file_line(file: FileRef<'_>) -> String {
    let size = Size(file.len()).to_string();
    let target = file.symlink().map(|t| format!(" -> {}", escaped_bytes(&t))).unwrap_or_default();
    let mark = if file.is_executable() { "x" } else { "-" };
    format!("{size:>10} {mark} {}{target}", file.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(utc(4_107_542_400), "2100-03-01T00:00:00Z");
        assert!(
            expiry(10, 4).ends_with("(in 6.00 s)") && expiry(10, 10).contains("expired"),
            "{}",
            expiry(10, 4)
        );
    }
}
