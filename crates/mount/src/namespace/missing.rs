//! Why an existing program cannot run: a file of the host that it needs is missing.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Links that are followed, as many as the kernel follows.
const MAX_LINKS: usize = 40;
/// The kernel reads this much of a script for its interpreter.
const MAX_LINE: u64 = 256;

/// The missing file when the kernel reports ENOENT for `program`, although `program` exists.
#[must_use]
pub fn missing_behind(program: &Path) -> Option<String> {
    program.symlink_metadata().ok()?;
    let mut at = program.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = std::fs::read_link(&at) else { return interpreter(&at) };
        let next = at.parent().unwrap_or(Path::new("")).join(&target);
        if next.symlink_metadata().is_err() {
            let (link, target) = (at.display(), target.display());
            return Some(format!("the symbolic link {link} leads to {target}, which is not on this host"));
        }
        at = next;
    }
    None
}

/// The interpreter of a script, if it is missing.
fn interpreter(script: &Path) -> Option<String> {
    let mut head = Vec::new();
    std::fs::File::open(script).ok()?.take(MAX_LINE).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let word = line.split(|b| b" \t".contains(b)).find(|word| !word.is_empty())?;
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(word));
    let missing = path.metadata().is_err();
    missing.then(|| format!("its interpreter {} is not on this host", path.display()))
}
