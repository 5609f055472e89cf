//! From a scanned tree to its manifest: chooses piece length and format, hashes, and builds.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::fstat;
use tidecast_hash::{Digest, Sha1Digest};
use tidecast_metainfo::{
    Builder, Entry, Layout, Manifest, Mtime, Version, choose_piece_length, choose_version,
    is_new_piece_length, merkle,
};
use tidecast_paths::Meta;

use crate::base::{Base, output};
use crate::engine;
use crate::job::{self, Job, Piece, Target};
use crate::scan::identity;
use crate::state::{self, Known, State};
use crate::tree::{Content, Identity, Node, Tree};
use crate::{Error, Progress};

/// Which metainfo versions to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// v2, with v1 beside it where v1's padding is at most 5% of the data.
    #[default]
    Auto,
    /// This version, whatever it costs.
    Exactly(Version),
}

/// How to hash.
#[derive(Debug, Clone, Default)]
pub struct HashOptions {
    /// Which metainfo versions to write.
    pub format: Format,
    /// Bytes in a piece, a power of two from 16 KiB to 512 MiB; by default chosen from the sizes of the files.
    pub piece_length: Option<u32>,
    /// Threads that hash; by default one for each core.
    pub threads: Option<NonZero<usize>>,
    /// Where to store hashes, so that an interrupted run can be resumed. Removed when all is done.
    pub state: Option<PathBuf>,
    /// Where to write the SHA-256 of every leaf: 32 bytes each, in the order of [`Manifest::leaf_range`].
    /// Complete only when [`hash`] returns `Ok`.
    pub leaves: Option<PathBuf>,
}

/// The result of [`hash`].
#[derive(Debug)]
pub struct Published {
    /// The manifest.
    pub manifest: Manifest,
    /// Which versions it carries and why, as a line for the user.
    pub why: String,
}

/// Reads every byte of a scanned tree once, on all cores, and makes its manifest. `adjust` may set fields
/// that are not in the tree: trackers, comment, `private`, and so on.
///
/// # Errors
/// A file cannot be read or has changed, the names make no valid manifest (found out before anything is
/// read), a file of the caller's cannot be written, or the caller cancelled.
pub fn hash(
    tree: &Tree,
    options: &HashOptions,
    progress: &Progress,
    adjust: impl FnOnce(&mut Builder),
) -> Result<Published, Error> {
    let invalid = |source| Error::Manifest { path: tree.root.clone(), source };
    let (piece_length, version, why) = choose(tree, options)?;
    rehearse(tree).map_err(invalid)?;
    let mut builder = builder(tree, version, piece_length).map_err(invalid)?;
    adjust(&mut builder);
    let layout = builder.layout().clone();
    let hasher = Hasher::new(tree, &builder, &layout, version, options, progress)?;
    progress.start(layout.total_len());
    let job = Job {
        layout: &layout,
        version,
        leaves: options.leaves.is_some(),
        threads: options.threads,
        progress,
    };
    let hashed = hasher.reuse().and_then(|()| engine::run(job, &hasher));
    // In any case the hashes so far stay recorded.
    let flushed = hasher.flush();
    hashed.and(flushed)?;
    hasher.copy_links()?;
    let (results, state) = hasher.finish();
    give(&mut builder, &layout, version, results);
    let manifest = builder.build().map_err(invalid)?;
    state.map_or(Ok(()), State::remove)?;
    Ok(Published { manifest, why })
}

/// The draft of a scanned tree: the manifest that [`hash`] would make of it as v2, without the hashes.
/// Nothing is read. A tree without content gets its manifest.
///
/// # Errors
/// The names make no valid manifest, or the piece length is not valid.
pub fn draft(tree: &Tree, piece_length: u32) -> Result<Manifest, Error> {
    let builder = builder(tree, Version::V2, piece_length);
    let draft = builder.and_then(Builder::draft);
    draft.map_err(|source| Error::Manifest { path: tree.root.clone(), source })
}

fn builder(tree: &Tree, version: Version, piece_length: u32) -> Result<Builder, tidecast_metainfo::Error> {
    let mut builder = Builder::new(tree.name.as_bytes(), version, piece_length, entries(tree))?;
    builder.prefix = tree.built_for.as_ref().map(|path| path.as_os_str().as_bytes().to_vec());
    builder.left_out = tree.left_out.clone();
    Ok(builder)
}

/// Piece length, version, and the reason for the version.
fn choose(tree: &Tree, options: &HashOptions) -> Result<(u32, Version, String), Error> {
    let sizes = tree.files.iter().map(|f| f.kind.len());
    let length = match options.piece_length {
        Some(length) if is_new_piece_length(length.into()) => length,
        Some(length) => return Err(Error::PieceLength(length)),
        None => choose_piece_length(tree.total_len(), sizes.clone()),
    };
    let (version, why) = match options.format {
        Format::Exactly(version) => (version, format!("{version}: as requested")),
        Format::Auto => {
            let layout = Layout::aligned(length, sizes)
                .map_err(|source| Error::Manifest { path: tree.root.clone(), source })?;
            choose_version(&layout)
        }
    };
    Ok((length, version, why))
}

/// The tree in the builder's words.
fn entries(tree: &Tree) -> Vec<Entry> {
    use tidecast_metainfo::Content as C;
    fn entry<K>(node: &Node<K>, content: C) -> Entry {
        let link = matches!(content, C::Symlink(_));
        Entry {
            path: node.path.as_os_str().as_bytes().to_vec(),
            content,
            mode: (!link).then_some(node.mode),
            mtime: Some(Mtime { secs: node.mtime.seconds, nanos: node.mtime.nanos }),
            xattrs: node
                .xattrs
                .iter()
                .map(|(name, value)| (name.as_bytes().to_vec(), value.clone()))
                .collect(),
        }
    }
    let path_of = |index: usize| {
        let node = tree.files.get(index);
        node.map(|n| n.path.as_os_str().as_bytes().to_vec())
    };
    let files = tree.files.iter().map(|node| {
        let content = match &node.kind {
            Content::Symlink { target } => C::Symlink(target.as_os_str().as_bytes().to_vec()),
            Content::File { identity, link_of, holes } => C::File {
                len: identity.len,
                executable: node.mode & 0o100 != 0,
                holes: holes.clone(),
                hard_link: link_of.and_then(path_of),
            },
        };
        entry(node, content)
    });
    let dirs = tree.dirs.iter().map(|node| entry(node, C::Directory));
    dirs.chain(files).collect()
}

/// Builds the manifest of the same tree with all files empty: names, links and attributes that make no valid one are
/// found here, before hours of hashing.
fn rehearse(tree: &Tree) -> Result<(), tidecast_metainfo::Error> {
    let mut entries = entries(tree);
    for entry in &mut entries {
        if let tidecast_metainfo::Content::File { len, holes, .. } = &mut entry.content {
            *len = 0;
            holes.clear();
        }
    }
    let builder = Builder::new(tree.name.as_bytes(), Version::V2, 1 << 20, entries)?;
    builder.build().map(|_| ())
}

/// Hands the hashes to the builder.
fn give(builder: &mut Builder, layout: &Layout, version: Version, results: Results) {
    if version.has_v2() {
        for file in 0..layout.file_count() {
            let pieces = layout.file_pieces(file);
            let range = pieces.start as usize..pieces.end as usize;
            match results.v2.get(range).unwrap_or_default() {
                [] => {}
                [root] => builder.set_root(file, *root, Vec::new()),
                layer => {
                    let root = merkle::root_of_layer(layer, layout.piece_length());
                    builder.set_root(file, root, layer.to_vec());
                }
            }
        }
    }
    if version.has_v1() {
        builder.set_v1(results.v1);
    }
}

/// Digests of all pieces; empty for a version that is not wanted.
#[derive(Default)]
struct Results {
    v2: Vec<Digest>,
    v1: Vec<Sha1Digest>,
}

impl Results {
    fn set(&mut self, piece: u32, v2: Option<Digest>, v1: Option<Sha1Digest>) {
        if let (Some(slot), Some(digest)) = (self.v2.get_mut(piece as usize), v2) {
            *slot = digest;
        }
        if let (Some(slot), Some(digest)) = (self.v1.get_mut(piece as usize), v1) {
            *slot = digest;
        }
    }
}

/// One file of the manifest, as it is on disk.
struct Source {
    /// Index in [`Tree::files`].
    node: usize,
    identity: Identity,
    /// In aligned layouts: the file of the manifest whose hashes this one, a hard link to it, shares.
    copy_of: Option<u32>,
}

/// Hashing under way.
struct Hasher<'a> {
    tree: &'a Tree,
    base: Base,
    layout: &'a Layout,
    version: Version,
    progress: &'a Progress,
    /// By index in the manifest; none for symbolic links.
    sources: Vec<Option<Source>>,
    /// Pieces that an earlier run has hashed.
    known: HashMap<u32, Known>,
    results: Mutex<Results>,
    state: Option<Mutex<State>>,
    leaves: Option<(PathBuf, File)>,
}

impl<'a> Hasher<'a> {
    fn new(
        tree: &'a Tree,
        builder: &Builder,
        layout: &'a Layout,
        version: Version,
        options: &HashOptions,
        progress: &'a Progress,
    ) -> Result<Self, Error> {
        let pieces = layout.piece_count() as usize;
        let results = Results {
            v2: vec![[0; 32]; if version.has_v2() { pieces } else { 0 }],
            v1: vec![[0; 20]; if version.has_v1() { pieces } else { 0 }],
        };
        let state = options.state.as_deref().map(State::open).transpose()?.flatten();
        let leaves = match &options.leaves {
            Some(path) => Some((path.clone(), leaf_file(path, layout)?)),
            None => None,
        };
        let mut hasher = Self {
            tree,
            base: Base::of(&tree.root).map_err(Error::io("open", &tree.root))?,
            layout,
            version,
            progress,
            sources: sources(tree, builder),
            known: HashMap::new(),
            results: Mutex::new(results),
            state: state.map(Mutex::new),
            leaves,
        };
        if let Some(state) = &hasher.state {
            let state = state.lock();
            let known = (0..layout.piece_count()).filter_map(|piece| {
                let known = state.get(&hasher.key(piece)?, hasher.leaves.is_some())?;
                Some((piece, known))
            });
            let known = known.collect();
            drop(state);
            hasher.known = known;
        }
        Ok(hasher)
    }

    fn source(&self, file: u32) -> Option<&Source> {
        self.sources.get(file as usize)?.as_ref()
    }

    fn path(&self, file: u32) -> PathBuf {
        let node = self.source(file).and_then(|s| self.tree.files.get(s.node));
        node.map_or_else(|| self.tree.root.clone(), |node| self.tree.path_of(node))
    }

    /// The key under which a piece is recorded.
    fn key(&self, piece: u32) -> Option<[u8; 16]> {
        let file = |file| self.source(file).map(|s| (s.node, s.identity));
        state::key(self.layout, self.version, piece, file, &self.tree.files)
    }

    /// Takes over the hashes of an earlier run.
    fn reuse(&self) -> Result<(), Error> {
        let Some(state) = &self.state else {
            return Ok(());
        };
        for (piece, known) in &self.known {
            if self.leaves.is_some() {
                let leaves = state.lock().leaves(known)?;
                self.write_leaves(*piece, &leaves)?;
            }
            self.results.lock().set(*piece, known.v2, known.v1);
            let len = self.layout.piece_len(*piece);
            self.progress.add_reused(u64::from(len));
        }
        Ok(())
    }

    fn write_leaves(&self, piece: u32, leaves: &[Digest]) -> Result<(), Error> {
        let Some((path, file)) = &self.leaves else {
            return Ok(());
        };
        let range = self.layout.leaf_range(piece);
        debug_assert_eq!(range.end - range.start, leaves.len() as u64);
        file.write_all_at(leaves.as_flattened(), range.start * 32)
            .map_err(Error::io("write the leaf digests to", path))
    }

    /// The pieces of a hard link, each with that of the file it is a link to, which has the same bytes.
    fn twins(&self, file: u32) -> impl Iterator<Item = (u32, u32)> {
        let target = self.source(file).and_then(|s| s.copy_of);
        let pieces = |file| self.layout.file_pieces(file);
        let both = target.map(|target| pieces(file).zip(pieces(target)));
        both.into_iter().flatten()
    }

    /// Whether a piece and its twin, whose bytes are the same, have the same hashes too: v1 may pad them differently.
    fn are_alike(&self, piece: u32, twin: u32) -> bool {
        let wire_len = |piece| job::wire_len(self.layout, self.version, piece);
        wire_len(piece) == wire_len(twin)
    }

    /// Gives hard links the hashes of their targets.
    fn copy_links(&self) -> Result<(), Error> {
        let mut results = self.results.lock();
        for (piece, twin) in (0..self.layout.file_count()).flat_map(|file| self.twins(file)) {
            if !self.are_alike(piece, twin) {
                continue;
            }
            let v2 = results.v2.get(twin as usize).copied();
            let v1 = results.v1.get(twin as usize).copied();
            results.set(piece, v2, v1);
            if let Some((path, file)) = &self.leaves {
                let from = self.layout.leaf_range(twin);
                let mut leaves = vec![[0; 32]; (from.end - from.start) as usize];
                file.read_exact_at(leaves.as_flattened_mut(), from.start * 32)
                    .map_err(Error::io("read the leaf digests in", path))?;
                self.write_leaves(piece, &leaves)?;
            }
            self.progress.add_bytes(u64::from(self.layout.piece_len(piece)));
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        self.state.as_ref().map_or(Ok(()), |state| state.lock().flush())
    }

    fn finish(self) -> (Results, Option<State>) {
        (self.results.into_inner(), self.state.map(Mutex::into_inner))
    }
}

/// The files of the manifest, found again in the tree.
fn sources(tree: &Tree, builder: &Builder) -> Vec<Option<Source>> {
    let by_path = |(index, entry): (usize, &Entry)| (entry.path.clone(), index as u32);
    let places: HashMap<Vec<u8>, u32> = builder.files().iter().enumerate().map(by_path).collect();
    let place = |node: &Node<Content>| places.get(node.path.as_os_str().as_bytes()).copied();
    let mut sources: Vec<Option<Source>> = Vec::new();
    sources.resize_with(places.len(), || None);
    for (index, node) in tree.files.iter().enumerate() {
        let Content::File { identity, link_of, .. } = &node.kind else {
            continue;
        };
        let copy_of =
            link_of.filter(|_| builder.layout().is_aligned()).and_then(|first| place(tree.files.get(first)?));
        if let Some(slot) = place(node).and_then(|at| sources.get_mut(at as usize)) {
            *slot = Some(Source { node: index, identity: *identity, copy_of });
        }
    }
    sources
}

/// Makes the file for all leaf digests, in its full length.
fn leaf_file(path: &Path, layout: &Layout) -> Result<File, Error> {
    let failed = || Error::io("write the leaf digests to", path);
    // The caller may hold a descriptor of it and read that in the end, so the file itself stays.
    let (_, _, file) = output(path).map_err(failed())?;
    file.set_len(0).map_err(failed())?;
    file.set_len(layout.leaf_count() * 32).map_err(failed())?;
    Ok(file)
}

impl Target for Hasher<'_> {
    fn wants(&self, piece: u32) -> bool {
        if self.known.contains_key(&piece) {
            return false;
        }
        if !self.layout.is_aligned() {
            return true;
        }
        let owner = self.layout.spans(piece, 0, 1).next().map(|span| span.file);
        let Some(target) = owner.and_then(|file| Some((file, self.source(file)?.copy_of?))) else {
            return true;
        };
        let (file, target) = target;
        let from = piece - self.layout.file_pieces(file).start;
        !self.are_alike(piece, self.layout.file_pieces(target).start + from)
    }

    fn open(&self, file: u32) -> Result<File, Error> {
        let path = self.path(file);
        let handle = match self.base.open(&path) {
            // It is no longer a file, which it was when it was scanned.
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {
                return Err(Error::Changed { path, what: "file type" });
            }
            other => other?,
        };
        self.check_unchanged(file, &handle)?;
        Ok(handle)
    }

    fn check_unchanged(&self, file: u32, handle: &File) -> Result<(), Error> {
        let path = self.path(file);
        let meta = fstat(handle).map_err(|e| Error::io("stat", &path)(e.into()))?;
        let scanned = self.source(file).map(|s| s.identity);
        match scanned.and_then(|scanned| scanned.difference(&identity(&Meta::of(&meta)))) {
            Some(what) => Err(Error::Changed { path, what }),
            None => Ok(()),
        }
    }

    fn read_error(&self, file: u32, error: io::Error) -> Error {
        let path = self.path(file);
        if error.kind() == io::ErrorKind::UnexpectedEof {
            let what = "size";
            return Error::Changed { path, what };
        }
        Error::io("read", &path)(error)
    }

    fn piece(&self, piece: Piece<'_>) -> Result<(), Error> {
        self.write_leaves(piece.index, piece.leaves)?;
        if let Some(state) = &self.state
            && let Some(key) = self.key(piece.index)
        {
            let leaves = if self.leaves.is_some() { piece.leaves } else { &[] };
            state.lock().put(&key, &Piece { leaves, ..piece })?;
        }
        self.results.lock().set(piece.index, piece.v2, piece.v1);
        Ok(())
    }

    fn trouble(&self, _file: u32, _pieces: Range<u32>, error: Error) -> Result<(), Error> {
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    //! A change between two reads of an open file, which no test can cause from outside.
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::time::SystemTime;
    use std::{fs, process};

    use super::*;
    use crate::{ScanOptions, scan};

    #[test]
    fn a_change_while_a_file_is_open_is_found_when_it_is_closed() {
        let path = std::env::temp_dir().join(format!("tidecast-publish-{}", process::id()));
        fs::write(&path, b"some bytes").unwrap();
        let progress = Progress::new();
        let tree = scan(&path, &ScanOptions::default(), &progress).unwrap();
        let (length, version) = (1 << 20, Version::V2);
        let builder = Builder::new(b"x", version, length, entries(&tree)).unwrap();
        let layout = builder.layout().clone();
        let options = HashOptions::default();
        let hasher = Hasher::new(&tree, &builder, &layout, version, &options, &progress).unwrap();
        let handle = hasher.open(0).unwrap();
        assert!(hasher.check_unchanged(0, &handle).is_ok());
        let writer = File::options().write(true).open(&path).unwrap();
        writer.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let error = hasher.check_unchanged(0, &handle).unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{error}");
        fs::remove_file(&path).unwrap();
    }
}
