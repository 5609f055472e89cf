//! Flags and settings for the manifest of a tree, as options of the library.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use tidecast::settings;
use tidecast::{Format, TreeOptions};
use tidecast_text::Size;

use super::Context;
use crate::failure::Failure;
use crate::report::Reporter;

/// Options of the manifest of a tree.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Describe {
    /// Publish under this name [default: the name of PATH]
    #[arg(long, value_name = "N")]
    pub(crate) name: Option<String>,
    /// Choose the manifest version [default: auto: hybrid (v1 and v2) if the padding for v1 costs at most 5%, else v2]
    #[arg(long, value_name = "auto|v2|hybrid|v1", value_parser = formats(), hide_possible_values = true)]
    pub(crate) format: Option<Format>,
    /// Set the piece size, a power of two from 16KiB to 512MiB [default: by total size and file sizes]
    #[arg(long, value_name = "S", value_parser = settings::piece_size)]
    pub(crate) piece_size: Option<Size>,
    /// Skip files that match: a name at any depth, or a path if GLOB has a '/'; directories only if GLOB ends in '/';
    /// may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Record PATH as the place that the tree was built for, where `run` mounts it [default: its own path, if a program in
    /// the tree contains that path; else not recorded]
    #[arg(long, value_name = "PATH")]
    pub(crate) built_for: Option<PathBuf>,
    /// Skip symbolic links that lead out of the tree [default: keep them unchanged]
    #[arg(long)]
    pub(crate) skip_outside_links: bool,
    /// Make an SSL torrent (libtorrent's convention): peers need a certificate from this host's root
    #[arg(long)]
    pub(crate) ssl_torrent: bool,
}

fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(["auto", "v2", "hybrid", "v1"]).try_map(|name| settings::format(&name))
}

impl Describe {
    /// The options: flags override settings.
    ///
    /// # Errors
    /// Usage errors: a value that is not valid.
    pub(crate) fn options(&self, context: &Context<'_>) -> Result<TreeOptions, Failure> {
        let exclude = if self.exclude.is_empty() { &context.settings.exclude } else { &self.exclude };
        Ok(TreeOptions {
            name: self.name.clone(),
            format: self.format.or(context.settings.format).unwrap_or_default(),
            piece_length: self.piece_length(context)?,
            exclude: exclude.clone(),
            built_for: self.built_for.clone(),
            skip_outside_links: self.skip_outside_links,
            ssl_torrent: self.ssl_torrent,
        })
    }

    fn piece_length(&self, context: &Context<'_>) -> Result<Option<u32>, Failure> {
        let Some(size) = self.piece_size.or(context.settings.piece_size) else { return Ok(None) };
        let length = u32::try_from(size.0)
            .map_err(|_| Failure::usage(anyhow!("the piece size {size} is too large")))?;
        Ok(Some(length))
    }
}

/// Prints a notice when a manifest is open BitTorrent and the user has not allowed that with `--plain`.
pub(crate) fn open_notice(open: bool, reporter: &Reporter) {
    if open {
        reporter.note(
            "this is open BitTorrent: anyone who knows the manifest may join, and nothing is encrypted \
             (use --plain to allow this without a notice; `share` or --private limits it to ticket holders)",
        );
    }
}
