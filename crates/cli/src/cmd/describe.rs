//! Flags and settings that say how a tree is described, as options of the library.

use std::path::PathBuf;

use anyhow::anyhow;
use tidecast::{Format, TreeOptions};
use tidecast_metainfo::Version;
use tidecast_text::Size;

use super::Context;
use crate::failure::Failure;
use crate::report::Reporter;

/// How a tree is described.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Describe {
    /// Name to publish under [default: that of PATH]
    #[arg(long, value_name = "N")]
    pub(crate) name: Option<String>,
    /// Manifest version; auto: v2, and v1 beside it where its padding costs at most 5%
    #[arg(long, value_name = "auto|v2|hybrid|v1", value_parser = ["auto", "v2", "hybrid", "v1"], hide_possible_values = true)]
    pub(crate) format: Option<String>,
    /// Bytes in a piece, a power of two from 16KiB [default: by total and file sizes]
    #[arg(long, value_name = "S")]
    pub(crate) piece_size: Option<Size>,
    /// Leave out what matches: a name at any depth, or a path if it has a '/'; one that ends in '/' is for directories only; may be
    /// repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Record PATH as the place that the tree was built for, where `run` shows it [default: its own, if a program in it names that; else
    /// none]
    #[arg(long, value_name = "PATH")]
    pub(crate) built_for: Option<PathBuf>,
    /// Leave out symbolic links that lead out of the tree; default: they are carried as they are
    #[arg(long)]
    pub(crate) skip_outside_links: bool,
    /// Make an SSL torrent (libtorrent's convention): peers need a certificate of this host's root
    #[arg(long)]
    pub(crate) ssl_torrent: bool,
}

impl Describe {
    /// Flags over settings.
    ///
    /// # Errors
    /// Usage errors: what does not parse.
    pub(crate) fn options(&self, context: &Context<'_>) -> Result<TreeOptions, Failure> {
        let exclude = if self.exclude.is_empty() { &context.settings.exclude } else { &self.exclude };
        Ok(TreeOptions {
            name: self.name.clone(),
            format: self.format(context)?,
            piece_length: self.piece_length(context)?,
            exclude: exclude.clone(),
            built_for: self.built_for.clone(),
            skip_outside_links: self.skip_outside_links,
            ssl_torrent: self.ssl_torrent,
        })
    }

    fn format(&self, context: &Context<'_>) -> Result<Format, Failure> {
        let asked = self.format.as_deref().or(context.settings.format.as_deref()).unwrap_or("auto");
        Ok(match asked {
            "auto" => Format::Auto,
            "v1" => Format::Exactly(Version::V1),
            "v2" => Format::Exactly(Version::V2),
            "hybrid" => Format::Exactly(Version::Hybrid),
            other => {
                return Err(Failure::usage(anyhow!("format is {other:?}: write auto, v2, hybrid or v1")));
            }
        })
    }

    fn piece_length(&self, context: &Context<'_>) -> Result<Option<u32>, Failure> {
        let Some(size) = self.piece_size.or(context.settings.piece_size) else { return Ok(None) };
        let length =
            u32::try_from(size.0).map_err(|_| Failure::usage(anyhow!("a piece of {size} is too long")))?;
        Ok(Some(length))
    }
}

/// Says so in a line when a manifest is open BitTorrent and nobody stated that this is meant.
pub(crate) fn open_notice(open: bool, reporter: &Reporter) {
    if open {
        reporter.note(
            "this is open BitTorrent: anyone who knows the manifest may join, and nothing is encrypted \
             (--plain: it is meant; `share` or --private: only for ticket holders)",
        );
    }
}
