//! Data that is fetched ahead of reads: by a list of the user, a list that came with the tree, or the needs
//! of programs.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;

use tidecast_event::{Context as _, Error, Fault as _};
use tidecast_node::MessageSender;

use super::thread::spawn;
use crate::closure::Environment;
use crate::list::List;
use crate::options::{Mode, Prefetch, ServeOptions};
use crate::search::host_hwcaps;
use crate::service::Service;

/// Begins to fetch, unless only opened files are to be fetched.
///
/// # Errors
/// A list cannot be read, or is malformed.
pub(super) fn begin(
    options: &ServeOptions,
    service: &Arc<Service>,
    messages: &MessageSender<'_>,
) -> Result<(), Error> {
    if options.mode == Mode::File {
        return Ok(());
    }
    if !options.prefetch_exe.is_empty() {
        programs(&options.prefetch_exe, service)?;
    }
    match &options.prefetch {
        Prefetch::List(path) => list(path, service, messages),
        Prefetch::Auto => own(service),
        Prefetch::None => {
            service.fetch_ahead();
            Ok(())
        }
    }
}

fn list(path: &Path, service: &Service, messages: &MessageSender<'_>) -> Result<(), Error> {
    let wrong = || format!("{} is not a prefetch list", path.display());
    let missing = service.fetch_list(&List::read(path).fault()?).with_context(wrong)?;
    if let Some(first) = missing.first() {
        let (count, first) = (missing.len(), String::from_utf8_lossy(first));
        messages.warning(format!("{count} names of the prefetch list are not in this tree, such as {first}"));
    }
    Ok(())
}

/// The tree's own list has to come first, on a thread of its own.
fn own(service: &Arc<Service>) -> Result<(), Error> {
    let service = service.clone();
    spawn("list", move || {
        if let Some(list) = service.own_list()
            && let Err(error) = service.fetch_list(&list)
        {
            tracing::warn!(%error, "cannot use the prefetch list of the tree");
        }
        service.fetch_ahead();
    })?;
    Ok(())
}

/// Fetches the needs of the programs that the user named, on a thread of its own.
fn programs(programs: &[String], service: &Arc<Service>) -> Result<(), Error> {
    let from_env = |name| std::env::var_os(name).map(OsString::into_vec).unwrap_or_default();
    let prefix = service.tree().manifest().prefix().map_or_else(|| b"/".to_vec(), <[u8]>::to_vec);
    let (library_path, path) = (from_env("LD_LIBRARY_PATH"), from_env("PATH"));
    let environment = Environment { prefix, library_path, path, hwcaps: host_hwcaps() };
    let programs = programs.iter().map(|program| program.clone().into_bytes()).collect();
    let service = service.clone();
    spawn("closure", move || {
        let outside = service.fetch_programs(environment, programs);
        let outside: Vec<_> = outside.iter().map(|path| String::from_utf8_lossy(path)).collect();
        tracing::info!(?outside, "fetched the libraries of the programs; these must exist on the host");
    })?;
    Ok(())
}
