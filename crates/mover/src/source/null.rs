//! Generated data: measures the cost of a copy without a disk to read from.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use tidecast_hash::Digest;

use crate::block::Block;
use crate::digest::{self, Layer};
use crate::entry::{Attributes, Entry, Kind, Time};
use crate::error::Error;
use crate::job::{Source, Walked, Want};
use crate::part::{BLOCK, Data, TableWriter};

use super::ENTRIES;

/// This many bytes, in files of this many bytes. Each block holds the same random data: generating it again
/// would cost more than sending it.
#[derive(Debug)]
pub struct Null {
    bytes: u64,
    file: u64,
    noise: Vec<u8>,
    /// Of a full block, of the last block of a file, and of a file.
    digests: [Digest; 2],
    root: Option<Digest>,
    emitted: AtomicU64,
}

/// Files from a number on, or a block of one.
#[derive(Debug)]
pub struct Job {
    first: u64,
    count: u64,
    offset: u64,
}

impl Null {
    /// `bytes` in files of `file` bytes (0: all in one).
    #[must_use]
    pub fn new(bytes: u64, file: u64) -> Self {
        let file = if file == 0 { bytes } else { file.min(bytes.max(1)) };
        let mut noise = vec![0; BLOCK];
        SmallRng::seed_from_u64(1).fill_bytes(&mut noise);
        let tail = (file % BLOCK as u64) as usize;
        let last = if tail == 0 && file > 0 { BLOCK } else { tail };
        let digests = [digest::part(&noise), digest::part(&noise[..last])];
        let mut layer = Layer::new(file);
        let parts = file.div_ceil(BLOCK as u64);
        (0..parts).for_each(|n| layer.set(n, digests[usize::from(n + 1 == parts)]));
        let root = (file > BLOCK as u64).then(|| layer.root()).flatten();
        Self { bytes, file, noise, digests, root, emitted: AtomicU64::new(0) }
    }

    fn files(&self) -> u64 {
        self.bytes.div_ceil(self.file.max(1))
    }
}

impl Source for Null {
    type Job = Job;

    fn walk(&self, _: bool, emit: &mut dyn FnMut(Job) -> bool) -> Result<(), Error> {
        let each = (BLOCK as u64 / self.file.max(1)).clamp(1, ENTRIES as u64);
        let mut first = 0;
        while first < self.files() {
            let count = each.min(self.files() - first);
            for offset in (0..self.file.max(1)).step_by(BLOCK) {
                if !emit(Job { first, count, offset }) {
                    return Ok(());
                }
            }
            first += count;
            self.emitted.store(first, Relaxed);
        }
        Ok(())
    }

    fn asks(&self, _: &Job) -> bool {
        false
    }

    fn fill(&self, job: &Job, block: &mut Block) -> Result<Option<Job>, Error> {
        let len = (self.file - job.offset).min(BLOCK as u64) as usize;
        let is_last = job.offset + len as u64 == self.file;
        let mut table = TableWriter::new(std::mem::take(&mut block.table));
        for file in job.first..job.first + job.count {
            let mtime = Time { seconds: 1_000_000_000, nanos: 0 };
            let attributes = Attributes { mode: 0o644, mtime, ..Attributes::default() };
            let kind = Kind::File { len: self.file, sparse: false };
            let entry =
                Entry { path: format!("null/{:04}/{file:08}", file / 1000).into_bytes(), attributes, kind };
            let digest = self.digests[usize::from(is_last)];
            let root = self.root.filter(|_| is_last);
            table.push(file, &entry, &Data::Bytes { offset: job.offset, len: len as u32, digest, root });
            let from = block.len;
            block.room()[from..from + len].copy_from_slice(&self.noise[..len]);
            block.len += len;
        }
        block.table = table.finish();
        Ok(None)
    }

    fn wanted(&self, _: &Job, _: &Want) -> Vec<Job> {
        Vec::new()
    }

    fn walked(&self) -> Walked {
        let files = self.emitted.load(Relaxed);
        Walked { entries: files, files, bytes: files * self.file, complete: true, ..Walked::default() }
    }
}
