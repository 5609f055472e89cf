//! `tidecast publish PATH`: writes a manifest of a file or directory.

use std::fs::{DirBuilder, Metadata};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::json;
use tidecast_discovery::TrackerUrl;
use tidecast_identity::ssl_torrent::{SslPeer, SslRoot};
use tidecast_metainfo::{Manifest, clean_web_seed};

use super::describe::{Describe, Extras, describe, open_notice};
use super::{Context, show};
use crate::failure::{Failure, Outcome};
use crate::names;
use crate::output::{FOR_ALL, FOR_OWNER, Output};
use crate::report::{Reporter, object};
use crate::stop::{Stop, block_on};
use crate::units::{Size, Span, bytes_per_second, count};

/// Write a manifest of a file or directory
///
/// The manifest is a standard .torrent file. Each byte is read once, on all cores; an interrupted run goes on
/// where it was. The manifest is open, for any BitTorrent client, unless --private or --ssl-torrent.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  tidecast publish /data/genomes -o genomes.torrent --tracker http://head:6969/announce
  tidecast publish /opt/env --exclude __pycache__ --exclude '*.tmp' --format v2
  tidecast publish /srv/www/genomes --web-seed https://data.example/")]
pub(crate) struct Args {
    /// The file or directory
    path: PathBuf,
    /// Write the manifest to FILE; - is standard output; a pipe, a device or a link is written to [default: NAME.torrent, here]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    describe: Describe,
    /// Only for nodes with a ticket: `seed` then prints one (for other clients: peers from its trackers only)
    #[arg(long)]
    private: bool,
    /// Tracker to name in the manifest; may be repeated
    #[arg(long, value_name = "URL")]
    tracker: Vec<String>,
    /// URL (http or https) from which clients may fetch beside peers: of the directory that holds PATH, ending in '/',
    /// or of the file itself; may be repeated (BEP 19)
    #[arg(long, value_name = "URL")]
    web_seed: Vec<String>,
    /// Open, unencrypted BitTorrent is meant: say nothing about it
    #[arg(long)]
    plain: bool,
    /// With --ssl-torrent: write a certificate and key (peer.crt, peer.key) for a stock client
    #[arg(long, value_name = "DIR", requires = "ssl_torrent")]
    ssl_export: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let trackers = trackers(&args.tracker, context)?;
    let web_seeds = web_seeds(&args.web_seed)?;
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        let output = args.output.as_deref().map(|path| Output::of(path, reporter)).transpose()?;
        reporter.started("publish", object(json!({ "path": names::json(&args.path) })));
        let extras = Extras { trackers, private: args.private };
        let published = describe(&args.path, &args.describe, extras, None, context, reporter, &stop).await?;
        let manifest = published.manifest.with_web_seeds(&web_seeds);
        let named = || Output::Path(format!("{}.torrent", show::plain(&manifest.name())).into());
        let output = output.unwrap_or_else(named);
        // That of a private swarm, whose names and hashes are for ticket holders, is for its owner alone.
        let mode = if super::member::needs_ticket(&manifest) { FOR_OWNER } else { FOR_ALL };
        output.write(&manifest.to_bytes(), mode, Some(&stop))?;
        if let Some(dir) = &args.ssl_export {
            let root = SslRoot::load_or_create(&context.own_state_dir()?)?;
            export(dir, &root.issue(&manifest.name())?, &stop)?;
        }
        let seconds = reporter.seconds();
        reporter.clear();
        open_notice(&manifest, args.plain || context.settings.plain == Some(true), reporter);
        let rate = manifest.total_len() as f64 / seconds;
        reporter.result(&format!(
            "{}: {} in {}, {} of {}, in {} ({})",
            output,
            Size(manifest.total_len()),
            count(manifest.file_count().into(), "file"),
            count(manifest.piece_count().into(), "piece"),
            Size(manifest.piece_length().into()),
            Span(std::time::Duration::from_secs_f64(seconds)),
            bytes_per_second(rate),
        ));
        reporter.result(&format!("format: {}", published.why));
        // A wrong directory is seen by the address of a file.
        let first = manifest.files().find(|f| !f.is_empty()).map_or(0, |f| f.index());
        for url in manifest.web_seeds().iter().filter_map(|seed| manifest.web_url(seed, first)) {
            reporter.result(&format!("web seed: clients fetch {} from {url}", path_of(&manifest, first)));
        }
        let mut fields = show::summary(&manifest);
        fields.extend(output.path().map(|path| ("manifest".to_owned(), names::json(path))));
        fields.insert("why".into(), published.why.into());
        fields.insert("rate".into(), (rate.round() as u64).into());
        Ok(fields)
    })
}

/// Writes `peer.crt` and `peer.key` for a stock client's `set_ssl_certificate`; no Diffie-Hellman file is needed.
fn export(dir: &Path, peer: &SslPeer, stop: &Stop) -> Result<(), Failure> {
    let mut make = DirBuilder::new();
    make.recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot create {}", dir.display()))?;
    let key = dir.join("peer.key");
    // A link is written through, so the mode is that of the file to which it leads.
    let open_to_others = |meta: &Metadata| meta.is_file() && meta.mode() & 0o077 != 0;
    if key.is_symlink() && key.metadata().is_ok_and(|meta| open_to_others(&meta)) {
        let why = anyhow!(
            "cannot write the private key to {}: it is a link to a file that other users may access; run: chmod 600 {0}",
            key.display()
        );
        return Err(why.into());
    }
    for (path, text) in [(dir.join("peer.crt"), &peer.cert_pem), (key, &peer.key_pem)] {
        Output::Path(path).write(text.as_bytes(), FOR_OWNER, Some(stop))?;
    }
    Ok(())
}

/// The trackers of flags, or else of settings; each checked.
pub(crate) fn trackers(flags: &[String], context: &Context<'_>) -> Result<Vec<String>, Failure> {
    let urls = if flags.is_empty() { &context.settings.tracker } else { flags };
    for url in urls {
        TrackerUrl::parse(url).map_err(Failure::usage)?;
    }
    Ok(urls.to_vec())
}

/// The web seeds of flags, each checked.
fn web_seeds(flags: &[String]) -> Result<Vec<String>, Failure> {
    flags.iter().map(|url| web_seed(url).map_err(Failure::usage)).collect()
}

fn web_seed(text: &str) -> anyhow::Result<String> {
    let bad = |why: String| anyhow::anyhow!("--web-seed {}: {why}", show::plain(text));
    let url = clean_web_seed(text.as_bytes());
    let url = url.ok_or_else(|| bad("not an http:// or https:// URL of at most 2048 bytes".into()))?;
    TrackerUrl::parse(&url).map_err(|e| bad(e.to_string()))?;
    Ok(url)
}

fn path_of(manifest: &Manifest, file: u32) -> String {
    manifest.file(file).map_or_else(String::new, |f| f.path().to_string())
}
