//! Reads metainfo: the outer dictionary, the info dictionary, and the parts that v1 and v2 share.
//!
//! The input is walked with a [`Cursor`], each part once after the dictionary that holds it has
//! been skimmed for its keys. Promise: everything is checked here, so that no other module has
//! to distrust a [`Manifest`].

mod names;
mod v1;
mod v2;

use crate::bencode::{self, Cursor, Fault, Kind};
use crate::draft::Roots;
use crate::error::printable;
use crate::extra::Raw;
use crate::manifest::{MAX_LEN, Manifest, Outer, Version};
use crate::tree::{self, Props};
use crate::web_seed::WebSeeds;
use crate::{Error, Excluded, symlink};
use std::ops::Range;
use tidecast_hash::{Digest, LEAF, sha1, sha256};

/// Piece lengths beyond this are refused: a piece must fit in memory.
pub(crate) const MAX_PIECE_LENGTH: u64 = 512 << 20;
/// v1 writers have used odd piece lengths, but none under this.
const MIN_V1_PIECE_LENGTH: i64 = 1 << 10;
/// Trackers kept, of all tiers, and the longest URL.
const MAX_TRACKERS: usize = 200;
const MAX_URL: usize = 2048;
/// Longest comment kept, in bytes.
const MAX_TEXT: usize = 64 << 10;
/// Longest certificate.
const MAX_CERT: usize = 256 << 10;

/// Reads a dictionary and returns where the value of each of `keys` lies. Other keys are skipped; a key of
/// `keys` that occurs twice is an error.
pub(crate) fn fields<const N: usize>(
    c: &mut Cursor<'_>,
    place: &'static str,
    keys: [&'static str; N],
) -> Result<[Option<usize>; N], Error> {
    let mut found = [None; N];
    c.enter_dict()?;
    while let Some(key) = c.next_key()? {
        if let Some(slot) = keys.iter().position(|k| k.as_bytes() == key)
            && let Some(place_of) = found.get_mut(slot)
            && place_of.replace(c.pos()).is_some()
        {
            let key = printable(key);
            return Err(Error::Twice { key, place });
        }
        c.skip()?;
    }
    Ok(found)
}

/// A string that text is made of, if it is valid and not absurdly long.
fn text(input: &[u8], at: Option<usize>) -> Option<String> {
    let bytes = Cursor::at(input, at?).bytes().ok()?;
    let good = std::str::from_utf8(bytes).ok().filter(|t| t.len() <= MAX_TEXT);
    good.map(str::to_owned)
}

impl Manifest {
    /// Reads a whole metainfo file.
    pub fn parse(torrent: &[u8]) -> Result<Self, Error> {
        Self::read(torrent, false)
    }

    pub(crate) fn read(torrent: &[u8], drafts: bool) -> Result<Self, Error> {
        check_len(torrent)?;
        let mut c = Cursor::new(torrent);
        let keys = [
            "announce",
            "announce-list",
            "comment",
            "comment.utf-8",
            "created by",
            "creation date",
            "info",
            "piece layers",
            "tidecast",
            "url-list",
            "httpseeds",
        ];
        let [announce, list, comment, comment_utf8, created_by, date, info, layers, left_out, web, bep17] =
            fields(&mut c, "metainfo file", keys)?;
        if !c.rest().iter().all(u8::is_ascii_whitespace) {
            let (at, what) = (c.pos(), Fault::Trailing);
            return Err(bencode::Error { at, what }.into());
        }
        let info = info.ok_or(Error::Missing { key: "info", place: "metainfo file" })?;
        let outer = Outer {
            trackers: trackers(torrent, announce, list),
            comment: text(torrent, comment_utf8).or_else(|| text(torrent, comment)),
            created_by: text(torrent, created_by),
            creation_date: date.and_then(|at| Cursor::at(torrent, at).int().ok()),
            left_out: Excluded::read(torrent, left_out),
            web_seeds: WebSeeds::read(torrent, web, bep17),
        };
        let mut manifest = read_info(Cursor::at(torrent, info).skip()?, outer, drafts)?;
        if let Some(at) = layers.filter(|_| manifest.version.has_v2()) {
            manifest.read_layers(&mut Cursor::at(torrent, at))?;
        }
        Ok(manifest)
    }

    /// Reads an info dictionary alone, as BEP 9 delivers it; v2 piece layers are then missing
    /// ([`Manifest::missing_layers`]).
    pub fn from_info(info: &[u8], trackers: Vec<Vec<String>>) -> Result<Self, Error> {
        Self::from_info_of(info, trackers, false)
    }

    pub(crate) fn from_info_of(info: &[u8], trackers: Vec<Vec<String>>, drafts: bool) -> Result<Self, Error> {
        check_len(info)?;
        read_info(info, Outer { trackers, ..Outer::default() }, drafts)
    }

    /// BEP 52 `piece layers`: each is checked against the root under which it is stored. Layers of files that
    /// the manifest does not have are ignored.
    fn read_layers(&mut self, c: &mut Cursor<'_>) -> Result<(), Error> {
        c.enter_dict()?;
        while let Some(key) = c.next_key()? {
            let Ok(root) = Digest::try_from(key) else {
                return Err(Error::value("piece layers", "a key is not a 32-byte hash"));
            };
            let bytes = c.bytes()?;
            let Some(file) = self.tree.find_root(&self.info, &root) else {
                continue;
            };
            // Files of one piece have no layer; some writers give them one of one hash.
            if self.file_pieces(file).len() < 2 {
                continue;
            }
            let (layer, rest) = bytes.as_chunks::<32>();
            if !rest.is_empty() {
                let why = "its length is not a multiple of 32";
                let path = self.tree.describe_file(&self.info, file);
                return Err(Error::Layer { path, why });
            }
            self.add_layer(file, layer)?;
        }
        Ok(())
    }
}

fn check_len(input: &[u8]) -> Result<(), Error> {
    if input.len() <= MAX_LEN {
        return Ok(());
    }
    Err(Error::TooBig { len: input.len() as u64, max: MAX_LEN as u64 })
}

/// BEP 12: the tiers, or the plain tracker. Unusable URLs are left out: a bad tracker is no reason to reject
/// the data.
fn trackers(input: &[u8], announce: Option<usize>, list: Option<usize>) -> Vec<Vec<String>> {
    let url = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).ok()?.trim();
        let good = !text.is_empty() && text.len() <= MAX_URL && text.is_ascii();
        (good && !text.contains(|c: char| c.is_ascii_control())).then(|| text.to_owned())
    };
    let tiers = list.and_then(|at| {
        let mut c = Cursor::at(input, at);
        let mut tiers: Vec<Vec<String>> = Vec::new();
        let mut count = 0;
        c.enter_list().ok()?;
        while c.next_item().ok()? {
            let mut tier = Vec::new();
            c.enter_list().ok()?;
            while c.next_item().ok()? {
                let good = url(c.bytes().ok()?).filter(|_| count < MAX_TRACKERS);
                count += usize::from(good.is_some());
                tier.extend(good);
            }
            if !tier.is_empty() {
                tiers.push(tier);
            }
        }
        (!tiers.is_empty()).then_some(tiers)
    });
    tiers.unwrap_or_else(|| {
        let plain = announce.and_then(|at| url(Cursor::at(input, at).bytes().ok()?));
        plain.map(|url| vec![vec![url]]).unwrap_or_default()
    })
}

/// The places of the known keys of an info dictionary.
struct Fields {
    file_tree: Option<usize>,
    files: Option<usize>,
    length: Option<usize>,
    attr: Option<usize>,
    name: Option<usize>,
    name_utf8: Option<usize>,
    piece_length: Option<usize>,
    pieces: Option<usize>,
    private: Option<usize>,
    ssl_cert: Option<usize>,
    tidecast: Option<usize>,
    version: Version,
}

impl Fields {
    fn read(info: &[u8]) -> Result<Self, Error> {
        let keys = [
            "file tree",
            "files",
            "length",
            "attr",
            "meta version",
            "name",
            "name.utf-8",
            "piece length",
            "pieces",
            "private",
            "ssl-cert",
            "tidecast",
        ];
        let mut c = Cursor::new(info);
        let [
            file_tree,
            files,
            length,
            attr,
            meta_version,
            name,
            name_utf8,
            piece_length,
            pieces,
            private,
            ssl_cert,
            tidecast,
        ] = fields(&mut c, "info dictionary", keys)?;
        let meta_version = meta_version.map(|at| Cursor::at(info, at).int()).transpose()?;
        let missing = |key| Error::Missing { key, place: "info dictionary" };
        let version = match (meta_version, pieces) {
            (Some(2), Some(_)) => Version::Hybrid,
            (Some(2), None) => Version::V2,
            (None | Some(1), Some(_)) => Version::V1,
            (None, None) if file_tree.is_some() => return Err(missing("meta version")),
            (None | Some(1), None) => return Err(missing("pieces")),
            (Some(other), _) => return Err(Error::MetaVersion(other)),
        };
        if version.has_v2() && file_tree.is_none() {
            return Err(missing("file tree"));
        }
        if version.has_v1() && files.is_none() && length.is_none() {
            return Err(missing("files"));
        }
        if version.has_v1() && files.is_some() && length.is_some() {
            return Err(Error::value("length", "`length` and `files` cannot both be present"));
        }
        Ok(Fields {
            file_tree,
            files,
            length,
            attr,
            name,
            name_utf8,
            piece_length,
            pieces,
            private,
            ssl_cert,
            tidecast,
            version,
        })
    }

    fn name(&self, info: &[u8]) -> Result<Range<usize>, Error> {
        let at = self.name.ok_or(Error::Missing { key: "name", place: "info dictionary" })?;
        let name = Cursor::at(info, at).range()?;
        // BEP 52 has names in UTF-8 only.
        let utf8 = self.name_utf8.filter(|_| !self.version.has_v2());
        Ok(names::better_name(info, name, utf8))
    }

    fn piece_length(&self, info: &[u8]) -> Result<u32, Error> {
        let at = self.piece_length.ok_or(Error::Missing { key: "piece length", place: "info dictionary" })?;
        let value = Cursor::at(info, at).int()?;
        let power = value > 0 && (value & (value - 1)) == 0;
        let why = match value {
            _ if value > MAX_PIECE_LENGTH as i64 => "more than 512 MiB",
            _ if self.version.has_v2() && (!power || value < LEAF as i64) => {
                "v2 needs a power of two of at least 16384 (BEP 52)"
            }
            _ if value < MIN_V1_PIECE_LENGTH => "less than 1024",
            _ => return Ok(value as u32),
        };
        Err(Error::PieceLength { value, why })
    }

    fn ssl_cert(&self, info: &[u8]) -> Result<Option<Range<usize>>, Error> {
        let Some(at) = self.ssl_cert else {
            return Ok(None);
        };
        let range = Cursor::at(info, at).range()?;
        if range.len() > MAX_CERT {
            return Err(Error::value("ssl-cert", "it is longer than 256 KiB"));
        }
        Ok(Some(range))
    }
}

/// The items of the v1 half: the number of each file, and `None` for padding.
pub(crate) fn listed(info: &[u8]) -> Result<Vec<Option<u32>>, Error> {
    v1::listed(info, &Fields::read(info)?)
}

/// Reads and checks an info dictionary.
fn read_info(info: &[u8], outer: Outer, drafts: bool) -> Result<Manifest, Error> {
    let mut whole = Cursor::new(info);
    whole.skip()?;
    if !whole.is_empty() {
        let (at, what) = (whole.pos(), Fault::Trailing);
        return Err(bencode::Error { at, what }.into());
    }
    let mut manifest = match read_view(info, drafts) {
        Err(Error::Name { why: tree::SLASH, .. }) => {
            let view = read_view(&names::without_slashes(info)?, drafts)?;
            Manifest { original: Some(info.into()), ..view }
        }
        read => read?,
    };
    manifest.hash_v1 = manifest.version.has_v1().then(|| sha1(info));
    manifest.hash_v2 = manifest.version.has_v2().then(|| sha256(info));
    manifest.outer = outer;
    Ok(manifest)
}

/// As [`read_info`], but for the hashes and the fields outside of the info dictionary.
fn read_view(info: &[u8], drafts: bool) -> Result<Manifest, Error> {
    read_keys(info, Fields::read(info)?, drafts)
}

fn read_keys(info: &[u8], keys: Fields, drafts: bool) -> Result<Manifest, Error> {
    let version = keys.version;
    let name = keys.name(info)?;
    let piece_length = keys.piece_length(info)?;
    let raw_extra = Raw::skim(info, keys.tidecast)?;
    let (mut builder, mut layout) = if version.has_v2() {
        v2::read(info, &keys, name, piece_length, raw_extra.is_directory())?
    } else {
        v1::read(info, &keys, name, piece_length)?
    };
    let v1_pieces = if version.has_v1() {
        v1::pieces(info, &keys, &layout)?
    } else {
        // Beyond the end: there is no hash to find.
        usize::MAX..usize::MAX
    };
    if version == Version::Hybrid && !v1::compare(info, &keys, builder.tree(), &mut layout)? {
        // Pieces lie as the v1 half has them, for all clients that take such a manifest at all.
        let manifest = read_keys(info, Fields { version: Version::V1, ..keys }, drafts)?;
        return Ok(Manifest { other_order: true, ..manifest });
    }
    raw_extra.add_empty_dirs(info, &mut builder)?;
    let (tree, index) = builder.finish(|file| layout.file_len(file))?;
    let draft = tree.is_draft(info)?;
    match (draft, drafts, version) {
        (false, ..) | (true, true, Version::V2) => {}
        (true, false, _) => return Err(Error::Draft("it has no hashes")),
        (true, true, _) => return Err(Error::Draft("only a v2 manifest can be a draft")),
    }
    let extra = raw_extra.decode(info, &tree, &layout, version)?;
    let prefix = extra.prefix.clone().and_then(|r| info.get(r));
    let mut outside: Option<(u32, u32)> = None;
    let mut to_prefix: Option<(u32, u32)> = None;
    for file in 0..tree.file_count() {
        let text = extra.symlink_text(file).and_then(|r| info.get(r));
        if symlink::check(&tree, &index, info, file, text)? {
            let own = text.zip(prefix).is_some_and(|(text, prefix)| symlink::is_below(text, prefix));
            let counted = if own { &mut to_prefix } else { &mut outside };
            let (first, so_far) = counted.unwrap_or((file, 0));
            *counted = Some((first, so_far + 1));
        }
    }
    let private = keys.private.map(|at| Cursor::at(info, at).int()).transpose()?;
    Ok(Manifest {
        version,
        roots: draft.then(|| Roots::new(layout.piece_count())),
        layout,
        tree,
        v1_pieces,
        layers: Vec::new(),
        private: private.is_some_and(|p| p != 0),
        ssl_cert: keys.ssl_cert(info)?,
        unknown_extra: raw_extra.unknown(),
        extra,
        outside,
        to_prefix,
        other_order: false,
        hash_v1: None,
        hash_v2: None,
        outer: Outer::default(),
        info: info.into(),
        original: None,
    })
}

/// BEP 47 `attr`: one letter a flag; unknown ones are ignored.
fn attributes(letters: &[u8]) -> u8 {
    letters.iter().fold(0, |flags, letter| {
        flags
            | match letter {
                b'x' => tree::EXECUTABLE,
                b'h' => tree::HIDDEN,
                b'l' => tree::SYMLINK,
                b'p' => tree::PAD,
                _ => 0,
            }
    })
}

/// Length and attributes of a file; the keys are the same in v1 and v2.
fn file_props(
    info: &[u8],
    [length, attr, symlink]: [Option<usize>; 3],
    path: impl Fn() -> String,
) -> Result<Props, Error> {
    let flags = match attr {
        Some(at) => attributes(Cursor::at(info, at).bytes()?),
        None => 0,
    };
    let is_link = flags & tree::SYMLINK != 0;
    let len = match length {
        Some(at) => Cursor::at(info, at).int()?,
        None if is_link => 0,
        None => {
            return Err(Error::Missing { key: "length", place: "description of a file" });
        }
    };
    let Ok(len) = u64::try_from(len) else {
        return Err(Error::value("length", format!("`{}` has {len} bytes", path())));
    };
    let refuse = |why| Err(Error::Symlink { path: path(), target: String::new(), why });
    let symlink_at = match symlink.filter(|_| is_link) {
        Some(at) if Cursor::at(info, at).peek()? == Kind::List => at as u32,
        _ if is_link => return refuse("missing `symlink path`"),
        _ => 0,
    };
    if is_link && len != 0 {
        return refuse("a link must not have a length");
    }
    Ok(Props { len, flags, root_at: 0, symlink_at })
}
