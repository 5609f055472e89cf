//! Web seeds (BEP 19): the URLs of a manifest, and the URL of each file below them.
//!
//! The rules are those of libtorrent and aria2: a URL that ends in `/` names the directory that holds the
//! published file or tree, a URL without it names the file itself; for a published directory it is always the
//! former. Promise: a URL kept here is printable ASCII of at most 2,048 bytes that starts with `http://` or
//! `https://`.

use std::fmt::Write as _;

use crate::Manifest;
use crate::bencode::{Cursor, Kind};

/// Longest URL kept, in bytes, escaped.
const MAX_URL: usize = 2048;
/// Most web seeds kept.
const MAX_SEEDS: usize = 64;

/// The contents of `url-list` and `httpseeds`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WebSeeds {
    pub(crate) urls: Vec<String>,
    /// Entries that are not HTTP URLs, or too many.
    pub(crate) unusable: u32,
    /// BEP 17's seeds.
    pub(crate) bep17: u32,
}

impl WebSeeds {
    /// From the values of `url-list`, which is a string or a list of strings, and of `httpseeds`. Like a bad
    /// tracker, a bad web seed is no reason to reject the data.
    pub(crate) fn read(input: &[u8], list: Option<usize>, bep17: Option<usize>) -> Self {
        let mut seeds = WebSeeds::default();
        for entry in list.map(|at| strings(input, at)).unwrap_or_default() {
            seeds.add(entry);
        }
        let other = bep17.map(|at| strings(input, at)).unwrap_or_default();
        seeds.bep17 = u32::try_from(other.iter().filter(|s| !s.is_empty()).count()).unwrap_or(u32::MAX);
        seeds
    }

    fn add(&mut self, entry: &[u8]) {
        match clean(entry) {
            // Some writers have the key and nothing in it.
            _ if entry.trim_ascii().is_empty() => {}
            Some(url) if self.urls.contains(&url) => {}
            Some(url) if self.urls.len() < MAX_SEEDS => self.urls.push(url),
            _ => self.unusable = self.unusable.saturating_add(1),
        }
    }
}

/// The strings of a list, or a single one; other items of the list are ignored.
fn strings(input: &[u8], at: usize) -> Vec<&[u8]> {
    let mut c = Cursor::at(input, at);
    let mut all = Vec::new();
    if let Ok(Kind::Bytes) = c.peek() {
        all.extend(c.bytes());
    } else if c.enter_list().is_ok() {
        while let Ok(true) = c.next_item() {
            match c.peek() {
                Ok(Kind::Bytes) => all.extend(c.bytes()),
                _ if c.skip().is_ok() => {}
                _ => break,
            }
        }
    }
    all
}

/// A web seed's URL with invalid characters (spaces, other alphabets) percent-encoded and its fragment left
/// out; `None` if it is not an HTTP URL, or too long.
pub fn clean(url: &[u8]) -> Option<String> {
    let url = url.trim_ascii();
    let url = url.split(|b| *b == b'#').next().unwrap_or(url);
    let starts = |with: &[u8]| url.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with));
    if !(starts(b"http://") || starts(b"https://")) || url.len() > MAX_URL {
        return None;
    }
    let mut out = String::with_capacity(url.len());
    for &byte in url {
        match byte {
            b'!'..=b'~' if !b"\"<>\\^`{|}".contains(&byte) => out.push(char::from(byte)),
            _ => escape(&mut out, byte),
        }
    }
    Some(out).filter(|url| url.len() <= MAX_URL)
}

fn escape(out: &mut String, byte: u8) {
    // Writing to a String cannot fail.
    let _ = write!(out, "%{byte:02X}");
}

/// A path's component with all but RFC 3986's unreserved characters percent-encoded.
fn push_component(out: &mut String, name: &[u8]) {
    for &byte in name {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => escape(out, byte),
        }
    }
}

/// The server's description of the part of a file that it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// First byte.
    pub first: u64,
    /// Last byte, that one included.
    pub last: u64,
    /// Bytes of the whole file, where the server reports them.
    pub total: Option<u64>,
}

impl std::str::FromStr for ContentRange {
    type Err = ();

    /// Reads `bytes FIRST-LAST/TOTAL`, where the total may be `*` (RFC 9110, 14.4).
    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| digits).ok_or(())
        };
        let (unit, rest) = text.trim().split_once(' ').ok_or(())?;
        let (range, total) = rest.trim().split_once('/').ok_or(())?;
        let (first, last) = range.split_once('-').ok_or(())?;
        let total = if total == "*" { None } else { Some(number(total)?) };
        let range = ContentRange { first: number(first)?, last: number(last)?, total };
        let whole = range.first <= range.last && range.total.is_none_or(|total| range.last < total);
        if unit.eq_ignore_ascii_case("bytes") && whole { Ok(range) } else { Err(()) }
    }
}

impl Manifest {
    /// BEP 19: URLs of servers that have the published files.
    pub fn web_seeds(&self) -> &[String] {
        &self.outer.web_seeds.urls
    }

    /// The same manifest with other web seeds, without those that are not HTTP URLs; the info-hash does not
    /// change. Of a directory they end in `/`, so that each client reads them alike.
    pub fn with_web_seeds<T: AsRef<[u8]>>(mut self, urls: impl IntoIterator<Item = T>) -> Self {
        let mut seeds = WebSeeds::default();
        for url in urls {
            let mut url = url.as_ref().trim_ascii().to_vec();
            if !self.is_single_file() && !url.is_empty() && !url.ends_with(b"/") {
                url.push(b'/');
            }
            seeds.add(&url);
        }
        self.outer.web_seeds = seeds;
        self
    }

    /// Where a web seed has a file, percent-encoded.
    pub fn web_url(&self, seed: &str, file: u32) -> Option<String> {
        let path = self.file(file)?.path();
        let mut url = seed.to_owned();
        if self.is_single_file() {
            if url.ends_with('/') {
                push_component(&mut url, path.name());
            }
            return Some(url);
        }
        for part in path.components() {
            if !url.ends_with('/') {
                url.push('/');
            }
            push_component(&mut url, part);
        }
        Some(url)
    }
}
