//! Properties of a process from the kernel.

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

/// Bytes of a command line that are read.
const COMMAND_LINE: u64 = 64 << 10;
/// `PF_FORKNOEXEC`: it was forked and has not executed a program since.
const FORKED: u64 = 0x40;

/// A line of `/proc/PID/stat`, in part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Its number.
    pub pid: u32,
    /// Its name, at most 15 bytes of the program's; the process may choose another.
    pub name: String,
    /// Its parent's number; 0 if that is in another container.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// Its session.
    pub session: u32,
    /// Its controlling terminal; 0: none.
    pub terminal: i32,
    /// The process group in the foreground of that terminal.
    pub foreground: i32,
    /// It still is the program that its parent was when it forked.
    pub forked: bool,
    /// When it started, in ticks since the machine did: numbers are given again.
    pub start: u64,
}

impl Stat {
    /// A process that runs now; none if it has ended, though its parent has not collected it yet.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let mut line = Vec::new();
        File::open(format!("/proc/{pid}/stat")).ok()?.read_to_end(&mut line).ok()?;
        Self::parse(pid, &String::from_utf8_lossy(&line))
    }

    fn parse(pid: u32, line: &str) -> Option<Self> {
        // The name may hold anything, brackets too; behind the last one the fields are numbered from 3.
        let (head, rest) = line.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        if matches!(field(3)?, "Z" | "X") {
            return None;
        }
        Some(Self {
            pid,
            name,
            parent: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            terminal: field(7)?.parse().ok()?,
            foreground: field(8)?.parse().ok()?,
            forked: field(9)?.parse::<u64>().ok()? & FORKED != 0,
            start: field(22)?.parse().ok()?,
        })
    }
}

/// The words of a process's command line, as far as it shows them.
#[must_use]
pub fn command_line(pid: u32) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(format!("/proc/{pid}/cmdline"))
        .and_then(|file| file.take(COMMAND_LINE).read_to_end(&mut bytes));
    if read.is_err() || bytes.is_empty() {
        return Vec::new();
    }
    if bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

/// Which run of the machine this is.
pub(crate) fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let mut id = String::new();
        let read = File::open("/proc/sys/kernel/random/boot_id").and_then(|mut f| f.read_to_string(&mut id));
        read.map(|_| id.trim().to_owned()).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_hides_nothing() {
        let line = "7 (a) S 1 (b) R 4 5 6 34816 8 4194368 0 0 0 0 0 0 0 0 20 0 1 0 99 0";
        let stat = Stat::parse(7, line).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.group), ("a) S 1 (b", 4, 5));
        assert_eq!((stat.session, stat.terminal, stat.foreground), (6, 34816, 8));
        assert_eq!((stat.forked, stat.start), (true, 99));
        for bad in ["", "7", "7 (a)", "7 (a) Z 4 5 6 0 8 0 0 0 0 0 0 0 0 0 20 0 1 0 99 0", "7 (a) R x"] {
            assert_eq!(Stat::parse(7, bad), None, "{bad}");
        }
    }

    #[test]
    fn the_kernel_says_who_this_is() {
        let me = Stat::of(std::process::id()).unwrap();
        assert_eq!(me.parent, rustix::process::getppid().unwrap().as_raw_nonzero().get() as u32);
        assert!(!command_line(me.pid).is_empty() && command_line(u32::MAX).is_empty());
        assert!(!boot().is_empty());
    }
}
