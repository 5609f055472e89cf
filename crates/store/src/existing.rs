//! What stands at the final place already: used as far as it verifies, never destroyed before the
//! new data is complete, refused when it is something else.
//!
//! Files that are there are read in place. The first write to one copies it into the staging area
//! (sharing blocks where the file system can), so the user's own file stays as it is until `finish`.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::disk::{How, Kind};
use crate::error::{Context, Error};
use crate::store::{Download, Mode, Store};

/// Most pieces hashed to find out whether what is there has to do with the manifest.
const SAMPLES: usize = 64;

const NOTHING_IN_COMMON: &str = "its content has nothing in common with this data";

/// Finds the selected files that are at the final place, and refuses what is in the way.
pub(crate) fn survey(store: &Store, dl: &Download) -> Result<(), Error> {
    let at = store.disk.root().join(&store.home);
    let conflict = |why| Error::Conflict { path: at.clone(), why };
    let meta = match store.disk.stat(&store.home) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.at("look at", &at)?,
    };
    let single = store.manifest.is_single_file();
    match meta.kind {
        Kind::Dir if single => return Err(conflict("a directory stands where a file belongs")),
        Kind::File if !single => return Err(conflict("a file stands where a directory belongs")),
        Kind::Dir | Kind::File => {}
        _ => return Err(conflict("it is neither a file nor a directory")),
    }
    let (known, staged) = find(store, dl)?;
    let theirs = store.manifest.files().any(|f| dl.in_place.get(f.index()) && !f.is_empty());
    if theirs && store.manifest.is_draft() {
        // Nobody can tell yet.
        dl.unproven.store(true, Ordering::Release);
    } else if theirs && !any_verifies(store, dl)? {
        return Err(conflict(NOTHING_IN_COMMON));
    }
    // A newer copy of these is staged already, and is what counts from here on.
    store.fds.clear();
    for file in staged {
        dl.in_place.clear(file);
        if let Some(slot) = store.stamps.write().get_mut(file as usize) {
            *slot = None;
        }
    }
    if !known && !single && !store.disk.list(&store.home).at("list", &at)?.is_empty() {
        return Err(conflict("it is a directory with other things in it"));
    }
    Ok(())
}

/// Marks files in place; returns whether any name of the manifest is there, and which of the
/// files in place are staged too.
fn find(store: &Store, dl: &Download) -> Result<(bool, Vec<u32>), Error> {
    let (mut known, mut staged) = (false, Vec::new());
    for file in store.manifest.files() {
        let path = file.path().below(&store.home);
        let at = || store.disk.root().join(&path);
        let meta = match store.disk.stat(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other.at("look at", &at())?,
        };
        known = true;
        if !store.map.is_selected(file.index()) {
            continue;
        }
        match (meta.kind, file.is_symlink()) {
            (Kind::Symlink, true) => continue,
            (Kind::File, false) => {}
            (Kind::Dir, _) => {
                return Err(Error::Conflict { path: at(), why: "a directory stands where a file belongs" });
            }
            _ => {
                return Err(Error::Conflict {
                    path: at(),
                    why: "it is not the kind of file that belongs there",
                });
            }
        }
        dl.in_place.set(file.index());
        if let Some(slot) = store.stamps.write().get_mut(file.index() as usize) {
            *slot = Some(meta.stamp);
        }
        if store.disk.stat(&store.map.file_path(&dl.stage.tree(), file.index())).is_ok() {
            staged.push(file.index());
        }
    }
    Ok((known, staged))
}

/// Whether some piece of the files in place is right: then they are a copy, a part, or another
/// version of this data, and may be replaced. Files that would stay as they are cannot object.
fn any_verifies(store: &Store, dl: &Download) -> Result<bool, Error> {
    let files = || store.map.files().filter(|f| dl.in_place.get(*f) && store.map.file_len(*f) > 0);
    let firsts = files().filter_map(|f| store.map.file_pieces(f).next());
    let rest = files().flat_map(|f| store.map.file_pieces(f).skip(1));
    for piece in firsts.take(SAMPLES / 2).chain(rest.take(SAMPLES / 2)) {
        match store.verify(piece) {
            Ok(Some(_)) => return Ok(true),
            Ok(None) | Err(Error::NoHash { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

impl Store {
    /// To be called when the roots of a draft are known for all that was found at the final place, and none of it was
    /// right.
    ///
    /// # Errors
    /// [`Error::Conflict`] if there was something.
    pub fn refuse_strangers(&self) -> Result<(), Error> {
        match &self.mode {
            Mode::Download(dl) if dl.unproven.load(Ordering::Acquire) => {
                Err(Error::Conflict { path: self.path(), why: NOTHING_IN_COMMON })
            }
            _ => Ok(()),
        }
    }

    /// Copies a file that is in place into the staging area, where it may be written.
    ///
    /// Its verified pieces become journalled only now: until here they were in a file of the user's,
    /// which may change. The copy is durable before it takes its name.
    pub(crate) fn promote(&self, dl: &Download, file: u32) -> Result<(), Error> {
        let _one = dl.promoting.lock();
        if !dl.in_place.get(file) {
            return Ok(());
        }
        let staged = self.map.file_path(&dl.stage.tree(), file);
        let scratch = dl.stage.scratch();
        let fail = |path: &Path, e| self.fail("copy what is there to", path, e);
        let original = self.map.file_path(&self.home, file);
        let source = self.disk.open(&original, How::Read);
        let source = source.at("open", &self.disk.root().join(&original))?;

        let copy = dl.stage.create(&*self.disk, &scratch).map_err(|e| fail(&scratch, e))?;
        let len = self.map.file_len(file);
        let filled = copy
            .set_len(0)
            .and_then(|()| copy.copy_from(&*source, len))
            .and_then(|()| copy.set_len(len))
            .and_then(|()| if dl.flush.is_durable() { copy.sync(false) } else { Ok(()) });
        filled.map_err(|e| fail(&scratch, e))?;
        // What was verified must be what was copied.
        self.unchanged(file, &*source)?;

        crate::stage::make_parents(&*self.disk, &staged).map_err(|e| fail(&staged, e))?;
        self.map.soil(file);
        dl.flush.created(file);
        {
            let _alone = self.moving.write();
            self.disk.rename(&scratch, &staged, true).map_err(|e| fail(&staged, e))?;
            dl.in_place.clear(file);
            self.fds.forget(file);
            if let Some(stamp) = self.stamps.write().get_mut(file as usize) {
                *stamp = None;
            }
        }
        dl.flush.touched(file);
        self.map.file_pieces(file).filter(|p| self.done.get(*p)).for_each(|p| dl.flush.pending(p));
        Ok(())
    }
}
