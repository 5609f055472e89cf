//! Existing names that belong to other users: what their owners could change later does not count as delivered.
//!
//! In a directory where all users may create names (mode 1777, as `/tmp`), a user can prepare the file or directory
//! that another is about to receive. In a directory of a group its members work together: what one of them has
//! received counts for the others, as any of them may replace names there. What the directory's owner put there
//! counts too.

use std::path::Path;

use tidecast_paths::{Access, STICKY};

use crate::disk::{Kind, Meta};
use crate::error::{Context, Error};
use crate::store::Store;

const FILE: &str = "it belongs to another user and could be changed later; replace it with --force, or choose another \
                    destination";
const FIXED: &str = "it belongs to another user and could be changed later; choose another destination";

impl Store {
    /// Whether a name counts although it exists: an error if it belongs to another user, false if such a file is to
    /// be replaced (`force`).
    pub(crate) fn may_count(&self, path: &Path, meta: &Meta, force: bool) -> Result<bool, Error> {
        if meta.mine || meta.owner == 0 {
            return Ok(true);
        }
        let above = path.parent().unwrap_or(path);
        let dir = self.disk.stat(above).at("stat", &self.disk.root().join(above))?;
        let me = rustix::process::geteuid();
        if !(Access { owner: dir.owner, mode: dir.mode }).lets_plant(meta.owner, me.as_raw()) {
            return Ok(true);
        }
        let replaces = meta.kind != Kind::Dir && (dir.mode & STICKY == 0 || dir.mine || me.is_root());
        match (replaces, force) {
            (true, true) => Ok(false),
            (true, false) => Err(Error::Foreign { path: self.disk.root().join(path), why: FILE }),
            (false, _) => Err(Error::Foreign { path: self.disk.root().join(path), why: FIXED }),
        }
    }
}
