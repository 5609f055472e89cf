//! `-R` and `--files-from`: sources by their paths, which they keep in the copy, with the directories above them.
//!
//! A path starts at a directory that is opened once: `/` or the current directory, the part before a `/./`,
//! or the source of a list. As with rsync, directories above a name are copied as directories, whatever links
//! lead to them: names below such a link are separate sources, opened by the path that the user wrote.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, openat, statat};
use rustix::io::Errno;
use tidecast_paths::openat2_again;
use tidecast_text::escaped_bytes;

use super::location::{Top, expand, full, passage};
use super::walk::{DIRECTORY, PASSAGE, Walk, is_dir};
use super::{Dir, join};
use crate::error::Error;
use crate::job::Problem;
use crate::part::MAX_PATH;
use crate::spec::{Follow, Relative};

/// Most directories at which paths begin, about the most groups of names that begin at them, and most names behind links:
/// each is kept open.
const STARTS: usize = 256;
const LINKED: usize = 256;
/// The contents of a directory, at any depth.
pub(super) const WHOLE: usize = usize::MAX;

/// How much is copied of a name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    /// So many levels of its contents.
    depth: usize,
    /// It was written with a slash: a link means the directory to which it leads.
    contents: bool,
}

/// Names below a directory.
pub(super) type Names = BTreeMap<Vec<u8>, Extent>;

impl Extent {
    fn add(&mut self, depth: usize, contents: bool) {
        self.depth = self.depth.max(depth);
        self.contents |= contents;
    }
}

/// Names by the directories at which they begin, these as the user has written them. A list that alternates between two has
/// several groups of each: of entries for one place in the copy the first in the list counts, as with rsync.
#[derive(Debug, Default)]
struct Starts {
    groups: Vec<(Vec<u8>, Names)>,
    /// The last group of each.
    last: HashMap<Vec<u8>, usize>,
}

impl Starts {
    fn at(&mut self, start: &[u8]) -> &mut Names {
        let known = self.last.get(start).copied();
        let newest = self.groups.len().saturating_sub(1);
        // A list with too many groups loses that order.
        let place =
            known.filter(|place| *place == newest || self.groups.len() >= STARTS).unwrap_or_else(|| {
                self.groups.push((start.to_vec(), Names::new()));
                self.last.insert(start.to_vec(), self.groups.len() - 1);
                self.groups.len() - 1
            });
        &mut self.groups[place].1
    }
}

/// Finds the sources.
pub(super) fn find(
    sources: &[OsString],
    relative: &Relative,
    follow: Follow,
    root: Option<&Path>,
) -> Result<(Vec<Top>, Vec<Problem>), Error> {
    let mut starts = Starts::default();
    match (&relative.names, sources) {
        (None, sources) => {
            for source in sources {
                for path in expand(source.as_bytes(), root)? {
                    add_source(&mut starts, &path, relative)?;
                }
            }
        }
        (Some(names), [base]) => {
            for name in names.0.split(|b| *b == 0).filter(|name| !name.is_empty()) {
                add_name(&mut starts, base.as_bytes(), name, relative);
            }
            if starts.groups.is_empty() {
                starts.at(base.as_bytes());
            }
        }
        (Some(_), _) => return Err(Error::Usage("--files-from needs exactly one source".into())),
    }
    if starts.last.len() > STARTS {
        return Err(Error::Usage(format!("more than {STARTS} directories are marked by /./ in paths")));
    }
    let (mut tops, mut problems) = (Vec::new(), Vec::new());
    for (start, mut names) in starts.groups {
        let fd = passage(&start, root)
            .map_err(|e| Error::Nothing(format!("{}: not copied: {e}", escaped_bytes(&start))))?;
        let linked = apart(&fd, &mut names, follow, root.is_some(), &mut problems);
        let path = full(&start, root).unwrap_or_default();
        let shown = shown(&start);
        let top = |fd: OwnedFd, inside: Vec<u8>, single, depth, names| Top {
            depth,
            names,
            ..Top::new(Arc::new(fd), single, inside, shown.clone(), path.clone())
        };
        for Linked { fd, inside, single, depth, implied } in linked {
            let shown = join(&shown, &inside);
            tops.push(Top { shown, implied, ..top(fd, inside, single, depth, None) });
        }
        tops.push(top(fd, Vec::new(), None, WHOLE, Some(names)));
    }
    Ok((tops, problems))
}

fn shown(start: &[u8]) -> Vec<u8> {
    let end = start.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1);
    start[..end].to_vec()
}

/// The parts before and after the first `/./`.
fn marked(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.windows(3).position(|three| three == b"/./")?;
    Some((&path[..at], &path[at + 3..]))
}

/// The names of a path without `.`; `..` removes the one before, if there is one. Also returns whether the
/// path means the contents of a directory.
fn cleaned(path: &[u8]) -> (Vec<u8>, bool) {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|b| *b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let contents = matches!(path.rsplit(|b| *b == b'/').next(), Some(b"" | b"." | b".."));
    (names.join(&b'/'), contents)
}

/// A source of `-R`.
fn add_source(starts: &mut Starts, path: &[u8], relative: &Relative) -> Result<(), Error> {
    let (start, rest) = match marked(path) {
        Some((b"", rest)) => (&b"/"[..], rest),
        Some(found) => found,
        None if path.starts_with(b"/") => (&b"/"[..], path),
        None => (&b"."[..], path),
    };
    if rest.split(|b| *b == b'/').any(|name| name == b"..") {
        let path = escaped_bytes(path);
        return Err(Error::Usage(format!(
            "{path}: a path kept by -R must not contain ..; write /./ after it"
        )));
    }
    let (name, contents) = cleaned(rest);
    let names = starts.at(start);
    add_dot(names, path, relative);
    names.entry(name).or_default().add(WHOLE, contents);
    Ok(())
}

/// A path that begins with `./`, and has no other mark, has the directory at which it begins above it, as with rsync.
fn add_dot(names: &mut Names, path: &[u8], relative: &Relative) {
    if !relative.no_implied && path.starts_with(b"./") && marked(path).is_none() {
        names.entry(Vec::new()).or_default();
    }
}

/// A name of a list.
fn add_name(starts: &mut Starts, base: &[u8], name: &[u8], relative: &Relative) {
    let (start, rest) = match marked(name) {
        None => (base.to_vec(), name),
        Some((before, rest)) => match cleaned(before).0 {
            before if before.is_empty() => (base.to_vec(), rest),
            before => (join(base, &before), rest),
        },
    };
    let (rest, contents) = cleaned(rest);
    let depth = if relative.recursive { WHOLE } else { usize::from(contents) };
    let names = starts.at(&start);
    add_dot(names, name, relative);
    names.entry(rest).or_default().add(depth, contents);
}

/// A name to which a link leads.
struct Linked {
    fd: OwnedFd,
    inside: Vec<u8>,
    single: Option<Vec<u8>>,
    depth: usize,
    /// It is above a name that the user wrote.
    implied: bool,
}

/// Takes out of `names` those that lie behind symbolic links, or are links of whose directories the contents
/// were named, and opens them, and the directories to which the links lead.
fn apart(
    start: &OwnedFd,
    names: &mut Names,
    follow: Follow,
    served: bool,
    problems: &mut Vec<Problem>,
) -> Vec<Linked> {
    let (mut linked, mut dirs) = (Vec::new(), HashSet::new());
    let mut last: Option<(Vec<u8>, bool)> = None;
    names.retain(|name, extent| {
        let parent = super::location::parent(name);
        let is_linked = match &last {
            Some((known, is_linked)) if known == parent => *is_linked,
            _ => is_behind_link(start, parent),
        };
        last = Some((parent.to_vec(), is_linked));
        let is_target =
            || extent.contents && follow == Follow::None && leads_to_directory(start, name, served);
        if !is_linked && !is_target() {
            return true;
        }
        if let Err(e) = open_linked(start, name, *extent, served, &mut dirs, &mut linked) {
            problems.push(Problem::new(name, format!("not copied: {e}"), true));
        }
        false
    });
    // A link that is named, too, is the directory that names below it need.
    names.retain(|name, _| !dirs.contains(name) || !is_link(start, name));
    linked
}

fn is_link(start: &OwnedFd, name: &[u8]) -> bool {
    statat(start, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// Whether a name is a link to a directory, or one that leads out of the served directory, where nothing may
/// be asked about.
fn leads_to_directory(start: &OwnedFd, name: &[u8], served: bool) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = || openat2_again(start, name, flags, resolving(served));
    is_link(start, name) && matches!(opened(), Ok(_) | Err(Errno::XDEV))
}

/// How links are followed.
fn resolving(served: bool) -> ResolveFlags {
    let beneath = if served { ResolveFlags::BENEATH } else { ResolveFlags::empty() };
    beneath | ResolveFlags::NO_MAGICLINKS
}

fn is_behind_link(start: &OwnedFd, parent: &[u8]) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    !parent.is_empty() && matches!(openat2_again(start, parent, flags, how), Err(Errno::LOOP))
}

fn open_linked(
    start: &OwnedFd,
    name: &[u8],
    Extent { depth, contents }: Extent,
    served: bool,
    dirs: &mut HashSet<Vec<u8>>,
    linked: &mut Vec<Linked>,
) -> std::io::Result<()> {
    let open = |path: &[u8], access| {
        openat2_again(start, path, access | OFlags::DIRECTORY | OFlags::CLOEXEC, resolving(served))
    };
    let ends = name.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
    for end in ends {
        let above = &name[..end];
        if dirs.insert(above.to_vec()) {
            room(linked)?;
            let (fd, inside) = (open(above, OFlags::PATH)?, above.to_vec());
            linked.push(Linked { fd, inside, single: None, depth: 0, implied: true });
        }
    }
    room(linked)?;
    let (parent, last) = (super::location::parent(name), super::location::last(name));
    let at = if parent.is_empty() { start.try_clone()? } else { open(parent, OFlags::PATH)? };
    let stat = statat(&at, last, AtFlags::SYMLINK_NOFOLLOW)?;
    let (fd, inside, single) = if is_dir(&stat) {
        (openat(&at, last, DIRECTORY, Mode::empty())?, name, None)
    } else if contents && leads_to_directory(start, name, served) {
        (open(name, OFlags::RDONLY)?, name, None)
    } else {
        (at, parent, Some(last.to_vec()))
    };
    linked.push(Linked { fd, inside: inside.to_vec(), single, depth, implied: false });
    Ok(())
}

fn room(linked: &[Linked]) -> std::io::Result<()> {
    let full = linked.len() >= LINKED;
    if full { Err(std::io::Error::other("too many names behind symbolic links")) } else { Ok(()) }
}

/// Names sent already, where paths may come twice.
#[derive(Debug, Default)]
pub(super) struct Listed {
    key: RandomState,
    /// Directories above names, and names that were listed, or all names where trees overlap.
    sent: HashSet<u64>,
    /// Everything that is sent is noted.
    all: bool,
    /// Where everything is noted: the first source that has a directory of some path.
    directories: HashMap<u64, usize>,
    /// Directories of the list under way that are copied with all that is in them.
    whole: HashSet<Vec<u8>>,
}

impl Listed {
    pub(super) fn new(tops: &[Top]) -> Option<Self> {
        let is_relative = tops.iter().any(|top| top.names.is_some());
        is_relative.then(|| Self { all: tops.len() > 1, ..Self::default() })
    }

    /// Whether a path comes for the first time.
    fn is_new(&mut self, path: &[u8]) -> bool {
        self.sent.insert(self.key.hash_one(path))
    }

    /// The same of a path that no list names.
    pub(super) fn is_new_below(&mut self, path: &[u8]) -> bool {
        !self.all || self.is_new(path)
    }

    /// Notes a directory that is sent: no later source has another entry in its place. Returns the first source that has it.
    pub(super) fn note_directory(&mut self, path: &[u8], top: usize) -> usize {
        if !self.all {
            return top;
        }
        self.is_new(path);
        *self.directories.entry(self.key.hash_one(path)).or_insert(top)
    }

    fn is_below_whole(&self, name: &[u8]) -> bool {
        ancestors(name).any(|above| self.whole.contains(above))
    }
}

impl Walk<'_> {
    /// Whether a path was not sent before; where none can come twice all are new.
    pub(super) fn is_first(&mut self, path: &[u8], listed: bool) -> bool {
        match &mut self.listed {
            None => true,
            Some(known) if listed => known.is_new(path),
            Some(known) => known.is_new_below(path),
        }
    }

    /// Whether an entry of a directory is sent: not if its path was sent before, or another source has a directory there.
    pub(super) fn is_first_below(&mut self, dir: &Dir, name: &[u8]) -> bool {
        let path = join(&dir.inside, name);
        !self.is_directory_elsewhere(dir.top, &path) && self.is_first(&path, false)
    }

    /// The names of a list, in order.
    pub(super) fn list(&mut self, top: usize, fd: &OwnedFd, names: &Names) -> Result<(), Error> {
        if let Some(listed) = &mut self.listed {
            listed.whole.clear();
        }
        for (name, Extent { depth, .. }) in names {
            if self.is_over() {
                return Ok(());
            }
            // An entry that a rule leaves out of a directory is copied all the same if it is named itself.
            let is_below = self.listed.as_ref().is_some_and(|listed| listed.is_below_whole(name));
            if is_below && !self.tree().filter.leaves_out_below(super::location::parent(name), true) {
                self.is_there(top, name);
                continue;
            }
            self.listed_name(top, fd, name, *depth)?;
        }
        Ok(())
    }

    /// Reports a missing name, though it would be copied with its parent.
    fn is_there(&mut self, top: usize, name: &[u8]) {
        let found = self.tree().open(top, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC);
        if let Err(e @ (Errno::NOENT | Errno::NOTDIR)) = found {
            let path = super::location::parent(name).to_vec();
            let above = Dir { top, inside: path.clone(), path };
            self.unread(&above, super::location::last(name), e);
        }
    }

    fn listed_name(&mut self, top: usize, start: &OwnedFd, name: &[u8], depth: usize) -> Result<(), Error> {
        let dir = |path: &[u8]| Arc::new(Dir { top, path: path.to_vec(), inside: path.to_vec() });
        if name.is_empty() {
            self.note_whole(name, depth);
            // Whoever may enter the start need not be allowed to read it.
            return match openat(start, c".", DIRECTORY, Mode::empty()) {
                Ok(fd) => self.directories(dir(b""), fd.as_fd(), depth),
                Err(e) => {
                    self.unread(&dir(b""), b"", e);
                    Ok(())
                }
            };
        }
        let (parent, last) = (super::location::parent(name), super::location::last(name));
        let above = dir(parent);
        if name.len() > MAX_PATH || last.len() > 255 {
            self.unread(&above, last, Errno::NAMETOOLONG);
            return Ok(());
        }
        let opened = self.tree().open(top, parent, PASSAGE);
        let found = opened.and_then(|at| self.look(&above, &at, last).map(|stat| (at, stat)));
        let (at, stat) = match found {
            Ok(found) => found,
            Err(e) => {
                self.unread(&above, last, e);
                return Ok(());
            }
        };
        // Directories above it are not asked about, as with rsync.
        if self.tree().filter.leaves_out(name, is_dir(&stat)) {
            return Ok(());
        }
        self.implied(top, parent);
        if !is_dir(&stat) {
            if self.is_directory_elsewhere(top, name) {
                let what = "skipped: another source has a directory of this name";
                self.tree().trouble(&above, last, what, false);
                return Ok(());
            }
            return if self.is_first(name, true) { self.entry(&above, last, &stat) } else { Ok(()) };
        }
        self.note_whole(name, depth);
        match openat(&at, last, DIRECTORY, Mode::empty()) {
            Ok(fd) => self.directories(dir(name), fd.as_fd(), depth),
            // A link to a directory that is followed.
            Err(Errno::LOOP | Errno::NOTDIR) => match self.tree().open(top, name, DIRECTORY) {
                Ok(fd) => self.directories(dir(name), fd.as_fd(), depth),
                Err(e) => {
                    self.unread(&above, last, e);
                    Ok(())
                }
            },
            Err(e) => {
                self.unread(&above, last, e);
                Ok(())
            }
        }
    }

    /// Whether a rule leaves out all names below a directory that was not named itself.
    pub(super) fn leads_nowhere(&self, implied: &Top) -> bool {
        let below = [&implied.inside[..], b"/"].concat();
        let is_sent = |top: &Top| {
            let own = top.own();
            !top.implied
                && own.starts_with(&below)
                && !self.tree().filter.leaves_out(&own, top.single.is_none())
        };
        !self.tree().tops.iter().any(is_sent)
    }

    /// Whether another source has a directory in the place of a name.
    pub(super) fn is_directory_elsewhere(&self, top: usize, name: &[u8]) -> bool {
        if self.listed.as_ref().is_none_or(|listed| !listed.all) || self.tree().filter.leaves_out(name, true)
        {
            return false;
        }
        self.tree().tops.iter().enumerate().filter(|(number, _)| *number != top).any(|(number, other)| {
            let Some(path) = other.below(name) else { return false };
            let is_sent = match &other.names {
                Some(names) => {
                    is_above_or_below(names, path, |name| !self.tree().filter.leaves_out(name, false))
                }
                None => other.single.is_none() && ancestors(path).count() <= other.depth,
            };
            is_sent && self.tree().open(number, path, DIRECTORY).is_ok()
        })
    }

    fn note_whole(&mut self, name: &[u8], depth: usize) {
        if let Some(listed) = self.listed.as_mut().filter(|_| depth == WHOLE) {
            listed.whole.insert(name.to_vec());
        }
    }

    /// Directories above a name, with their attributes and nothing else that is in them.
    fn implied(&mut self, top: usize, parent: &[u8]) {
        if parent.is_empty() || !self.tree().implied {
            return;
        }
        let ends = parent.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        for end in ends.chain([parent.len()]) {
            let path = &parent[..end];
            if !self.is_first(path, true) {
                continue;
            }
            let dir = Arc::new(Dir { top, path: path.to_vec(), inside: path.to_vec() });
            match self.tree().open(top, path, PASSAGE).and_then(fstat) {
                Ok(stat) => drop(self.directory(&dir, &stat, 0)),
                Err(e) => self.unread(&dir, b"", e),
            }
        }
    }
}

/// The directories above a path, the nearest first and the empty one last; as many as the path has names.
fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let itself_too = std::iter::successors(Some(path), |path| match *path {
        [] => None,
        path => Some(super::location::parent(path)),
    });
    itself_too.skip(1)
}

/// Whether a path is one of these, is above one that is sent, or is among the contents of one that are copied.
fn is_above_or_below(names: &Names, path: &[u8], is_sent: impl Fn(&[u8]) -> bool) -> bool {
    let start = [path, b"/"].concat();
    let mut below =
        names.range(start.clone()..).map(|(name, _)| name).take_while(|name| name.starts_with(&start));
    if names.contains_key(path) || below.any(|name| is_sent(name)) {
        return true;
    }
    (1..).zip(ancestors(path)).any(|(levels, above)| names.get(above).is_some_and(|e| e.depth >= levels))
}

/// Of a path that a message names.
pub(super) fn listed_digest(names: &Names) -> [u8; 32] {
    let mut all = Vec::new();
    for (name, Extent { depth, contents }) in names {
        all.extend_from_slice(name);
        all.extend_from_slice(&[0, u8::try_from(*depth).unwrap_or(u8::MAX), u8::from(*contents)]);
    }
    tidecast_hash::sha256(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_as_many_ancestors_as_names() {
        let of = |path: &'static str| ancestors(path.as_bytes()).collect::<Vec<_>>();
        assert_eq!(of("a/bc/d"), [&b"a/bc"[..], b"a", b""]);
        assert_eq!((of("a"), of("")), (vec![&b""[..]], vec![]));
    }

    #[test]
    fn names_of_a_list_stay_below_their_source() {
        let of = |path: &str| {
            let (name, contents) = cleaned(path.as_bytes());
            (String::from_utf8(name).unwrap(), contents)
        };
        for (path, name, contents) in [
            ("a/b", "a/b", false),
            ("/a//b/", "a/b", true),
            ("../../x", "x", false),
            ("a/../../x/.", "x", true),
            (".", "", true),
            ("..", "", true),
            ("", "", true),
        ] {
            assert_eq!(of(path), (name.to_owned(), contents), "{path}");
        }
        assert_eq!(marked(b"/x/./y/./z"), Some((&b"/x"[..], &b"y/./z"[..])));
        assert_eq!(marked(b"/x/."), None);
    }
}
