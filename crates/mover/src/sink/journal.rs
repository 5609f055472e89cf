//! The journal: which parts of which files are in the staging directory, so that another run need not have them sent again.
//!
//! Records of 32 bytes are appended, each after its part was written; nothing is ever rewritten. A record
//! truncated by a crash has a wrong check and ends the journal. The journal is only a hint: the data on disk
//! is compared by digest with the source before it counts.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufReader, Read, Write};

use rustix::fs::OFlags;
use tidecast_hash::sha256;

use super::entry_error::{Doing, EntryResult};
use super::stage::Stage;
use crate::entry::Entry;

/// The identity of a file in the journal: path, length, time.
pub(super) type Id = [u8; 15];

const RECORD: usize = 32;
const CHECK: usize = 8;
const NAME: &str = "journal";
const MAGIC: &Id = b"tidecast-copy/3";

/// The parts of a file that an earlier run has left, by number. (Holes are not in the journal: sending them
/// again costs nothing.)
pub(super) type Left = BTreeSet<u64>;

#[derive(Debug)]
pub(super) struct Journal(File);

pub(super) fn id(entry: &Entry) -> Id {
    let mtime = entry.attributes.mtime;
    let mut text = entry.path.clone();
    text.push(0);
    text.extend_from_slice(&entry.len().to_le_bytes());
    text.extend_from_slice(&mtime.seconds.to_le_bytes());
    text.extend_from_slice(&mtime.nanos.to_le_bytes());
    let mut id = [0; 15];
    id.copy_from_slice(&sha256(&text)[..15]);
    id
}

/// The name of an unfinished file in the staging directory.
pub(super) fn staged(id: &Id) -> String {
    format!("f{}", data_encoding::HEXLOWER.encode(id))
}

impl Journal {
    /// Reads the records of an earlier run, and appends after them; whether there are any.
    pub(super) fn open(stage: &Stage) -> EntryResult<(Self, HashMap<Id, Left>, bool)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND;
        let file = File::from(stage.file(NAME, flags).doing("open the journal in")?);
        let (left, good) = read(&file, &|id| stage.file(&staged(id), OFlags::RDONLY).is_ok());
        file.set_len(good).doing("truncate the journal in")?;
        let journal = Self(file);
        if good == 0 {
            journal.append(record(0, MAGIC, 0))?;
        }
        Ok((journal, left, good > 0))
    }

    /// A part has been written.
    pub(super) fn add(&self, id: &Id, part: u64) -> EntryResult {
        self.append(record(1, id, part))
    }

    fn append(&self, record: [u8; RECORD]) -> EntryResult {
        (&self.0).write_all(&record).doing("write to the journal in")
    }
}

/// kind, id, number, check.
fn record(kind: u8, id: &Id, number: u64) -> [u8; RECORD] {
    let mut all = [0; RECORD];
    all[0] = kind;
    all[1..16].copy_from_slice(id);
    all[16..24].copy_from_slice(&number.to_le_bytes());
    let check = sha256(&all[..RECORD - CHECK]);
    all[RECORD - CHECK..].copy_from_slice(&check[..CHECK]);
    all
}

/// Its records, and the length of its valid part.
fn read(file: &File, staged: &dyn Fn(&Id) -> bool) -> (HashMap<Id, Left>, u64) {
    let (mut files, mut there, mut good) = (HashMap::<Id, Left>::new(), HashMap::new(), 0);
    let mut from = BufReader::new(file);
    let mut bytes = [0; RECORD];
    while from.read_exact(&mut bytes).is_ok() {
        let (body, check) = bytes.split_at(RECORD - CHECK);
        let (mut id, mut number) = ([0; 15], [0; 8]);
        id.copy_from_slice(&body[1..16]);
        number.copy_from_slice(&body[16..24]);
        if sha256(body)[..CHECK] != *check || (good == 0 && (body[0], &id) != (0, MAGIC)) {
            break;
        }
        good += RECORD as u64;
        // Files that were finished are not worth remembering.
        if body[0] == 1 && *there.entry(id).or_insert_with(|| staged(&id)) {
            files.entry(id).or_default().insert(u64::from_le_bytes(number));
        }
    }
    (files, good)
}
