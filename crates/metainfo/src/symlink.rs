//! Symbolic links: valid targets, and the relation between BEP 47's form and the text of a link.
//!
//! BEP 47 stores the target as components from the root of the torrent; Linux wants a text relative to the
//! link. A text may lead out of the tree, as a virtual environment's `bin/python` does: [`check`] detects
//! such links, and to other clients their target is empty. No reader follows a link (crate `paths`), and no
//! entry of a manifest lies below one: a name is a link or a directory, never both.

use crate::Error;
use crate::bencode::Cursor;
use crate::error::printable;
use crate::tree::{Entry, Index, NO_DIR, Tree, name_fault};

/// Most components in a target.
const MAX_COMPONENTS: usize = 200;
/// Longest text of a link that Linux takes, in bytes.
const MAX_TEXT: usize = 4095;

/// Reads a `symlink path`: the list of components at `at`.
pub(crate) fn read_path(info: &[u8], at: usize) -> Result<Vec<&[u8]>, Error> {
    let mut c = Cursor::at(info, at);
    let mut parts = Vec::new();
    c.enter_list()?;
    while c.next_item()? {
        let part = c.bytes()?;
        if parts.len() >= MAX_COMPONENTS {
            return Err(Error::value("symlink path", "it has more than 200 components"));
        }
        parts.push(part);
    }
    Ok(parts)
}

/// The text that a link at `link` (components below the root) needs to reach `target`.
pub(crate) fn relative(link: Vec<&[u8]>, target: &[&[u8]]) -> Vec<u8> {
    let from = &link[..link.len().saturating_sub(1)];
    let common = from.iter().zip(target).take_while(|(a, b)| a == b).count();
    let ups = std::iter::repeat_n(&b".."[..], from.len() - common);
    let parts: Vec<&[u8]> = ups.chain(target[common..].iter().copied()).collect();
    if parts.is_empty() {
        return b".".to_vec();
    }
    parts.join(&b'/')
}

/// Why no link can have this text, wherever it leads.
pub(crate) fn no_text(text: &[u8]) -> Option<&'static str> {
    match text {
        [] => Some("the target is empty"),
        _ if text.len() > MAX_TEXT => Some("the target is longer than 4095 bytes"),
        _ if text.contains(&0) => Some("the target contains a NUL"),
        _ => None,
    }
}

/// The components, from the root of the tree, that the text of a link in the directory `from` names, without
/// looking at other links. None if that is not a place in the tree: the link leads out.
pub(crate) fn resolve<'a>(from: &[&'a [u8]], text: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    if text.first() == Some(&b'/') {
        return None;
    }
    let mut at = from.to_vec();
    for part in text.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(at.pop()?),
            name if name_fault(name).is_some() => return None,
            name => at.push(name),
        }
    }
    (at.len() <= MAX_COMPONENTS).then_some(at)
}

/// Whether an absolute text leads to a path or below it, climbing nowhere.
pub(crate) fn is_below(text: &[u8], path: &[u8]) -> bool {
    fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
        path.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b"."))
    }
    let mut rest = parts(text);
    text.starts_with(b"/")
        && path.starts_with(b"/")
        && parts(path).all(|part| rest.next() == Some(part))
        && parts(text).all(|part| part != b"..")
}

/// Checks one link of a finished tree: the target at `symlink path`, and the exact text if
/// Tidecast's key has one. Returns whether it leads out of the tree: by its own text, or maybe through another link.
pub(crate) fn check(
    tree: &Tree,
    index: &Index,
    info: &[u8],
    file: u32,
    text: Option<&[u8]>,
) -> Result<bool, Error> {
    let Some(at) = tree.symlink_at(file) else {
        return Ok(false);
    };
    let target = read_path(info, at)?;
    let fail = |why| {
        Err(Error::Symlink {
            path: tree.describe_file(info, file),
            target: printable(text.unwrap_or(&target.join(&b'/'))),
            why,
        })
    };
    if tree.is_single() {
        return fail("a link published alone points outside of the published tree");
    }
    if let Some(why) = target.iter().find_map(|part| name_fault(part)) {
        return fail(why);
    }
    let Some(text) = text else {
        return Ok(false);
    };
    if let Some(why) = no_text(text) {
        return fail(why);
    }
    let mut from = Vec::new();
    let mut dir = tree.file_place(info, file).0;
    let link_dir = dir;
    loop {
        let (parent, name) = tree.dir_place(info, dir);
        if parent == NO_DIR {
            break;
        }
        from.push(name);
        dir = parent;
    }
    from.reverse();
    let inside = resolve(&from, text);
    if inside.as_ref().map_or(&[][..], Vec::as_slice) != target {
        return fail("its text and its `symlink path` differ");
    }
    Ok(inside.is_none() || climbs_through_link(tree, index, info, link_dir, text))
}

/// Whether the text has a `..` after a component that is itself a link: then lexical resolution does not find
/// the target. Without one, following a link stays inside: each link leads to a place in the tree, and from
/// there the rest only descends.
fn climbs_through_link(tree: &Tree, index: &Index, info: &[u8], dir: u32, text: &[u8]) -> bool {
    // `None`: not in the tree, so nothing there is a link of the tree.
    let mut at = Some(dir);
    let mut linked = false;
    for part in text.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." if linked => return true,
            b".." => match at {
                Some(dir) => at = Some(tree.dir_place(info, dir).0).filter(|p| *p != NO_DIR),
                // Climbing out of a name that does not exist: do not guess.
                None => return true,
            },
            name => match at.and_then(|dir| index.find(tree, info, dir, name)) {
                Some(Entry::Dir(dir)) => at = Some(dir),
                Some(Entry::File(file)) => {
                    linked |= tree.symlink_at(file).is_some();
                    at = None;
                }
                None => at = None,
            },
        }
    }
    false
}
