//! Determines the hosts, the topology and the destination path of a broadcast.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use tidecast_swarm::plan::topology::Map;
use tidecast_text::{Size, count, with_causes};

use crate::hosts::{Host, job, parse, program_output, without};

/// Maximum length of a file with hosts or a topology (bytes).
const MAX_FILE: u64 = 64 << 20;

/// The kind of such a file, for errors.
const LIST: &str = "list of hosts";

/// Why hosts, topology or destination cannot be determined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// The request is invalid.
    #[error("{0}")]
    Refused(String),
    /// This host lacks something, such as the source.
    #[error("{0}")]
    Here(String),
}

fn refused(why: impl Into<String>) -> ChoiceError {
    ChoiceError::Refused(why.into())
}

/// The user's hosts, else those of the batch job, without the excluded ones.
///
/// # Errors
/// A list is invalid or cannot be read; there is neither a list nor a job.
pub fn choose(list: Option<&str>, exclude: Option<&str>) -> Result<Vec<Host>, ChoiceError> {
    let hosts = match list {
        Some(list) => {
            let (text, from) = list_text(list, "--hosts")?;
            parse(&text).map_err(|e| refused(format!("{from}: {}", with_causes(&e))))?
        }
        None => {
            let ask = job::Ask {
                variable: |name: &str| std::env::var(name).ok(),
                // Only the cause, because the error of the job names the file.
                file: |path: &Path| {
                    contents(path, LIST).map_err(|why| std::io::Error::other(why.to_string()))
                },
                program: program_output,
            };
            let none =
                || refused("no hosts given and no batch job detected; use --hosts LIST or --hosts @FILE");
            job::find(&ask).map_err(|e| refused(with_causes(&e)))?.ok_or_else(none)?.hosts
        }
    };
    let Some(list) = exclude else { return Ok(hosts) };
    let (text, from) = list_text(list, "--exclude")?;
    without(hosts, &text).map_err(|e| refused(format!("{from}: {}", with_causes(&e))))
}

/// Reads a topology, which must contain some of the hosts; missing hosts are returned as warnings.
///
/// # Errors
/// The file cannot be read, is invalid, or contains no host of the list.
pub fn topology(
    path: &Path,
    origin: Option<&str>,
    hosts: &[Host],
) -> Result<(Map, Vec<String>), ChoiceError> {
    let shown = path.display();
    let usage = |why: String| Err(refused(format!("--topology {shown}: {why}")));
    let map = Map::read(&read(path, "topology")?);
    let map = map.map_err(|e| refused(format!("--topology {shown}: {}", with_causes(&e))))?;
    let known = |name: &str, at: &str| map.place(name, at.parse().ok()) != 0;
    let unknown: Vec<&str> = hosts
        .iter()
        .filter(|host| !known(&host.name, host.login().1))
        .map(|host| host.name.as_str())
        .collect();
    let few = |names: &[&str]| {
        let more = if names.len() > 3 { ", ..." } else { "" };
        names.iter().take(3).copied().collect::<Vec<_>>().join(", ") + more
    };
    if let Some(name) = origin.filter(|name| !known(name, name) && !map.has_subnets()) {
        return usage(format!("it does not contain {name} (--origin)"));
    }
    let mut told = Vec::new();
    if let Some((first, count)) = map.repeated() {
        let more = if count > 1 { format!(" and {} more are", count - 1) } else { " is".to_owned() };
        told.push(format!("{shown}: {first}{more} on several switches; the first one is used"));
    }
    match unknown.len() {
        // Subnets may match later, when names are resolved.
        0 => {}
        _ if map.has_subnets() => {}
        all if all == hosts.len() => {
            return usage(format!(
                "it contains none of the hosts ({}); check that it is the topology of this cluster",
                few(&unknown)
            ));
        }
        some => told.push(format!(
            "{shown} does not contain {some} of {} ({}); they are treated as distant from all others",
            count(hosts.len() as u64, "host"),
            few(&unknown)
        )),
    };
    Ok((map, told))
}

/// The absolute path of the copy. A path that ends with a slash is the directory for it, under the source's name.
///
/// # Errors
/// The path is invalid, or the source does not exist.
pub fn destination(to: &Path, source: &Path) -> Result<PathBuf, ChoiceError> {
    let here = std::env::current_dir()
        .map_err(|e| ChoiceError::Here(format!("cannot determine the working directory: {e}")))?;
    let whole = here.join(to);
    if to.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Ok(whole.join(name(source)?));
    }
    match whole.file_name() {
        Some(_) => Ok(whole),
        None => Err(refused(format!("--to {}: not a valid path for a copy", to.display()))),
    }
}

/// The last name of the path, also of a link; for `.` and `..` the name of the directory.
fn name(source: &Path) -> Result<OsString, ChoiceError> {
    let named = |path: &Path| match path.components().next_back() {
        Some(Component::Normal(name)) => Some(name.to_owned()),
        _ => None,
    };
    // `Path` drops a `.` at the end.
    let given = source.as_os_str().as_encoded_bytes();
    let here = given.ends_with(b"/.") || given.ends_with(b"/./");
    if let Some(name) = named(source).filter(|_| !here) {
        return Ok(name);
    }
    let real = std::fs::canonicalize(source)
        .map_err(|e| ChoiceError::Here(format!("cannot find {}: {e}", source.display())))?;
    named(&real).ok_or_else(|| ChoiceError::Here(format!("{} has no file name", source.display())))
}

/// The text of `LIST` or `@FILE`, and its name in errors.
fn list_text(list: &str, flag: &str) -> Result<(String, String), ChoiceError> {
    let file = |at: &str| read(Path::new(at), LIST);
    match list.strip_prefix('@') {
        Some("-") => Ok((file("/dev/stdin")?, format!("{flag}: in standard input"))),
        Some(at) => Ok((file(at)?, format!("{flag}: in {at}"))),
        // A host name contains no slash.
        None if list.contains('/') && Path::new(list).is_file() => {
            Err(refused(format!("{flag}: {list} is a file; write {flag} @{list}")))
        }
        None => Ok((list.to_owned(), flag.to_owned())),
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    TooLong(String),
}

fn read(path: &Path, what: &str) -> Result<String, ChoiceError> {
    contents(path, what).map_err(|why| match why {
        Unreadable::Io(e) => refused(format!("cannot read {}: {e}", path.display())),
        Unreadable::TooLong(why) => refused(why),
    })
}

/// The contents of a file or pipe, of bounded length.
fn contents(path: &Path, what: &str) -> Result<String, Unreadable> {
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_FILE {
        let (shown, limit) = (path.display(), Size(MAX_FILE));
        return Err(Unreadable::TooLong(format!("{shown} is too long for a {what} (limit {limit})")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn destinations() {
        let source = Path::new("/etc/hostname");
        let to = |to: &str| destination(Path::new(to), source).map(|d| d.display().to_string());
        assert_eq!(to("/tmp/x").unwrap(), "/tmp/x");
        assert_eq!(to("/tmp/").unwrap(), "/tmp/hostname");
        assert!(to("x").unwrap().ends_with("/x"));
        assert!(matches!(to(".."), Err(ChoiceError::Refused(_))));
    }
}
