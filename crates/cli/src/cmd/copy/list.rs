//! `-R` and `--files-from`: which sources keep their paths.

use std::path::Path;

use anyhow::{Context as _, bail};
use tidecast_mover::filter::lines;
use tidecast_mover::spec::{Names, Relative};
use tidecast_text::escaped;

use super::filter::read;
use super::flags::Flags;

/// What the flags say of it. A list has rsync's rules: comments begin with `#` or `;`, and directories come with what is in them only
/// by `-r`.
pub(super) fn relative(flags: &Flags, sources: usize) -> anyhow::Result<Option<Relative>> {
    let Some(file) = &flags.files_from else {
        let relative = Relative { no_implied: flags.no_implied, ..Relative::default() };
        return Ok(flags.relative.unwrap_or(false).then_some(relative));
    };
    let shown = escaped(file);
    if flags.relative == Some(false) {
        bail!(
            "--files-from without the paths of its names (--no-relative) is not supported: name the files themselves"
        );
    }
    if sources != 1 {
        bail!("--files-from: its names are paths below one source, and {sources} are given");
    }
    if file.as_encoded_bytes().starts_with(b":") {
        bail!(
            "--files-from {shown}: it is read on this host; bring it here: ssh HOST cat FILE | tidecast copy --files-from=-"
        );
    }
    let text = read(Path::new(file)).with_context(|| format!("cannot read names from {shown}"))?;
    if text.len() > Names::MOST {
        bail!("--files-from {shown}: it has more than {} MiB of names; split it", Names::MOST >> 20);
    }
    let names = lines(&text, flags.nul).filter(|name| !matches!(name.first(), None | Some(b'#' | b';')));
    if let Some(name) = names.clone().find(|name| name.contains(&0)) {
        bail!("--files-from {shown}: {} has a NUL in it: give -0", tidecast_text::escaped_bytes(name));
    }
    let names = Names(names.collect::<Vec<_>>().join(&0));
    Ok(Some(Relative { names: Some(names), recursive: flags.recursive, no_implied: flags.no_implied }))
}
