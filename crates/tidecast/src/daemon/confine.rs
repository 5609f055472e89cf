//! Confines a daemon to its store, its socket and the files that its settings name.

use std::path::{Path, PathBuf};

use tidecast_confine::Confinement;
use tidecast_daemon::{CatalogueAt, Config};
use tidecast_event::{Context as _, Error};
use tidecast_paths::Root;

use crate::settings::Table;

/// Confines this process; returns a text about the result. Call it before there are threads.
pub(super) fn confine(table: &Table, config: &Config) -> Result<String, Error> {
    let made =
        |dir: &Path| Root::make(dir).map(drop).with_context(|| format!("cannot create {}", dir.display()));
    made(&config.dir)?;
    let socket = config.socket.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    made(socket)?;
    if !table.confine.unwrap_or(true) {
        return Ok("not confined: disabled in the settings".into());
    }
    if config.has_older_with_links() {
        return Ok("not confined: uses links from another daemon of its user on this machine".into());
    }
    let mut confinement = Confinement::new().writes(&config.dir).writes(socket);
    for file in config.trust.iter().chain(&config.certificate) {
        confinement = confinement.reads_file(file);
    }
    for file in config.trust.iter().flat_map(|trust| named_in(trust)) {
        confinement = confinement.reads_file(&file);
    }
    confinement = match &config.catalogue {
        Some(CatalogueAt::Condor) => confinement.runs_programs(),
        Some(CatalogueAt::File(file)) => confinement.reads_file(file),
        Some(CatalogueAt::Etcd(_)) | None => confinement,
    };
    if let Some(root) = &table.serve {
        confinement = if table.serve_read_only { confinement.reads(root) } else { confinement.writes(root) };
        if table.serve_as.is_some() {
            confinement = confinement.runs_itself();
        }
    }
    Ok(confinement.apply())
}

/// Files with absolute paths that a file of trust names.
fn named_in(trust: &Path) -> Vec<PathBuf> {
    fn add(value: &toml::Value, paths: &mut Vec<PathBuf>) {
        match value {
            toml::Value::String(text) if text.starts_with('/') => paths.push(text.into()),
            toml::Value::Array(all) => all.iter().for_each(|value| add(value, paths)),
            toml::Value::Table(all) => all.values().for_each(|value| add(value, paths)),
            _ => {}
        }
    }
    let mut paths = Vec::new();
    // The reader of the file reports its faults.
    let text = std::fs::read_to_string(trust).unwrap_or_default();
    if let Ok(table) = text.parse::<toml::Table>() {
        add(&toml::Value::Table(table), &mut paths);
    }
    paths
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_that_trust_names_are_found_wherever_they_stand() {
        let dir = tempfile::tempdir().unwrap();
        let trust = dir.path().join("trust.toml");
        assert!(named_in(&trust).is_empty());
        std::fs::write(&trust, "a = \"/x\"\nb = [\"/y\", \"z\"]\n[c]\nd = \"/w\"\n").unwrap();
        let mut named = named_in(&trust);
        named.sort();
        assert_eq!(named, [Path::new("/w"), Path::new("/x"), Path::new("/y")]);
    }
}
