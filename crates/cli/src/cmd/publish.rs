//! `tidecast publish PATH`: writes a manifest of a file or directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use tidecast::event::publish::Done;
use tidecast::{Manifest, PublishOptions};
use tidecast_identity::ssl_torrent::{SslPeer, SslRoot};
use tidecast_text::{Size, Span, bytes_per_second, count};

use super::describe::{Describe, open_notice};
use super::{Context, run_operation};
use crate::failure::{Failure, Outcome};
use crate::output::{FOR_ALL, FOR_OWNER, Output};
use crate::report::{Reporter, fields_of};
use crate::stop::{Stop, block_on};

/// Write a manifest of a file or directory
///
/// The manifest is a standard .torrent file. Each byte is read once, on all cores; an interrupted run resumes where it
/// stopped. Most BitTorrent clients can use the manifest, unless --private or --ssl-torrent is given; use --format v1 for
/// clients that know v1 only.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  tidecast publish /data/genomes -o genomes.torrent --tracker http://head:6969/announce
  tidecast publish /opt/env --exclude __pycache__ --exclude '*.tmp' --format v2
  tidecast publish /srv/www/genomes --web-seed https://data.example/")]
pub(crate) struct Args {
    /// File or directory to publish
    path: PathBuf,
    /// Write the manifest to FILE, also through a link or into a pipe or device; - is standard output [default:
    /// NAME.torrent in this directory]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    describe: Describe,
    /// Allow only nodes with a ticket, which `seed` prints (other clients: find peers through its trackers only)
    #[arg(long)]
    private: bool,
    /// Name this tracker in the manifest; @FILE reads the URL from a file; may be repeated
    #[arg(long, value_name = "URL", value_parser = crate::args::tracker)]
    tracker: Vec<String>,
    /// Let clients also fetch from this http or https URL (BEP 19): that of the directory around PATH, ending in '/', or of
    /// the file itself; may be repeated
    #[arg(long, value_name = "URL")]
    web_seed: Vec<String>,
    /// Allow open, unencrypted BitTorrent, without a notice about it
    #[arg(long)]
    plain: bool,
    /// With --ssl-torrent: write a certificate and key (peer.crt, peer.key) for other clients into DIR
    #[arg(long, value_name = "DIR", requires = "ssl_torrent")]
    ssl_export: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let trackers = if args.tracker.is_empty() { &context.settings.tracker } else { &args.tracker };
    let mut tree = args.describe.options(context)?;
    let named = args.output.clone().filter(|output| output.as_os_str() != "-");
    if let Some(output) = named.or_else(|| tree.name_of(&args.path).map(|name| of_name(&name))) {
        tree.leave_out(&args.path, &output);
    }
    let options = PublishOptions {
        output: None,
        tree,
        private: args.private,
        trackers: trackers.clone(),
        web_seeds: args.web_seed.clone(),
        state_dir: Some(context.state_dir()?),
        threads: context.threads_for_operation(),
    };
    block_on(1, async {
        let stop = Stop::listen()?;
        let output = args.output.as_deref().map(|path| Output::of(path, reporter)).transpose()?;
        let operation = tidecast::publish(&args.path, options);
        let mut done =
            run_operation::run_until(operation, &stop, reporter, |_, _| (), |news, _| match news {}).await?;
        let manifest = Manifest::parse(&done.torrent).context("the new manifest is damaged")?;
        let named = || Output::Path(of_name(&manifest.name()));
        let output = output.unwrap_or_else(named);
        // The manifest of a private swarm has names and hashes for ticket holders, so only its owner may read it.
        let mode = if tidecast_node::access::needs_ticket(&manifest) { FOR_OWNER } else { FOR_ALL };
        output.write(&done.torrent, mode, Some(&stop))?;
        if let Some(dir) = &args.ssl_export {
            let root = SslRoot::load_or_create(&context.own_state_dir()?)?;
            export(dir, &root.issue(&manifest.name())?, &stop)?;
        }
        done.manifest = output.path().cloned();
        let plain = args.plain || context.settings.plain == Some(true);
        open_notice(tidecast_node::access::is_open(&manifest, plain), reporter);
        report(&done, &manifest, &output, reporter);
        Ok(fields_of(&done))
    })
}

/// The file that is written where none is named.
fn of_name(name: &str) -> PathBuf {
    format!("{}.torrent", crate::names::line(name)).into()
}

/// Prints the result.
fn report(done: &Done, manifest: &Manifest, output: &Output, reporter: &Reporter) {
    reporter.result(&format!(
        "{}: {} in {}, {} of {}, in {} ({})",
        output,
        Size(manifest.total_len()),
        count(manifest.file_count().into(), "file"),
        count(manifest.piece_count().into(), "piece"),
        Size(manifest.piece_length().into()),
        Span(Duration::from_secs_f64(done.seconds)),
        bytes_per_second(done.rate as f64),
    ));
    reporter.result(&format!("format: {}", done.why));
    // The URL of one file lets users notice a wrong directory.
    let first = manifest.files().find(|f| !f.is_empty()).map_or(0, |f| f.index());
    for url in manifest.web_seeds().iter().filter_map(|seed| manifest.web_url(seed, first)) {
        reporter.result(&format!("web seed: clients fetch {} from {url}", path_of(manifest, first)));
    }
}

/// Writes `peer.crt` and `peer.key` for a stock client's `set_ssl_certificate`; no Diffie-Hellman file is needed.
fn export(dir: &Path, peer: &SslPeer, stop: &Stop) -> Result<(), Failure> {
    tidecast_paths::Root::make_private(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    // The key first: where it cannot be kept private, neither is written.
    Output::Path(dir.join("peer.key")).write(peer.key_pem.as_bytes(), FOR_OWNER, Some(stop))?;
    Output::Path(dir.join("peer.crt")).write(peer.cert_pem.as_bytes(), FOR_ALL, Some(stop))?;
    Ok(())
}

fn path_of(manifest: &Manifest, file: u32) -> String {
    manifest.file(file).map_or_else(String::new, |f| f.path().to_string())
}
