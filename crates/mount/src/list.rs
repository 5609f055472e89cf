//! Prefetch lists: the files to fetch ahead of demand, and their order.
//!
//! A list is a text beside the manifest, never part of it: a better list does not change the info-hash, and
//! each workload has its own. One line is one file, in the order of fetching:
//!
//! ```text
//! tidecast-prefetch 1 2bb80d53…        (the version, and the manifest that the list was recorded with)
//! # a comment
//! bin/python3.11
//! lib/**/*.so                          a pattern: * ? [] {} as in a shell, ** for any depth
//! share/zoneinfo/                      a directory: all that is below it
//! model.safetensors<TAB>0+65536        a part of a file: first byte + number of bytes
//! ```
//!
//! The first line may be left out. A list of another manifest only causes a notice: files are matched by
//! name, so that a list remains valid for a new version of the tree. `\` takes the meaning from the next
//! character (`\*`, `\#`, `\\`, `\ `); `\n`, `\r`, `\t` and `\x1b` are bytes.
//!
//! Promise: reading is bounded ([`MAX_BYTES`], [`MAX_ENTRIES`]) and never panics; a written [`List`] reads back the same.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

/// Longest text of a list in a file, bytes.
pub const MAX_BYTES: u64 = 256 << 20;
/// Most entries of a list.
pub const MAX_ENTRIES: usize = 2_000_000;
/// Most patterns among them: every file of the tree is compared with each.
const MAX_PATTERNS: usize = 1000;
/// Files that patterns lead to, all patterns together: so many for each file of the tree, and these. A short list would take memory
/// for each pattern and file else.
const MATCHES_PER_FILE: usize = 4;
const MORE_MATCHES: usize = 100_000;
/// Longest path or pattern.
const MAX_PATH: usize = 4096;
/// Longest line: a path with every byte escaped, and a range.
const MAX_LINE: usize = 4 * MAX_PATH + 64;
/// The beginning of the first line.
const HEADER: &str = "tidecast-prefetch ";
/// Characters that make a line a pattern.
const WILD: &[u8] = b"*?[{";

/// What to fetch, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List {
    /// Info-hash of the manifest that it was recorded with, in hexadecimal digits.
    pub manifest: Option<String>,
    /// What to fetch, first things first.
    pub entries: Vec<Entry>,
}

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which file, or which files.
    pub name: Name,
    /// The part of it; all of it if absent.
    pub range: Option<Range<u64>>,
}

/// The object of a line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// A path below the published directory.
    Path(Vec<u8>),
    /// A pattern of paths, as `globset` reads it.
    Pattern(String),
}

/// A list applied to one tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Bytes to fetch, in order: file and range, none of them empty.
    pub ranges: Vec<(u32, Range<u64>)>,
    /// Paths and patterns that lead to no file.
    pub missing: Vec<Vec<u8>>,
}

/// Why a list cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// One line is wrong.
    #[error("line {line} of the prefetch list: {problem}")]
    Line {
        /// Which line, from 1.
        line: usize,
        /// The fault.
        problem: ListProblem,
    },
    /// Each pattern is right, but they are too much together.
    #[error("the patterns of the prefetch list cannot be used together ({0}): use fewer or shorter ones")]
    Patterns(String),
    /// They lead to the same files again and again.
    #[error(
        "the patterns of the prefetch list match each file more than {MATCHES_PER_FILE} times: use fewer patterns"
    )]
    TooManyMatches,
}

/// Faults of a line of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListProblem {
    /// A format of the future.
    #[error("format version {0} is not supported (this program supports version 1): record the list again")]
    Version(String),
    /// The first line has no valid info-hash.
    #[error("the info-hash must have 40 or 64 hexadecimal digits: correct or remove it")]
    Hash,
    /// Longer than any path.
    #[error("longer than any path ({MAX_PATH} bytes): write one file per line")]
    TooLong,
    /// More entries than are kept.
    #[error(
        "more than {MAX_ENTRIES} entries: name directories (`lib/`) or patterns (`lib/**`) instead of files"
    )]
    TooMany,
    /// More patterns than are compared.
    #[error("more than {MAX_PATTERNS} patterns: name files or whole directories instead")]
    TooManyPatterns,
    /// A backslash before something that has no meaning.
    #[error(r"a `\` must be followed by n, r, t, x and two hexadecimal digits, or a literal character")]
    Escape,
    /// A pattern that cannot be used.
    #[error(r"invalid pattern ({0}): correct it, or write \ before each of * ? [ {{ in a name")]
    Pattern(String),
    /// The text after the tab is not a range.
    #[error(
        r"the text after the tab must be FIRST+COUNT in bytes, such as 0+65536 (write a tab in a name as \t)"
    )]
    Range,
}

impl List {
    /// Reads a list.
    pub fn parse(text: &[u8]) -> Result<Self, ListError> {
        let mut list = List::default();
        let mut patterns = 0;
        for (i, line) in text.split(|&b| b == b'\n').enumerate() {
            let wrong = |problem| ListError::Line { line: i + 1, problem };
            let line = line.trim_ascii();
            if line.len() > MAX_LINE {
                return Err(wrong(ListProblem::TooLong));
            }
            if i == 0
                && let Some(header) = line.strip_prefix(HEADER.as_bytes())
            {
                list.manifest = read_header(header).map_err(wrong)?;
                continue;
            }
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let entry = Entry::parse(line).map_err(wrong)?;
            patterns += usize::from(matches!(entry.name, Name::Pattern(_)));
            if patterns > MAX_PATTERNS {
                return Err(wrong(ListProblem::TooManyPatterns));
            }
            if list.entries.len() == MAX_ENTRIES {
                return Err(wrong(ListProblem::TooMany));
            }
            list.entries.push(entry);
        }
        Ok(list)
    }

    /// The list as text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("{HEADER}1");
        if let Some(manifest) = &self.manifest {
            text.push(' ');
            text.push_str(manifest);
        }
        for entry in &self.entries {
            text.push('\n');
            match &entry.name {
                Name::Path(path) => escape(path, &mut text),
                Name::Pattern(pattern) => text.push_str(pattern),
            }
            if let Some(range) = &entry.range {
                // Writing to a string cannot fail.
                let _ = write!(text, "\t{}+{}", range.start, range.end.saturating_sub(range.start));
            }
        }
        text.push('\n');
        text.into_bytes()
    }

    /// Applies the list to a tree: `files` are the index, path and length of each regular file. A file may
    /// come under several names (symlinks that lead to it, hard links); nothing is named twice in the answer
    /// unless by ranges that differ.
    ///
    /// # Errors
    /// [`ListError::Patterns`], [`ListError::TooManyMatches`].
    pub fn resolve<'a>(
        &self,
        files: impl Iterator<Item = (u32, &'a [u8], u64)>,
    ) -> Result<Resolved, ListError> {
        // Entries that are paths, sorted by them; and those that are patterns.
        let numbered = self.entries.iter().enumerate();
        let mut paths: Vec<_> = numbered
            .filter_map(|(i, entry)| match &entry.name {
                Name::Path(path) => Some((path.as_slice(), i)),
                Name::Pattern(_) => None,
            })
            .collect();
        paths.sort_unstable();
        let (set, patterns) = self.patterns()?;
        let mut hits = Vec::new();
        let mut globs = Vec::new();
        let (mut matches, mut matches_most) = (0, MORE_MATCHES);
        for (file, path, len) in files {
            let first = paths.partition_point(|&(p, _)| p < path);
            let named = paths.iter().skip(first).take_while(|&&(p, _)| p == path).map(|&(_, i)| i);
            hits.extend(named.map(|i| (i, file, len)));
            if !patterns.is_empty() {
                set.matches_into(OsStr::from_bytes(path), &mut globs);
                matches += globs.len();
                matches_most += MATCHES_PER_FILE;
                if matches > matches_most {
                    return Err(ListError::TooManyMatches);
                }
                hits.extend(globs.iter().map(|&g| (patterns[g], file, len)));
            }
        }
        // Stable: the matches of one pattern stay in the order of the tree.
        hits.sort_by_key(|&(i, ..)| i);
        Ok(self.gather(&hits))
    }

    /// Whether [`List::resolve`] can use its patterns.
    ///
    /// # Errors
    /// [`ListError::Patterns`].
    pub(crate) fn check(&self) -> Result<(), ListError> {
        self.patterns().map(drop)
    }

    /// The patterns, to be compared with a path all at once, and which entries they are.
    fn patterns(&self) -> Result<(GlobSet, Vec<usize>), ListError> {
        let (mut set, mut numbers) = (GlobSetBuilder::new(), Vec::new());
        for (i, entry) in self.entries.iter().enumerate() {
            if let Name::Pattern(pattern) = &entry.name {
                set.add(compile(pattern).map_err(|e| ListError::Patterns(e.to_string()))?);
                numbers.push(i);
            }
        }
        let set = set.build().map_err(|e| ListError::Patterns(e.kind().to_string()))?;
        Ok((set, numbers))
    }

    /// Ranges and missing names from which entry (in order) leads to which file of which length.
    fn gather(&self, hits: &[(usize, u32, u64)]) -> Resolved {
        let mut found = vec![false; self.entries.len()];
        let mut seen = HashSet::new();
        let mut resolved = Resolved::default();
        for &(i, file, len) in hits {
            found[i] = true;
            let range = self.entries[i].range.clone().unwrap_or(0..len);
            let range = range.start..range.end.min(len);
            if !range.is_empty() && !seen.contains(&(file, 0..len)) && seen.insert((file, range.clone())) {
                resolved.ranges.push((file, range));
            }
        }
        let missing = self.entries.iter().zip(&found).filter(|(_, found)| !**found);
        resolved.missing = missing.map(|(entry, _)| entry.name.as_bytes().to_vec()).collect();
        resolved.missing.dedup();
        resolved
    }
}

impl Entry {
    /// Reads a line without white space at its ends.
    fn parse(line: &[u8]) -> Result<Self, ListProblem> {
        let Some(tab) = line.iter().rposition(|&b| b == b'\t') else {
            return Ok(Entry { name: Name::parse(line)?, range: None });
        };
        let range = std::str::from_utf8(&line[tab + 1..]).ok().and_then(|s| s.split_once('+'));
        let range = range.and_then(|(first, count)| {
            let (first, count) = (first.parse::<u64>().ok()?, count.parse::<u64>().ok()?);
            Some(first..first.checked_add(count)?)
        });
        let range = range.filter(|r| !r.is_empty()).ok_or(ListProblem::Range)?;
        Ok(Entry { name: Name::parse(line[..tab].trim_ascii())?, range: Some(range) })
    }
}

impl Name {
    /// The path, or the pattern as it is written.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Name::Path(path) => path,
            Name::Pattern(pattern) => pattern.as_bytes(),
        }
    }

    fn parse(text: &[u8]) -> Result<Self, ListProblem> {
        let mut wild = false;
        // As `find .` writes it; `./` alone is all there is.
        let mut text = text;
        while let Some(rest) = text.strip_prefix(b"./") {
            text = rest;
        }
        let mut path = Vec::with_capacity(text.len());
        let mut pattern = Vec::new();
        let mut rest = text.iter().copied();
        while let Some(byte) = rest.next() {
            if byte == b'\\' {
                let literal = unescape(&mut rest)?;
                path.push(literal);
                match literal {
                    // At the end of a line it would get lost, with or without a backslash.
                    b' ' => pattern.extend(b"[ ]"),
                    _ if literal.is_ascii_punctuation() => pattern.extend([b'\\', literal]),
                    _ => pattern.push(literal),
                }
            } else {
                wild |= WILD.contains(&byte);
                path.push(byte);
                match byte {
                    // After `./` they may come first; otherwise they would be trimmed or begin a comment.
                    b' ' if pattern.is_empty() => pattern.extend(b"[ ]"),
                    b'#' if pattern.is_empty() => pattern.extend(b"\\#"),
                    _ => pattern.push(byte),
                }
            }
        }
        // A directory, however the slash is written; nothing else has one at its end.
        wild |= path.is_empty() || path.ends_with(b"/");
        if path.len() > MAX_PATH || pattern.len() > MAX_PATH {
            return Err(ListProblem::TooLong);
        }
        if !wild {
            return Ok(Name::Path(path));
        }
        if pattern.is_empty() || pattern.ends_with(b"/") {
            pattern.extend(b"**");
        }
        let pattern = String::from_utf8(pattern).map_err(|e| ListProblem::Pattern(e.to_string()))?;
        if pattern.contains(|c: char| c.is_ascii_control()) {
            return Err(ListProblem::Pattern("it contains control characters".into()));
        }
        compile(&pattern)?;
        Ok(Name::Pattern(pattern))
    }
}

fn compile(pattern: &str) -> Result<Glob, ListProblem> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
    glob.map_err(|e| ListProblem::Pattern(e.kind().to_string()))
}

/// The first line after its name: the version, and perhaps an info-hash.
fn read_header(header: &[u8]) -> Result<Option<String>, ListProblem> {
    let header = String::from_utf8_lossy(header);
    let mut words = header.split_ascii_whitespace();
    match words.next() {
        Some("1") => {}
        other => return Err(ListProblem::Version(other.unwrap_or("?").chars().take(20).collect())),
    }
    let hash = words.next().map(str::to_ascii_lowercase);
    let good = |h: &String| matches!(h.len(), 40 | 64) && h.bytes().all(|b| b.is_ascii_hexdigit());
    if hash.as_ref().is_some_and(|h| !good(h)) || words.next().is_some() {
        return Err(ListProblem::Hash);
    }
    Ok(hash)
}

/// The byte that follows a backslash, or that it stands for.
fn unescape(rest: &mut impl Iterator<Item = u8>) -> Result<u8, ListProblem> {
    let mut next = || rest.next().ok_or(ListProblem::Escape);
    match next()? {
        b'n' => Ok(b'\n'),
        b'r' => Ok(b'\r'),
        b't' => Ok(b'\t'),
        b'x' => {
            let mut digit = || next().map(|b| char::from(b).to_digit(16));
            let (high, low) = (digit()?.ok_or(ListProblem::Escape)?, digit()?.ok_or(ListProblem::Escape)?);
            u8::try_from(high << 4 | low).map_err(|_| ListProblem::Escape)
        }
        other if other.is_ascii_alphanumeric() => Err(ListProblem::Escape),
        other => Ok(other),
    }
    // It parts names, however it is written: with a backslash it means nothing.
    .and_then(|byte| if byte == b'/' { Err(ListProblem::Escape) } else { Ok(byte) })
}

/// Writes a path so that it is read as the same path: never a comment or a pattern.
fn escape(path: &[u8], text: &mut String) {
    let last = path.len().saturating_sub(1);
    let mut at = 0;
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => text.push_str(r"\n"),
                '\r' => text.push_str(r"\r"),
                '\t' => text.push_str(r"\t"),
                '\\' | '*' | '?' | '[' | '{' => text.extend(['\\', c]),
                '.' if at == 0 && path.starts_with(b"./") => text.push_str(r"\."),
                '#' if at == 0 => text.push_str(r"\#"),
                ' ' if at == 0 || at == last => text.push_str(r"\x20"),
                _ if c.is_ascii_control() => text.extend(hex(c as u8)),
                _ => text.push(c),
            }
            at += c.len_utf8();
        }
        for &byte in chunk.invalid() {
            text.extend(hex(byte));
            at += 1;
        }
    }
}

/// `\x` and two digits.
fn hex(byte: u8) -> [char; 4] {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    ['\\', 'x', digit(byte >> 4), digit(byte & 15)]
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
