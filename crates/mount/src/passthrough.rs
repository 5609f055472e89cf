//! Large files that are here as a whole are read by the kernel itself, out of the cache's own file (Linux 6.9, and only
//! for root): no request for each read, and no second copy in memory.
//!
//! What holds: all who have a file open at one time have it open the same way, as the kernel demands. So a file is
//! passed through from an open at which nobody has it open otherwise, and from then on for good: what backs it is
//! registered with the kernel once and never given back, and outlives this process. Whoever goes on with the mount
//! is told what is registered, but not who has which file open otherwise; so it registers nothing new.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use fuser::{BackingId, Errno, FileHandle, FopenFlags, ReplyOpen};
use parking_lot::Mutex;

/// Smaller files cost less in the kernel's own cache, bytes.
const LEAST: u64 = 128 << 10;
/// Files that are passed through: each keeps a file open in the kernel.
const MOST: usize = 4096;
const CACHED: FileHandle = FileHandle(0);
const PASSED: FileHandle = FileHandle(1);

/// Hears what was registered: inode, the kernel's number of it.
pub type OnBacking = Box<dyn Fn(u64, u32) + Send + Sync>;

/// What was registered with the kernel for a file.
enum Backing {
    /// By another process before.
    Inherited(u32),
    Own(BackingId),
}

#[derive(Default)]
struct Table {
    backings: HashMap<u64, Backing>,
    /// How many have a file open by way of the kernel's cache.
    cached: HashMap<u64, u32>,
    /// How many have any file open by way of what backs it; unknown if somebody else has served this mount before.
    passed: Option<u64>,
    /// Nothing more can be registered.
    closed: bool,
    /// The kernel has been told that nothing need be opened.
    retired: bool,
}

/// See the head of the file.
pub(crate) struct Passthrough {
    table: Mutex<Table>,
    tell: OnBacking,
}

impl Passthrough {
    /// Of a new mount, or of one that was served before with `known` registered.
    pub(crate) fn new(known: Option<Vec<(u64, u32)>>, tell: OnBacking) -> Passthrough {
        let closed = known.is_some();
        let backings = known.into_iter().flatten().map(|(ino, id)| (ino, Backing::Inherited(id))).collect();
        let passed = (!closed).then_some(0);
        Passthrough { table: Mutex::new(Table { backings, passed, closed, ..Table::default() }), tell }
    }

    /// Whether the kernel may be told that nothing need be opened any more, for good: only while nobody has a file open
    /// that is passed through, for then a file is open in two ways.
    pub(crate) fn retire(&self) -> bool {
        let mut table = self.table.lock();
        table.retired |= table.passed == Some(0);
        table.retired
    }

    /// Opens a file of so many bytes that `whole` gives, if all of it is here.
    pub(crate) fn open(
        &self,
        reply: ReplyOpen,
        ino: u64,
        len: u64,
        whole: impl FnOnce() -> Option<Arc<File>>,
    ) {
        let mut table = self.table.lock();
        if table.retired {
            return reply.error(Errno::ENOSYS);
        }
        let room = !table.closed && table.backings.len() < MOST && !table.cached.contains_key(&ino);
        if !table.backings.contains_key(&ino)
            && room
            && len >= LEAST
            && let Some(file) = whole()
        {
            match reply.open_backing(&*file) {
                Ok(backing) => {
                    // The number can be had only by giving the wrapper away; it is wrapped again below.
                    let id = backing.into_raw();
                    (self.tell)(ino, id);
                    table.backings.insert(ino, Backing::Inherited(id));
                }
                Err(error) => {
                    tracing::debug!(%error, "the kernel lets nothing be passed through");
                    table.closed = true;
                }
            }
        }
        let Table { backings, passed, .. } = &mut *table;
        let Some(backing) = backings.get_mut(&ino) else {
            *table.cached.entry(ino).or_default() += 1;
            drop(table);
            return reply.opened(CACHED, FopenFlags::FOPEN_KEEP_CACHE);
        };
        if let Backing::Inherited(id) = *backing {
            *backing = Backing::Own(wrap(&reply, id));
        }
        if let Backing::Own(own) = backing {
            // Counted before the kernel hears of it.
            *passed = passed.map(|count| count + 1);
            // The kernel takes no word about its cache with this.
            reply.opened_passthrough(PASSED, FopenFlags::empty(), own);
        }
    }

    /// Somebody has closed a file.
    pub(crate) fn release(&self, ino: u64, handle: FileHandle) {
        let mut table = self.table.lock();
        if handle == PASSED {
            table.passed = table.passed.map(|count| count.saturating_sub(1));
        } else if let Some(count) = table.cached.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                table.cached.remove(&ino);
            }
        }
    }
}

#[expect(
    unsafe_code,
    reason = "fuser lets a number of the kernel's be used no other way; the head of lib.rs says why"
)]
fn wrap(reply: &ReplyOpen, id: u32) -> BackingId {
    // SAFETY: the number was registered over this mount's device, and is never given back while the mount lives.
    unsafe { reply.wrap_backing(id) }
}
