//! How much room there is: arithmetic only.

use crate::{Config, Size};

/// Space and its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Caches that are there.
    pub kept: Size,
    /// Staged, or reserved for transfers: the larger of both for each.
    pub promised: Size,
    /// All that the store may occupy.
    pub capacity: Size,
    /// The most that the store could hold, if no other files were on its file system.
    pub total: Size,
    /// More than this is not let in.
    pub high: Size,
    /// Eviction continues down to this.
    pub low: Size,
}

impl Usage {
    /// `staged`: staged files, which the file system counts already. `free`, `all`: the file system's free and
    /// total space for this user.
    pub(crate) fn new(
        config: &Config,
        kept: Size,
        staged: Size,
        promised: Size,
        (free, all): (Size, Size),
    ) -> Self {
        let reserve = Size {
            bytes: config.reserve_bytes.min(all.bytes / 20),
            inodes: config.reserve_inodes.min(all.inodes / 20),
        };
        let excess = config.excess.map_or(0, |excess| excess.capacity);
        let at_most = |there: Size| Size {
            bytes: there.bytes.min(config.max_bytes.map_or(u64::MAX, |max| max.max(excess))),
            inodes: there.inodes.min(config.max_inodes.unwrap_or(u64::MAX)),
        };
        let there = kept.plus(staged).plus(free).minus(reserve);
        let (capacity, total) = (at_most(there), at_most(all.minus(reserve)));
        let high = share(capacity, config.high);
        let low = share(capacity, config.low.min(config.high));
        Usage { kept, promised, capacity, total, high, low }
    }

    /// How far `more` would exceed the high watermark.
    pub(crate) fn shortage(&self, more: Size) -> Size {
        self.kept.plus(self.promised).plus(more).minus(self.high)
    }

    /// How much has to go, once eviction begins.
    pub(crate) fn surplus(&self) -> Size {
        if self.shortage(Size::ZERO) == Size::ZERO {
            return Size::ZERO;
        }
        self.kept.plus(self.promised).minus(self.low)
    }
}

fn share(size: Size, percent: u8) -> Size {
    let of = |n: u64| (u128::from(n) * u128::from(percent.min(100)) / 100) as u64;
    Size { bytes: of(size.bytes), inodes: of(size.inodes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: u64, inodes: u64) -> Size {
        Size { bytes, inodes }
    }

    #[test]
    fn the_smaller_of_cap_and_file_system_counts() {
        let config = Config {
            max_bytes: Some(1000),
            reserve_bytes: 100,
            reserve_inodes: 0,
            high: 90,
            low: 50,
            ..Config::default()
        };
        let free = |bytes| (size(bytes, 100), size(20_000, 100));
        let usage = Usage::new(&config, size(300, 10), Size::ZERO, size(100, 0), free(10_000));
        assert_eq!((usage.capacity, usage.high), (size(1000, 110), size(900, 99)));
        assert_eq!(usage.shortage(size(500, 0)), Size::ZERO);
        assert_eq!(usage.shortage(size(501, 90)), size(1, 1));
        // Other programs have filled the disk: the space shrinks below the kept size.
        let usage = Usage::new(&config, size(300, 10), Size::ZERO, Size::ZERO, free(50));
        assert_eq!(usage.capacity.bytes, 250);
        assert_eq!(usage.surplus().bytes, 175);
    }

    #[test]
    fn what_is_staged_is_not_counted_twice() {
        let config = Config { reserve_bytes: 0, reserve_inodes: 0, high: 100, low: 100, ..Config::default() };
        // 1000 in all; 400 promised, of which 300 have arrived.
        let usage =
            Usage::new(&config, size(200, 0), size(300, 0), size(400, 0), (size(500, 0), size(1000, 0)));
        assert_eq!(usage.capacity.bytes, 1000);
        assert_eq!(usage.shortage(size(400, 0)), Size::ZERO);
        assert_eq!(usage.shortage(size(401, 0)).bytes, 1);
    }
}
