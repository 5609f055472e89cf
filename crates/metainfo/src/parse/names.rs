//! Names as other programs write them: with a `/` in a component, and in a local code with UTF-8 beside it.

use super::fields;
use crate::Error;
use crate::bencode::Cursor;
use std::ops::Range;

/// A copy of an info dictionary in which every name of a file or directory has `_` where it had `/`. All else, and
/// every offset, stays the same. libtorrent and aria2 do without the `/` too.
pub(super) fn without_slashes(info: &[u8]) -> Result<Vec<u8>, Error> {
    let mut copy = info.to_vec();
    let mut mend = |name: Range<usize>| {
        let name = copy.get_mut(name).unwrap_or_default();
        name.iter_mut().filter(|b| **b == b'/').for_each(|b| *b = b'_');
    };
    let keys = ["file tree", "files", "name", "name.utf-8"];
    let [tree, files, name, utf8] = fields(&mut Cursor::new(info), "info dictionary", keys)?;
    for at in [name, utf8].into_iter().flatten() {
        mend(Cursor::at(info, at).range()?);
    }
    if let Some(at) = tree {
        below(info, at, &mut mend)?;
    }
    if let Some(at) = files {
        let mut c = Cursor::at(info, at);
        c.enter_list()?;
        while c.next_item()? {
            let paths = fields(&mut c, "description of a file", ["path", "path.utf-8"])?;
            for at in paths.into_iter().flatten() {
                list(info, at)?.into_iter().for_each(&mut mend);
            }
        }
    }
    Ok(copy)
}

/// The names of a file tree.
fn below(info: &[u8], at: usize, visit: &mut impl FnMut(Range<usize>)) -> Result<(), Error> {
    let mut c = Cursor::at(info, at);
    let mut depth = 1_usize;
    c.enter_dict()?;
    while depth > 0 {
        if !c.next_item()? {
            depth -= 1;
            continue;
        }
        let name = c.range()?;
        if name.is_empty() {
            // The properties of a file.
            c.skip()?;
            continue;
        }
        visit(name);
        c.enter_dict()?;
        depth += 1;
    }
    Ok(())
}

/// A list of strings: where each of them lies.
pub(super) fn list(info: &[u8], at: usize) -> Result<Vec<Range<usize>>, Error> {
    let (mut c, mut all) = (Cursor::at(info, at), Vec::new());
    c.enter_list()?;
    while c.next_item()? {
        all.push(c.range()?);
    }
    Ok(all)
}

/// Of a name and the same in UTF-8 (`name.utf-8`), which writers of torrents add where the first is in a local code.
pub(super) fn better_name(info: &[u8], plain: Range<usize>, utf8: Option<usize>) -> Range<usize> {
    let utf8 = utf8.and_then(|at| Cursor::at(info, at).range().ok());
    utf8.filter(|name| is_text(info, name)).unwrap_or(plain)
}

/// As [`better_name`], of a path.
pub(super) fn better_path(info: &[u8], plain: Vec<Range<usize>>, utf8: Option<usize>) -> Vec<Range<usize>> {
    let utf8 = utf8.and_then(|at| list(info, at).ok());
    utf8.filter(|path| !path.is_empty() && path.iter().all(|name| is_text(info, name))).unwrap_or(plain)
}

fn is_text(info: &[u8], name: &Range<usize>) -> bool {
    info.get(name.clone()).is_some_and(|bytes| !bytes.is_empty() && std::str::from_utf8(bytes).is_ok())
}
