//! `tidecast show MANIFEST`: what a manifest describes.

use std::path::PathBuf;

use data_encoding::HEXLOWER;
use serde_json::{Map, Value, json};
use tidecast_metainfo::{FileRef, Magnet, Manifest, Version};

use super::read_manifest;
use crate::failure::Outcome;
use crate::report::{Reporter, object};
use crate::units::{Size, count};

/// Show what a manifest describes
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  tidecast show genomes.torrent")]
pub(crate) struct Args {
    /// The manifest (.torrent)
    manifest: PathBuf,
}

pub(crate) fn run(args: &Args, reporter: &mut Reporter) -> Outcome {
    let manifest = read_manifest(&args.manifest)?;
    let warnings: Vec<String> = manifest.warnings().iter().map(ToString::to_string).collect();
    if !reporter.is_json() {
        warnings.iter().for_each(|warning| reporter.warning(warning));
        for (name, value) in rows(&manifest) {
            reporter.result(&format!("{name:<12} {value}"));
        }
        for file in manifest.files() {
            reporter.result(&file_line(file));
        }
    }
    let mut fields = summary(&manifest);
    fields.insert("files".into(), manifest.files().map(file_json).collect());
    let dirs = manifest.dirs().map(|d| Value::from(d.path().to_string())).collect();
    fields.insert("directories".into(), dirs);
    // One object, so that a script may read the output as such.
    fields.insert("warnings".into(), warnings.into());
    Ok(fields)
}

/// The facts of a manifest, its files left out: for the last event of other commands too.
pub(crate) fn summary(manifest: &Manifest) -> Map<String, Value> {
    let hex = |hash: Option<&[u8]>| hash.map(|h| HEXLOWER.encode(h));
    object(json!({
        "name": manifest.name(),
        "version": manifest.version().to_string(),
        "hash_v1": hex(manifest.hash_v1().as_ref().map(|h| &h[..])),
        "hash_v2": hex(manifest.hash_v2().as_ref().map(|h| &h[..])),
        "magnet": magnet(manifest),
        "private": manifest.private(),
        "ssl": manifest.ssl_cert().is_some(),
        "trackers": manifest.trackers(),
        "bytes": manifest.total_len(),
        "unique_bytes": manifest.unique_len(),
        "file_count": manifest.file_count(),
        "piece_length": manifest.piece_length(),
        "pieces": manifest.piece_count(),
        "info_bytes": manifest.info_bytes().len(),
        "created_by": manifest.created_by(),
        "creation_date": manifest.creation_date(),
        "comment": manifest.comment(),
    }))
}

/// The magnet link of a manifest.
pub(crate) fn magnet(manifest: &Manifest) -> String {
    Magnet {
        v1: manifest.hash_v1(),
        v2: manifest.hash_v2(),
        name: Some(manifest.name().into_owned()),
        trackers: manifest.trackers().iter().flatten().cloned().collect(),
        peers: Vec::new(),
    }
    .to_string()
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
        rows.push(("of that", format!("{} is in files that equal another", Size(same))));
    }
    rows.extend(m.hash_v2().map(|h| ("v2 hash", HEXLOWER.encode(&h))));
    rows.extend(m.hash_v1().map(|h| ("v1 hash", HEXLOWER.encode(&h))));
    rows.push(("magnet", magnet(m)));
    if m.private() {
        rows.push(("private", "yes: peers only from its trackers, tickets or --peer".into()));
    }
    if m.ssl_cert().is_some() {
        rows.push(("ssl torrent", "yes: peers need a certificate that its root signed".into()));
    }
    rows.extend(m.trackers().iter().flatten().map(|url| ("tracker", plain(url))));
    rows.extend(m.prefix().map(|p| ("built for", plain(&String::from_utf8_lossy(p)))));
    rows.extend(m.created_by().map(|by| ("created by", plain(by))));
    rows.extend(m.comment().map(|text| ("comment", plain(text))));
    rows
}

/// A stranger's text without what could move the cursor or change colours.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn file_line(file: FileRef<'_>) -> String {
    let size = Size(file.len()).to_string();
    let target =
        file.symlink().map(|t| format!(" -> {}", plain(&String::from_utf8_lossy(&t)))).unwrap_or_default();
    let mark = if file.is_executable() { "x" } else { "-" };
    format!("{size:>10} {mark} {}{target}", file.path())
}

fn file_json(file: FileRef<'_>) -> Value {
    let mut all = object(json!({ "path": file.path().to_string(), "bytes": file.len() }));
    let mut put = |name: &str, value: Option<Value>| all.extend(value.map(|v| (name.to_owned(), v)));
    put("executable", file.is_executable().then(|| true.into()));
    put("hidden", file.is_hidden().then(|| true.into()));
    put("symlink", file.symlink().map(|t| String::from_utf8_lossy(&t).into()));
    put("pieces_root", file.pieces_root().map(|r| HEXLOWER.encode(&r).into()));
    put("mode", file.mode().map(|m| format!("{m:04o}").into()));
    put("hard_link", file.hard_link().map(Value::from));
    all.into()
}
