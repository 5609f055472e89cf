//! What a directory's file system writes and reads, measured with a file that has no name.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rand::Rng as _;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fdatasync, openat, unlinkat};
use rustix::io::{Errno, pread, pwrite};
use tidecast_text::Rate;

use crate::facts::Directory;
use crate::{Finding, Goal, model};

/// Bytes of a request, and what its memory is aligned to.
const REQUEST: usize = 1 << 20;
const ALIGNED: usize = 4096;
/// Writing and reading each end after this many bytes, or once this time has passed.
const MOST: u64 = 256 << 20;
const LONGEST: Duration = Duration::from_secs(1);
/// A measurement takes no more than one of so many parts of the free space.
const SHARE: u64 = 4;
const SOURCE: &str = "measured here";
/// Each request has other bytes, so that a file system that compresses or shares blocks gains nothing: they start at
/// another place of this many random bytes.
const NOISE: usize = 2 * REQUEST;

/// Bits per second of a file system.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Speed {
    write: f64,
    /// `None` where the page cache cannot be avoided.
    read: Option<f64>,
}

/// Measures the file systems of `directories` and writes the result into the finding `disk-speed` of each. Takes at
/// most about 2 seconds and 256 MiB for each; the file has no name, so nothing is left after a crash.
pub(super) fn measure(findings: &mut Vec<Finding>, directories: &[Directory], goal: &Goal) {
    for directory in directories.iter().filter(|directory| directory.exists) {
        let name = directory.path.display().to_string();
        // With the name of its disk behind it.
        let object = format!("{name} (");
        let is_its = |of: &&mut Finding| {
            of.check == "disk-speed" && (of.object == name || of.object.starts_with(&object))
        };
        let free = directory.bytes.map_or(u64::MAX, |(_, free)| free);
        match speed(&directory.path, free / SHARE) {
            Ok(speed) => {
                let measured = judged(&name, speed, goal);
                match findings.iter_mut().find(is_its) {
                    Some(predicted) => *predicted = Finding { object: predicted.object.clone(), ..measured },
                    None => findings.push(measured),
                }
            }
            Err(e) => match findings.iter_mut().find(is_its) {
                Some(predicted) => predicted.not_measured(e),
                None => {
                    let mut unseen =
                        Finding::new("disk-speed", &name, "", Rate(goal.link).to_string(), SOURCE);
                    unseen.not_measured(e);
                    findings.push(unseen.unknown());
                }
            },
        }
    }
    findings.sort_by(Finding::costliest_first);
}

fn judged(name: &str, speed: Speed, goal: &Goal) -> Finding {
    let read = match speed.read {
        Some(read) => format!("writes {}, reads {}", Rate(speed.write as u64), Rate(read as u64)),
        None => format!("writes {}", Rate(speed.write as u64)),
    };
    let slowest = speed.read.unwrap_or(f64::INFINITY).min(speed.write);
    let model = format!("measured: {} of {}", Rate(slowest as u64), Rate(goal.link));
    Finding::new("disk-speed", name, read, Rate(goal.link).to_string(), SOURCE)
        .because("files arrive and leave no faster than their disk writes and reads")
        .costs(model::share_lost(slowest, goal.link as f64), model)
}

/// Writes and reads at most `room` bytes.
fn speed(directory: &Path, room: u64) -> io::Result<Speed> {
    if room < REQUEST as u64 {
        return Err(io::Error::other("the file system is nearly full"));
    }
    let mut noise = vec![0; NOISE + ALIGNED];
    rand::rng().fill_bytes(&mut noise);
    let (file, direct) = match unnamed(directory, OFlags::DIRECT) {
        Ok(file) => (file, true),
        Err(Errno::INVAL) => (unnamed(directory, OFlags::empty())?, false),
        Err(e) => return Err(e.into()),
    };
    let aligned = noise.as_ptr().align_offset(ALIGNED);
    let (write, written) = rate(
        MOST.min(room),
        |at| {
            let from = aligned + (at as usize / REQUEST * ALIGNED) % (NOISE - REQUEST);
            Ok(pwrite(&file, &noise[from..from + REQUEST], at)?)
        },
        || Ok(fdatasync(&file)?),
    )?;
    if !direct {
        return Ok(Speed { write, read: None });
    }
    let buffer = &mut noise[aligned..aligned + REQUEST];
    let (read, _) = rate(written, |at| Ok(pread(&file, &mut *buffer, at)?), || Ok(()))?;
    Ok(Speed { write, read: Some(read) })
}

/// Bits per second of requests from the start of a file on, and the bytes they moved; `end` is within the time.
fn rate(
    most: u64,
    mut request: impl FnMut(u64) -> io::Result<usize>,
    end: impl FnOnce() -> io::Result<()>,
) -> io::Result<(f64, u64)> {
    let began = Instant::now();
    let mut bytes = 0;
    while bytes < most && (bytes == 0 || began.elapsed() < LONGEST) {
        match request(bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            moved if moved == REQUEST => bytes += moved as u64,
            // The next request would not be aligned.
            moved => {
                bytes += moved as u64;
                break;
            }
        }
    }
    end()?;
    Ok((bytes as f64 * 8.0 / began.elapsed().as_secs_f64().max(1e-6), bytes))
}

/// A file of `directory` that has no name, or loses it at once where the file system knows no such files.
fn unnamed(directory: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let (flags, mode) = (flags | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    match openat(CWD, directory, flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOSYS) => {}
        other => return other,
    }
    let above = openat(CWD, directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let name = format!(".tidecast-doctor-{:016x}", rand::rng().next_u64());
    let file = openat(&above, &name, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
    unlinkat(&above, &name, AtFlags::empty())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_directory_has_its_speed_and_no_file_left() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory { path: dir.path().to_owned(), exists: true, ..Directory::default() };
        let goal = Goal { purposes: Vec::new(), link: 1_000_000_000_000_000, rtt: None };
        let mut findings = Vec::new();
        measure(&mut findings, &[directory], &goal);
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(finding.object, dir.path().display().to_string());
        assert!(finding.read.starts_with("writes ") && finding.cost.unwrap() > 0.9, "{finding:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_refuses_files_says_why() {
        let mut findings = vec![Finding::new("disk-speed", "/proc (x)", "", "", "")];
        let directory = Directory { path: "/proc".into(), exists: true, ..Directory::default() };
        measure(&mut findings, &[directory], &Goal { purposes: Vec::new(), link: 1, rtt: None });
        assert!(findings[0].model.starts_with("not measured: "), "{findings:?}");
    }

    #[test]
    fn each_directory_has_its_own_finding_and_a_full_one_is_not_filled() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str, free| {
            let path = top.path().join(name);
            std::fs::create_dir(&path).unwrap();
            Directory { path, exists: true, bytes: Some((1 << 30, free)), ..Directory::default() }
        };
        let (long, full) = (at("ab", 1 << 30), at("a", 3 << 20));
        let goal = Goal { purposes: Vec::new(), link: 1_000_000_000_000_000, rtt: None };
        let mut findings = Vec::new();
        measure(&mut findings, &[long, full], &goal);
        let of = |name: &str| {
            let object = top.path().join(name).display().to_string();
            findings.iter().find(|of| of.object == object).unwrap()
        };
        assert!(of("ab").read.starts_with("writes "), "{findings:?}");
        assert_eq!(of("a").verdict, crate::Verdict::Unknown);
        assert!(of("a").model.contains("nearly full"), "{findings:?}");
    }
}
