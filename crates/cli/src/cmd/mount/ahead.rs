//! What is fetched before it is asked for: a list of the user's, one that came with the tree, the needs of programs.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use tidecast_mount::{Environment, List, Service, host_hwcaps};

use super::TreeArgs;
use super::server::spawn;
use crate::failure::Failure;
use crate::report::Reporter;

/// What `--prefetch` says.
#[derive(Clone, Debug)]
pub(crate) enum Prefetch {
    /// The list that lies beside the manifest, else the one that was published with the tree.
    Auto,
    None,
    List(PathBuf),
}

impl From<OsString> for Prefetch {
    fn from(text: OsString) -> Prefetch {
        match text.to_str() {
            Some("auto") => Prefetch::Auto,
            Some("none") => Prefetch::None,
            _ => Prefetch::List(text.into()),
        }
    }
}

/// Begins to fetch, unless only what is opened is to come. `named`: the manifest or ticket on the command line.
///
/// # Errors
/// A list cannot be read, or is none.
pub(super) fn begin(
    named: Option<&str>,
    args: &TreeArgs,
    service: &Arc<Service>,
    reporter: &Reporter,
) -> Result<(), Failure> {
    if args.mode == "file" {
        return Ok(());
    }
    if !args.prefetch_exe.is_empty() {
        programs(args, service)?;
    }
    match &args.prefetch {
        Prefetch::List(path) => list(path, service, reporter),
        Prefetch::Auto => match named.and_then(beside) {
            Some(path) => list(&path, service, reporter),
            None => own(service),
        },
        Prefetch::None => {
            service.fetch_ahead();
            Ok(())
        }
    }
}

/// The list that lies beside a manifest: of the same name but for the ending.
fn beside(source: &str) -> Option<PathBuf> {
    let path = Path::new(source).with_extension("list");
    (Path::new(source).is_file() && path.is_file()).then_some(path)
}

fn list(path: &Path, service: &Service, reporter: &Reporter) -> Result<(), Failure> {
    let text = std::fs::read(path).with_context(|| format!("cannot read the list {}", path.display()))?;
    let wrong = || format!("{} is no prefetch list", path.display());
    let missing = service.fetch_list(&List::parse(&text).with_context(wrong)?).with_context(wrong)?;
    if let Some(first) = missing.first() {
        let (count, first) = (missing.len(), String::from_utf8_lossy(first));
        reporter
            .warning(&format!("{count} names of the prefetch list are not in this tree, such as {first}"));
    }
    Ok(())
}

/// The tree's own list has to come first, which nobody waits for.
fn own(service: &Arc<Service>) -> Result<(), Failure> {
    let service = service.clone();
    spawn("list", move || {
        if let Some(list) = service.own_list()
            && let Err(error) = service.fetch_list(&list)
        {
            tracing::warn!(%error, "the list that came with the tree cannot be used");
        }
        service.fetch_ahead();
    })
}

/// Fetches what the programs that the user named need, on a thread of its own.
fn programs(args: &TreeArgs, service: &Arc<Service>) -> Result<(), Failure> {
    let from_env = |name| std::env::var_os(name).map(OsString::into_vec).unwrap_or_default();
    let prefix = service.tree().manifest().prefix().map_or_else(|| b"/".to_vec(), <[u8]>::to_vec);
    let (library_path, path) = (from_env("LD_LIBRARY_PATH"), from_env("PATH"));
    let environment = Environment { prefix, library_path, path, hwcaps: host_hwcaps() };
    let programs = args.prefetch_exe.iter().map(|program| program.clone().into_bytes()).collect();
    let service = service.clone();
    spawn("closure", move || {
        let outside = service.fetch_programs(environment, programs);
        let outside: Vec<_> = outside.iter().map(|path| String::from_utf8_lossy(path)).collect();
        tracing::info!(?outside, "the programs' libraries are here; these have to be on the host");
    })
}
