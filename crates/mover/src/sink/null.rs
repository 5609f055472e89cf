//! Nowhere: blocks are checked, and nothing is written.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::check;
use crate::block::Block;
use crate::error::Error;
use crate::job::{Sink, Walked, Want, Wanted, Written};
use crate::part::{Data, Part, Parts};

/// A receiver that keeps nothing.
#[derive(Debug, Default)]
pub struct Null {
    entries: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Sink for Null {
    fn fresh(&self) -> bool {
        true
    }

    fn write(&self, _: usize, block: &Block) -> Result<Option<Want>, Error> {
        let (mut parts, mut part, mut at) = (Parts::new(&block.table, block.len), Part::default(), 0);
        let mut want = None;
        while parts.next(&mut part)? {
            let data = &block.payload()[at..at + part.data.payload()];
            at += data.len();
            check(block, data, &part)?;
            match part.data {
                Data::Ask { .. } => {
                    let wanted = Wanted { file: part.file, ..Wanted::default() };
                    want.get_or_insert_with(Want::default).files.push(wanted);
                    continue;
                }
                Data::Bytes { offset: 0, .. } | Data::Hole { offset: 0, .. } => {
                    self.entries.fetch_add(1, Relaxed);
                    self.files.fetch_add(1, Relaxed);
                }
                Data::None | Data::Apart => drop(self.entries.fetch_add(1, Relaxed)),
                Data::Bytes { .. } | Data::Hole { .. } => {}
                Data::Same { .. } => return Err(Error::Damaged("part without data".into())),
            }
            self.bytes.fetch_add(data.len() as u64, Relaxed);
        }
        Ok(want)
    }

    fn finish(&self, _: &Walked) -> Result<Written, Error> {
        Ok(self.written())
    }

    fn written(&self) -> Written {
        Written {
            entries: self.entries.load(Relaxed),
            files: self.files.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            ..Written::default()
        }
    }
}
