//! The kernel reads large complete files itself, from the cache's own file (Linux 6.9, and only
//! for root): no request for each read, and no second copy in memory.
//!
//! Invariant: all simultaneous opens of a file have the same mode (passed through or not), as the kernel
//! demands. So a file is passed through from the first open at which it is not open otherwise, and always
//! afterwards: its backing file is registered with the kernel once, never released, and outlives this
//! process. A process that continues the mount receives the registered files and the number of opens of each,
//! which are kept in a file in memory ([`Opens`]).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use fuser::{BackingId, Errno, FileHandle, FopenFlags, ReplyOpen};
use parking_lot::Mutex;
use rustix::fs::MemfdFlags;

/// Smaller files cost less in the kernel's own cache, bytes.
pub(crate) const LEAST: u64 = 128 << 10;
/// Files that are passed through: each keeps a file open in the kernel.
const MOST: usize = 4096;
/// By the kernel's cache, and never otherwise.
const SMALL: FileHandle = FileHandle(0);
const PASSED: FileHandle = FileHandle(1);
/// By the kernel's cache, for now.
const CACHED: FileHandle = FileHandle(2);

/// Called for each registered file: inode, the kernel's number for it.
pub type OnBacking = Box<dyn Fn(u64, u32) + Send + Sync>;

/// A mount as the process left it that has served it before; a new one has nothing of this.
pub struct Before {
    /// Files registered with the kernel: inode, the kernel's number for it.
    pub backings: Vec<(u64, u32)>,
}

/// The registration of a file with the kernel.
enum Backing {
    /// By another process before.
    Inherited(u32),
    Own(BackingId),
}

/// The number of opens of each file that may be passed through. A killed process never leaves too small a
/// number: it is raised before the answer to open, and lowered after the answer to release.
struct Opens {
    counts: HashMap<u64, u32>,
    /// The same, for the process that continues the mount: a number of 32 bits for each inode.
    file: File,
}

/// An empty file in memory, for the process that continues a mount.
///
/// # Errors
/// An error of the system.
pub fn opens() -> io::Result<OwnedFd> {
    Ok(rustix::fs::memfd_create(c"tidecast-opens", MemfdFlags::CLOEXEC)?)
}

impl Opens {
    fn read(file: File) -> io::Result<Opens> {
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or_default()];
        file.read_exact_at(&mut bytes, 0)?;
        let counts = (0..).zip(bytes.as_chunks().0).map(|(ino, count)| (ino, u32::from_ne_bytes(*count)));
        Ok(Opens { counts: counts.filter(|(_, count)| *count > 0).collect(), file })
    }

    fn of(&self, ino: u64) -> u32 {
        self.counts.get(&ino).copied().unwrap_or_default()
    }

    fn set(&mut self, ino: u64, count: u32) {
        let known = if count > 0 { self.counts.insert(ino, count) } else { self.counts.remove(&ino) };
        if known != Some(count)
            && let Err(error) = self.file.write_all_at(&count.to_ne_bytes(), ino * 4)
        {
            tracing::error!(%error, "cannot record the open files");
        }
    }
}

struct Table {
    backings: HashMap<u64, Backing>,
    opens: Opens,
    /// The number of passed-through opens of all files.
    passed: u64,
    /// Nothing more can be registered.
    closed: bool,
    /// The kernel knows that it need not send open requests.
    retired: bool,
}

/// See the head of the file.
pub(crate) struct Passthrough {
    table: Mutex<Table>,
    tell: OnBacking,
}

impl Passthrough {
    /// Of a mount whose open files are noted in `opens`.
    pub(crate) fn new(before: Option<Before>, opens: OwnedFd, tell: OnBacking) -> io::Result<Passthrough> {
        let opens = Opens::read(opens.into())?;
        let known = before.map(|before| before.backings).unwrap_or_default();
        let passed = known.iter().map(|(ino, _)| u64::from(opens.of(*ino))).sum();
        let backings = known.into_iter().map(|(ino, id)| (ino, Backing::Inherited(id))).collect();
        let table = Table { backings, opens, passed, closed: false, retired: false };
        Ok(Passthrough { table: Mutex::new(table), tell })
    }

    /// Whether the kernel may stop sending open requests, permanently: only while no passed-through file is
    /// open, since a file would then be open in two modes.
    pub(crate) fn retire(&self) -> bool {
        let mut table = self.table.lock();
        table.retired |= table.passed == 0;
        table.retired
    }

    /// Opens a file of the given size, which `whole` returns if all of it is here.
    pub(crate) fn open(
        &self,
        reply: ReplyOpen,
        ino: u64,
        len: u64,
        whole: impl FnOnce() -> Option<Arc<File>>,
    ) {
        if len < LEAST {
            return reply.opened(SMALL, FopenFlags::FOPEN_KEEP_CACHE);
        }
        let mut table = self.table.lock();
        if table.retired {
            return reply.error(Errno::ENOSYS);
        }
        let open = table.opens.of(ino);
        let room = !table.closed && table.backings.len() < MOST && open == 0;
        if !table.backings.contains_key(&ino)
            && room
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
                    tracing::debug!(%error, "the kernel does not support passthrough of this file");
                    table.closed = true;
                }
            }
        }
        table.opens.set(ino, open + 1);
        let Table { backings, passed, .. } = &mut *table;
        let Some(backing) = backings.get_mut(&ino) else {
            drop(table);
            return reply.opened(CACHED, FopenFlags::FOPEN_KEEP_CACHE);
        };
        if let Backing::Inherited(id) = *backing {
            *backing = Backing::Own(wrap(&reply, id));
        }
        if let Backing::Own(own) = backing {
            *passed += 1;
            // The kernel takes no word about its cache with this.
            reply.opened_passthrough(PASSED, FopenFlags::empty(), own);
        }
    }

    /// A file was closed, and the kernel has the answer to its release.
    pub(crate) fn closed(&self, ino: u64, handle: FileHandle) {
        if handle == SMALL {
            return;
        }
        let mut table = self.table.lock();
        if handle == PASSED {
            table.passed = table.passed.saturating_sub(1);
        }
        let left = table.opens.of(ino).saturating_sub(1);
        table.opens.set(ino, left);
    }
}

#[expect(
    unsafe_code,
    reason = "fuser has no other way to use a backing id of the kernel; see the head of lib.rs"
)]
fn wrap(reply: &ReplyOpen, id: u32) -> BackingId {
    // SAFETY: the number was registered over this mount's device, and is never released while the mount
    // exists.
    unsafe { reply.wrap_backing(id) }
}
