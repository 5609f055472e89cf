//! The v2 half (BEP 52): the file tree.

use super::{Fields, fields, file_props};
use crate::bencode::Cursor;
use crate::tree::{self, NO_DIR, Props, TreeBuilder};
use crate::{Error, Layout};
use std::ops::Range;

/// Reads the file tree. `directory` is Tidecast's word that the root is a directory even if it
/// looks like a single file (a directory that holds one file of its own name).
pub(super) fn read<'a>(
    info: &'a [u8],
    keys: &Fields,
    name: Range<usize>,
    piece_length: u32,
    directory: bool,
) -> Result<(TreeBuilder<'a>, Layout), Error> {
    let at = keys.file_tree.ok_or(Error::Missing { key: "file tree", place: "info dictionary" })?;
    let looks_single = is_single(info, at, info.get(name.clone()).unwrap_or_default())?;
    // The v1 half of a hybrid knows; else the convention is all there is.
    let single = match (keys.files, keys.length) {
        (Some(_), _) => false,
        (None, Some(_)) => looks_single,
        (None, None) => looks_single && !directory,
    };
    let mut builder = TreeBuilder::new(info, name, single)?;
    let mut layout = Layout::empty(piece_length, true)?;
    walk(info, at, single, &mut builder, &mut layout)?;
    Ok((builder, layout.finish()?))
}

/// Whether the tree at `at` is one file of the torrent's own name.
fn is_single(info: &[u8], at: usize, name: &[u8]) -> Result<bool, Error> {
    let mut c = Cursor::at(info, at);
    c.enter_dict()?;
    if c.next_key()? != Some(name) {
        return Ok(false);
    }
    let is_file = c.rest().starts_with(b"d0:");
    c.skip()?;
    Ok(is_file && c.next_key()?.is_none())
}

fn walk(
    info: &[u8],
    at: usize,
    single: bool,
    builder: &mut TreeBuilder<'_>,
    layout: &mut Layout,
) -> Result<(), Error> {
    let mut c = Cursor::at(info, at);
    let mut open = vec![if single { NO_DIR } else { 0 }];
    c.enter_dict()?;
    while let Some(dir) = open.last().copied() {
        if !c.next_item()? {
            open.pop();
            continue;
        }
        let name = c.range()?;
        let path = || {
            let bytes = info.get(name.clone()).unwrap_or_default();
            builder.tree().describe(info, dir, bytes)
        };
        if name.is_empty() {
            // The key of a file's properties among the names of a directory.
            return Err(Error::FileAndDirectory(path()));
        }
        c.enter_dict()?;
        if !c.rest().starts_with(b"0:") {
            open.push(builder.new_dir(dir, name)?);
            continue;
        }
        c.next_key()?;
        let props = file(info, &mut c, path)?;
        if c.next_key()?.is_some() {
            return Err(Error::FileAndDirectory(path()));
        }
        layout.push_file(props.len)?;
        builder.file(dir, name, props)?;
    }
    Ok(())
}

/// The properties of a file: the dictionary under the empty key.
fn file(info: &[u8], c: &mut Cursor<'_>, path: impl Fn() -> String) -> Result<Props, Error> {
    let keys = ["attr", "length", "pieces root", "symlink path"];
    let [attr, length, root, symlink] = fields(c, "description of a file", keys)?;
    let mut props = file_props(info, [length, attr, symlink], &path)?;
    if props.flags & tree::PAD != 0 {
        let why = format!("`{}` is a pad file, which v2 does not allow", path());
        return Err(Error::value("attr", why));
    }
    if props.len > 0 {
        let at = root.ok_or(Error::Missing { key: "pieces root", place: "description of a file" })?;
        let range = Cursor::at(info, at).range()?;
        if range.len() != 32 {
            let why = format!("`{}` has a root of {} bytes instead of 32", path(), range.len());
            return Err(Error::value("pieces root", why));
        }
        props.root_at = range.start as u32;
    }
    Ok(props)
}
