//! Adaptive read-ahead: it grows while a reader reads sequentially, and random reads get none.

use std::ops::Range;

/// Bytes fetched ahead of a read at the start of a file, of the second sequential read elsewhere, and at
/// most.
const FIRST: u64 = 512 << 10;
const LEAST: u64 = 256 << 10;
const MOST: u64 = 32 << 20;
/// Sequential readers of one file that are tracked separately.
const STREAMS: usize = 4;

/// One place at which a file is read.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Where the next read of it begins.
    next: u64,
    /// How much was read on, without a jump.
    read: u64,
    /// How much is fetched beyond `next`: half of the bytes that were read, so that unused data stays a small
    /// part of all.
    window: u64,
    /// Up to where all was asked for.
    asked: u64,
}

/// How one file has been read so far.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    /// The one used last in front.
    streams: Vec<Stream>,
}

impl ReadAhead {
    /// The file is read here: what to fetch ahead of the next reads. `len` is the file's length in bytes.
    pub(crate) fn read(&mut self, read: Range<u64>, len: u64) -> Range<u64> {
        // The kernel's own threads reorder reads a little, and skip cached pages.
        let near = |s: &Stream| {
            read.start <= s.next.saturating_add(s.window.max(LEAST))
                && s.next <= read.end.saturating_add(s.window / 2)
        };
        let found = self.streams.iter().position(near);
        let Some(at) = found else {
            // The beginning is mostly followed by more, other places prove it first.
            let window = if read.start == 0 { FIRST } else { 0 };
            self.streams.truncate(STREAMS - 1);
            self.streams.insert(0, Stream { next: read.end, read: 0, window, asked: read.end });
            return self.ask(len);
        };
        self.streams[..=at].rotate_right(1);
        if let Some(stream) = self.streams.first_mut()
            && read.end > stream.next
        {
            stream.read += read.end - stream.next;
            stream.next = read.end;
            stream.window = stream.window.max((stream.read / 2).clamp(LEAST, MOST));
        }
        self.ask(len)
    }

    fn ask(&mut self, len: u64) -> Range<u64> {
        let Some(stream) = self.streams.first_mut() else { return 0..0 };
        let end = stream.next.saturating_add(stream.window).min(len);
        // Not in crumbs.
        if stream.asked >= end || (end < len && end - stream.asked < stream.window / 2) {
            return 0..0;
        }
        let start = stream.asked.max(stream.next);
        stream.asked = end;
        start..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 1 << 30;
    const READ: u64 = 128 << 10;

    #[test]
    fn reading_on_is_answered_by_more_and_more() {
        let (mut ahead, mut there, mut waits) = (ReadAhead::default(), 0, 0);
        for at in (0..LEN / 4).step_by(READ as usize) {
            if at >= there {
                waits += 1;
                there = at + READ;
            }
            let more = ahead.read(at..at + READ, LEN);
            if !more.is_empty() {
                assert!(more.start <= there && more.end - at <= MOST + READ, "{more:?} at {at}");
                there = there.max(more.end);
            }
        }
        assert_eq!(waits, 1, "everything but the first read was asked for ahead");
    }

    #[test]
    fn jumping_about_fetches_nothing() {
        let mut ahead = ReadAhead::default();
        let mut extra = 0;
        for i in 1..500u64 {
            let at = (i * 7919 * READ) % (LEN - READ);
            let more = ahead.read(at..at + READ, LEN);
            extra += more.end - more.start;
        }
        assert!(extra < 8 * FIRST, "{extra}");
    }

    #[test]
    fn two_readers_do_not_disturb_each_other() {
        let mut ahead = ReadAhead::default();
        let mut asked = 0;
        for i in 0..400u64 {
            for base in [0, LEN / 2] {
                let at = base + i * READ;
                let more = ahead.read(at..at + READ, LEN);
                asked += more.end - more.start;
            }
        }
        assert!(asked >= 2 * 399 * READ, "{asked}");
    }

    #[test]
    fn nothing_beyond_the_end() {
        let mut ahead = ReadAhead::default();
        assert_eq!(ahead.read(0..1000, 1000), 0..0);
        let mut ahead = ReadAhead::default();
        assert_eq!(ahead.read(0..1000, 5000), 1000..5000);
        assert_eq!(ahead.read(1000..5000, 5000), 0..0);
    }
}
