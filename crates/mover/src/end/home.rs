//! `~`, which no shell of the host whose path it is has seen: ssh starts an end without one.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::unistd::{Uid, User};

use tidecast_text::escaped;

use crate::error::Error;

/// A path as a shell of this host would read it: `~` and `~/x` are in the home of the user of this process,
/// `~user/x` in that of another user.
pub(super) fn expand(path: &OsStr) -> Result<OsString, Error> {
    let Some(rest) = path.as_bytes().strip_prefix(b"~") else { return Ok(path.to_owned()) };
    let end = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
    let (name, below) = rest.split_at(end);
    let mut home = of(name)?.into_os_string();
    home.push(OsStr::from_bytes(below));
    Ok(home)
}

fn of(name: &[u8]) -> Result<PathBuf, Error> {
    let name = String::from_utf8_lossy(name);
    if name.is_empty() {
        let own = || User::from_uid(Uid::current()).ok().flatten().map(|user| user.dir);
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from).or_else(own);
        return home.ok_or_else(|| Error::Usage("cannot expand ~: this user has no home directory".into()));
    }
    // A directory service that does not answer is not one that has no such user.
    let unknown = |e| Error::Usage(format!("cannot look up the user {}: {e}", escaped(&*name)));
    let user = User::from_name(&name).map_err(unknown)?;
    let none = || {
        let name = escaped(&*name);
        Error::Usage(format!("cannot expand ~{name}: unknown user; for a file of that name write ./~{name}"))
    };
    user.map(|user| user.dir).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_is_a_home_only_where_a_shell_says_so() {
        let expand =
            |path: &str| expand(OsStr::new(path)).map(|path| path.to_string_lossy().into_owned()).ok();
        for path in ["/a/~", "./~", "a~", "", "-"] {
            assert_eq!(expand(path).as_deref(), Some(path));
        }
        let root = User::from_name("root").unwrap().unwrap().dir;
        assert_eq!(expand("~root/x").unwrap(), root.join("x").to_string_lossy());
        assert!(expand("~").is_some_and(|home| !home.starts_with('~')));
        assert!(expand("~/a b/").is_some_and(|home| home.ends_with("/a b/")));
        assert!(expand("~nobody-of-that-name/x").is_none());
    }
}
