//! The journal: which parts of which cut files are in the staging directory, so that another run need not have them sent again.
//!
//! Records of 64 bytes are appended, each after its part was written; nothing is ever rewritten. A record that was cut off by a
//! crash has a wrong check and ends the journal. What was written before the machine started last may not be on the disk even if its
//! record is: it is hashed again before it is believed.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Write};

use rustix::fs::OFlags;
use tidecast_hash::{Digest, sha256};

use super::stage::Stage;
use super::trouble::{Doing, Tried};
use crate::entry::Entry;

/// What a file is known by in the journal: path, length, time.
pub(super) type Id = [u8; 15];

const RECORD: usize = 64;
const CHECK: usize = 8;
const NAME: &str = "journal";
const MAGIC: &[u8; 15] = b"tidecast-copy/2";

/// What an earlier run has left of a file: parts, their digests, and whether they must be hashed before they are believed.
/// (Holes are not in the journal: to send them again costs nothing.)
pub(super) type Left = Vec<(u64, Digest, bool)>;

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
    /// Reads what an earlier run has left, and goes on after it. `boot` is what the machine calls the time since it was started.
    pub(super) fn open(stage: &Stage, boot: &Digest) -> Tried<(Self, HashMap<Id, Left>)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND;
        let file = File::from(stage.file(NAME, flags).doing("open the journal in")?);
        let (left, good, same_boot) =
            read(&file, boot, &|id| stage.file(&staged(id), OFlags::RDONLY).is_ok())?;
        file.set_len(good).doing("cut the journal in")?;
        let journal = Self(file);
        if !same_boot {
            journal.append(record(0, MAGIC, 0, boot))?;
        }
        Ok((journal, left))
    }

    /// A part has been written.
    pub(super) fn add(&self, id: &Id, part: u64, digest: &Digest) -> Tried {
        self.append(record(1, id, part, digest))
    }

    fn append(&self, record: [u8; RECORD]) -> Tried {
        (&self.0).write_all(&record).doing("write to the journal in")
    }
}

/// kind, id, number, value, check.
fn record(kind: u8, id: &Id, number: u64, value: &Digest) -> [u8; RECORD] {
    let mut all = [0; RECORD];
    all[0] = kind;
    all[1..16].copy_from_slice(id);
    all[16..24].copy_from_slice(&number.to_le_bytes());
    all[24..56].copy_from_slice(value);
    let check = sha256(&all[..RECORD - CHECK]);
    all[RECORD - CHECK..].copy_from_slice(&check[..CHECK]);
    all
}

/// What is in it, how long its good part is, and whether its last records are of this boot.
fn read(file: &File, boot: &Digest, staged: &dyn Fn(&Id) -> bool) -> Tried<(HashMap<Id, Left>, u64, bool)> {
    let (mut files, mut there) = (HashMap::<Id, Left>::new(), HashMap::new());
    let (mut good, mut same_boot) = (0, false);
    let mut from = BufReader::new(file);
    let mut bytes = [0; RECORD];
    while from.read_exact(&mut bytes).is_ok() {
        let (body, check) = bytes.split_at(RECORD - CHECK);
        let (mut id, mut number, mut value) = ([0; 15], [0; 8], [0; 32]);
        id.copy_from_slice(&body[1..16]);
        number.copy_from_slice(&body[16..24]);
        value.copy_from_slice(&body[24..56]);
        if sha256(body)[..CHECK] != *check || (good == 0 && (body[0], &id) != (0, MAGIC)) {
            break;
        }
        good += RECORD as u64;
        if body[0] == 0 {
            same_boot = value == *boot;
            continue;
        }
        // Files that were finished are not worth remembering.
        if *there.entry(id).or_insert_with(|| staged(&id)) {
            files.entry(id).or_default().push((u64::from_le_bytes(number), value, !same_boot));
        }
    }
    Ok((files, good, same_boot))
}

/// What the machine calls the time since it was started.
pub(super) fn boot() -> Digest {
    sha256(&std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default())
}
