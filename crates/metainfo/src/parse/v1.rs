//! The v1 half (BEP 3 with BEP 47's pad files): read alone, or compared with the v2 half.

use super::names::{better_path, list};
use super::{Fields, attributes, fields, file_props};
use crate::bencode::Cursor;
use crate::tree::{self, NO_DIR, Props, Tree, TreeBuilder};
use crate::{Error, Layout};
use std::ops::Range;

/// One item of `files`: its properties and the places of its path's components.
struct Item {
    props: Props,
    path: Vec<Range<usize>>,
}

impl Item {
    fn is_pad(&self) -> bool {
        self.props.flags & tree::PAD != 0
    }

    /// Of a manifest without v2 half the path in UTF-8 counts, if there is one.
    fn read(info: &[u8], c: &mut Cursor<'_>, alone: bool) -> Result<Self, Error> {
        let keys = ["attr", "length", "path", "path.utf-8", "symlink path"];
        let [attr, length, path, utf8, symlink] = fields(c, "description of a file", keys)?;
        let at = path.ok_or(Error::Missing { key: "path", place: "description of a file" })?;
        let path = better_path(info, list(info, at)?, utf8.filter(|_| alone));
        if path.is_empty() {
            return Err(Error::value("path", "the path of a file is empty"));
        }
        let name = || printable_path(info, &path);
        let props = file_props(info, [length, attr, symlink], name)?;
        Ok(Item { props, path })
    }
}

fn printable_path(info: &[u8], path: &[Range<usize>]) -> String {
    let parts = path.iter().map(|r| info.get(r.clone()).unwrap_or_default());
    let parts: Vec<&[u8]> = parts.take(16).collect();
    crate::error::printable(&parts.join(&b'/'))
}

/// Calls `visit` for each item of the v1 half; a single file counts as one item whose path is the
/// torrent's name.
fn items(
    info: &[u8],
    keys: &Fields,
    name: Range<usize>,
    mut visit: impl FnMut(Item) -> Result<(), Error>,
) -> Result<(), Error> {
    let Some(at) = keys.files else {
        let path = vec![name];
        let printable = || printable_path(info, &path);
        let props = file_props(info, [keys.length, None, None], printable)?;
        if let Some(at) = keys.attr {
            let flags = attributes(Cursor::at(info, at).bytes()?);
            let flags = flags & (tree::EXECUTABLE | tree::HIDDEN);
            return visit(Item { props: Props { flags, ..props }, path });
        }
        return visit(Item { props, path });
    };
    let mut c = Cursor::at(info, at);
    c.enter_list()?;
    while c.next_item()? {
        visit(Item::read(info, &mut c, !keys.version.has_v2())?)?;
    }
    Ok(())
}

/// See [`super::listed`].
pub(super) fn listed(info: &[u8], keys: &Fields) -> Result<Vec<Option<u32>>, Error> {
    let (mut all, mut next) = (Vec::new(), 0);
    items(info, keys, keys.name(info)?, |item| {
        all.push((!item.is_pad()).then_some(next));
        next += u32::from(!item.is_pad());
        Ok(())
    })?;
    Ok(all)
}

/// Reads a manifest that has no v2 half.
pub(super) fn read<'a>(
    info: &'a [u8],
    keys: &Fields,
    name: Range<usize>,
    piece_length: u32,
) -> Result<(TreeBuilder<'a>, Layout), Error> {
    let single = keys.files.is_none();
    let mut builder = TreeBuilder::new(info, name.clone(), single)?;
    let mut layout = Layout::empty(piece_length, false)?;
    items(info, keys, name, |item| {
        if item.is_pad() {
            return layout.push_pad(item.props.len);
        }
        layout.push_file(item.props.len)?;
        let Some((last, dirs)) = item.path.split_last() else {
            return Ok(());
        };
        let mut dir = if single { NO_DIR } else { 0 };
        for part in dirs {
            dir = builder.dir(dir, part.clone())?;
        }
        builder.file(dir, last.clone(), item.props)
    })?;
    Ok((builder, layout.finish()?))
}

/// The place of the v1 hashes, after checking their number.
pub(super) fn pieces(info: &[u8], keys: &Fields, layout: &Layout) -> Result<Range<usize>, Error> {
    let at = keys.pieces.ok_or(Error::Missing { key: "pieces", place: "info dictionary" })?;
    let range = Cursor::at(info, at).range()?;
    if range.len() % 20 != 0 {
        return Err(Error::value("pieces", "its length is not a multiple of 20"));
    }
    let found = range.len() as u64 / 20;
    let expected = u64::from(layout.piece_count());
    if found != expected {
        return Err(Error::PieceCount { expected, found });
    }
    Ok(range)
}

/// Checks that the v1 half lists the files of the v2 half, in the same order, each at the start of the same
/// piece; takes over the padding after the last file, if there is any. False if they list the same files in
/// different orders: libtorrent has written such manifests, sorting `a b` before `a/` in one half only.
pub(super) fn compare(info: &[u8], keys: &Fields, tree: &Tree, layout: &mut Layout) -> Result<bool, Error> {
    match compare_in_order(info, keys, tree, layout) {
        Err(Error::Hybrid(_)) if differs_in_order(info, keys, tree, layout)? => Ok(false),
        compared => compared.map(|()| true),
    }
}

/// Whether both halves have the same paths with the same sizes, in different orders.
fn differs_in_order(info: &[u8], keys: &Fields, tree: &Tree, layout: &Layout) -> Result<bool, Error> {
    if tree.is_single() || keys.files.is_none() {
        return Ok(false);
    }
    let mut v1: Vec<(Vec<&[u8]>, u64)> = Vec::new();
    items(info, keys, keys.name(info)?, |item| {
        if !item.is_pad() {
            let path = item.path.iter().map(|part| info.get(part.clone()).unwrap_or_default());
            v1.push((path.collect(), item.props.len));
        }
        Ok(())
    })?;
    let path = |file| {
        let (mut dir, name) = tree.file_place(info, file);
        let mut path = vec![name];
        for _ in 0..tree.depth(dir) {
            let (parent, name) = tree.dir_place(info, dir);
            path.push(name);
            dir = parent;
        }
        path.reverse();
        path
    };
    let mut v2: Vec<_> = (0..tree.file_count()).map(|file| (path(file), layout.file_len(file))).collect();
    if v1.len() != v2.len() || v1.iter().map(|(path, _)| path).eq(v2.iter().map(|(path, _)| path)) {
        return Ok(false);
    }
    v1.sort_unstable();
    v2.sort_unstable();
    Ok(v1 == v2)
}

fn compare_in_order(info: &[u8], keys: &Fields, tree: &Tree, layout: &mut Layout) -> Result<(), Error> {
    let fail = |why: String| Err(Error::Hybrid(why));
    if tree.is_single() != keys.files.is_none() {
        return fail("one describes a single file, the other a directory".into());
    }
    let mut file = 0;
    let mut pos: u64 = 0;
    items(info, keys, keys.name(info)?, |item| {
        let len = item.props.len;
        let start = pos;
        pos = pos.checked_add(len).ok_or(Error::Overflow)?;
        if item.is_pad() {
            return Ok(());
        }
        let path = printable_path(info, &item.path);
        if file >= tree.file_count() || !same_path(info, tree, file, &item.path) {
            return fail(format!("v1 lists `{path}` where v2 does not"));
        }
        if layout.file_len(file) != len {
            let other = layout.file_len(file);
            return fail(format!("`{path}` has {len} bytes in v1 and {other} in v2"));
        }
        if len > 0 && layout.file_start(file) != start {
            return fail(format!("`{path}` does not start at a piece boundary in v1"));
        }
        if !same_link(info, tree, file, &item)? {
            return fail(format!("`{path}` is not the same symbolic link in v1 and v2"));
        }
        file += 1;
        Ok(())
    })?;
    if file != tree.file_count() {
        let path = tree.describe_file(info, file);
        return fail(format!("v2 lists `{path}` and v1 does not"));
    }
    let length = u64::from(layout.piece_length());
    if pos.div_ceil(length) != u64::from(layout.piece_count()) {
        return fail("v1 has padding beyond the last piece".into());
    }
    layout.pad_tail(pos);
    Ok(())
}

fn same_path(info: &[u8], tree: &Tree, file: u32, path: &[Range<usize>]) -> bool {
    let (mut dir, mut name) = tree.file_place(info, file);
    if !tree.is_single() && path.len() != tree.depth(dir) + 1 {
        return false;
    }
    path.iter().rev().all(|part| {
        let same = info.get(part.clone()) == Some(name);
        (dir, name) = tree.dir_place(info, dir);
        same
    })
}

fn same_link(info: &[u8], tree: &Tree, file: u32, item: &Item) -> Result<bool, Error> {
    let raw = |at: Option<usize>| at.map(|at| Cursor::at(info, at).skip()).transpose();
    let v1 = Some(item.props.symlink_at as usize).filter(|at| *at != 0);
    Ok(raw(v1)? == raw(tree.symlink_at(file))?)
}
