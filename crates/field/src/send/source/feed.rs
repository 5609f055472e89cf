//! Steps from another process: the Python package, which reads NetCDF, HDF5, Zarr and VTK's images or runs a
//! user's generator, or a simulation that sends from within (`tidecast.field.Sender`). They come through a
//! file in memory that both have open, in slots of one volume each; lines of JSON say which process may use a
//! slot. docs/field-format.md specifies the dialogue.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use serde_json::{Value, json};

use super::content::{self, Content};
use super::{LOOK, Notes, Source, SourceError, Step, Wait, check};
use crate::geometry::Shape;

/// Volumes in the file: one that is sent, one that is read, one that is filled.
const SLOTS: usize = 3;
/// The longest line that is read.
const LINE: u64 = 64 << 10;
/// How long a process may take until it reports its shape: opening a large file over a network is slow.
const START: Duration = Duration::from_secs(60);
/// How long one that should end may take.
const END: Duration = Duration::from_secs(2);

/// What `python3 -m tidecast.field` runs, but never a module of the working directory, which may be one that all users write
/// to. Python has a flag for that (`-P`) from 3.11 on only.
const RUN: &str = "import sys; sys.path[:] = [p for p in sys.path if p]; import runpy; runpy.run_module('tidecast.field', run_name='__main__', alter_sys=True)";

/// PYTHONPATH without its empty parts, if it has some: to Python each is the working directory.
fn places_of_modules() -> Option<(&'static str, OsString)> {
    let told = std::env::var_os("PYTHONPATH").filter(|path| !path.is_empty())?;
    let named = std::env::split_paths(&told).filter(|path| !path.as_os_str().is_empty());
    std::env::join_paths(named).ok().map(|named| ("PYTHONPATH", named))
}

/// Whether only the Python package can read it: `FILE[:variable]` of NetCDF, HDF5, Zarr or VTK by its
/// contents, or `script.py:function`.
pub(super) fn is_fed(name: &str) -> bool {
    let file = file_of(name);
    if content::of(file) == Content::Science {
        return true;
    }
    let ends = |part: &str, with: &[&str]| with.iter().any(|end| part.trim_end_matches('/').ends_with(end));
    // If a file does not match its suffix, the package reports it; likewise without a variable's name, when
    // it lists the variables.
    let kinds = [".nc", ".nc4", ".h5", ".hdf5", ".he5", ".zarr", ".py", ".vti", ".pvti"];
    let ends_so = |file: &Path| file.to_str().is_some_and(|file| ends(file, &kinds));
    ends_so(file) && (file.exists() || file != Path::new(name))
}

/// The file of `FILE:variable`: both have colons too, and the longest that is there counts.
fn file_of(name: &str) -> &Path {
    let before = |(at, _)| Path::new(&name[..at]);
    let mut files = std::iter::once(Path::new(name)).chain(name.rmatch_indices(':').map(before));
    let last = name.rmatch_indices(':').next().map_or(Path::new(name), before);
    files.find(|file| file.exists()).unwrap_or(last)
}

/// Starts the Python package on a source, or on the files of a series.
pub(super) fn start(names: &[String], axes: Option<&str>) -> Result<Box<dyn Source>, SourceError> {
    let name = names.first().map_or("", String::as_str);
    let python = std::env::var_os("TIDECAST_PYTHON").unwrap_or_else(|| "python3".into());
    let fail = |what: String| SourceError::Feed { name: name.into(), what };
    // In memory and without a name, so that nothing is left behind however both processes end.
    let memory = rustix::fs::memfd_create("tidecast-feed", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(|error| fail(format!("cannot create shared memory: {error}")))?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    let mut child = Command::new(&python)
        .envs(places_of_modules())
        .args(["-c", RUN, "feed", "--memory", &path, "--slots", &SLOTS.to_string()])
        .args(axes.map(|axes| format!("--axes={axes}")))
        .arg("--")
        .args(names)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| fail(format!("cannot start {}: {error}; set TIDECAST_PYTHON", python.display())))?;
    let (say, hear) = (child.stdin.take(), child.stdout.take());
    let child = Ending(Some(child));
    let (Some(say), Some(hear)) = (say, hear) else { return Err(fail("missing pipes".into())) };
    Ok(Box::new(Feed::handshake(name.into(), memory.into(), Box::new(say), Box::new(hear), Some(child))?))
}

/// Joins a process that has started this one: `MEMORY,IN,OUT`, a file and two pipes.
pub(super) fn join(ends: &str) -> Result<Box<dyn Source>, SourceError> {
    let parts: Vec<&str> = ends.split(',').collect();
    let [memory, hear, say] = parts[..] else {
        return Err(SourceError::wrong(ends, "invalid feed; expected MEMORY,IN,OUT (a file and two pipes)"));
    };
    let open = |path: &str, write: bool| {
        OpenOptions::new().read(!write).write(write).open(path).map_err(SourceError::io(Path::new(path)))
    };
    let memory = open(memory, false)?;
    let (hear, say) = (open(hear, false)?, open(say, true)?);
    let mut feed = Feed::handshake("feed".into(), memory, Box::new(say), Box::new(hear), None)?;
    feed.live = true;
    Ok(Box::new(feed))
}

/// A process that ends when its input does, or is ended.
struct Ending(Option<Child>);

impl Ending {
    /// How the process has ended, for people.
    fn fate(&mut self) -> String {
        let until = Instant::now() + END;
        while let Some(child) = &mut self.0
            && Instant::now() < until
        {
            match child.try_wait() {
                Ok(Some(status)) => {
                    return match (status.signal(), status.code()) {
                        (Some(signal), _) => format!("was killed by signal {signal}"),
                        (None, code) => format!("has ended with exit code {}", code.unwrap_or_default()),
                    };
                }
                Ok(None) => std::thread::sleep(LOOK / 5),
                Err(_) => break,
            }
        }
        "has closed its output".to_owned()
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        let until = Instant::now() + END;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            std::thread::sleep(LOOK / 5);
        }
    }
}

struct Feed {
    name: String,
    shape: Shape,
    steps: Option<u64>,
    live: bool,
    memory: Arc<File>,
    say: Box<dyn Write + Send>,
    lines: Receiver<Result<String, String>>,
    /// Slots that may be filled.
    free: (Sender<usize>, Receiver<usize>),
    /// Steps asked for, in order, with their slots.
    asked: VecDeque<(u64, usize)>,
    notes: Notes,
    /// Ended after `say` is closed, which tells it to end.
    child: Option<Ending>,
}

impl Feed {
    /// Reads the description of the source.
    fn handshake(
        name: String,
        memory: File,
        say: Box<dyn Write + Send>,
        hear: Box<dyn Read + Send>,
        child: Option<Ending>,
    ) -> Result<Self, SourceError> {
        let lines = listen(hear);
        let fail = |what: String| SourceError::Feed { name: name.clone(), what };
        let line = match lines.recv_timeout(START) {
            Ok(line) => line.map_err(&fail)?,
            Err(RecvTimeoutError::Timeout) => {
                return Err(fail(format!("the reader sent nothing within {START:?}")));
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(fail("python3 -m tidecast.field has failed, see above (PYTHONPATH must lead to Tidecast's package, or TIDECAST_PYTHON to a Python that has it)".into()));
            }
        };
        let hello = parse_line(&line).map_err(&fail)?;
        let sides: Vec<u64> =
            hello["shape"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
        let [z, y, x] = sides[..] else { return Err(fail(format!("the reader sent no shape: {line}"))) };
        let shape = check(&name, [x, y, z])?;
        let size = memory.metadata().map_err(|e| fail(e.to_string()))?.len();
        if size < shape.values() * 4 * SLOTS as u64 {
            return Err(fail(format!(
                "the shared memory has {size} bytes, too few for {SLOTS} volumes of {shape}"
            )));
        }
        let free = bounded(SLOTS);
        // There is room for all.
        for slot in 0..SLOTS {
            let _ = free.0.send(slot);
        }
        let called = hello["name"].as_str().unwrap_or(&name).to_owned();
        let (steps, memory) = (hello["steps"].as_u64(), Arc::new(memory));
        let (asked, notes) = (VecDeque::new(), Notes::default());
        Ok(Self { name: called, shape, steps, live: false, memory, say, lines, free, asked, notes, child })
    }

    fn fail(&self, what: impl Into<String>) -> SourceError {
        SourceError::Feed { name: self.name.clone(), what: what.into() }
    }

    /// Requests this step, if that is not done, and the following ones, into all free slots.
    fn ask(&mut self, step: u64) {
        while let Ok(slot) = self.free.1.try_recv() {
            let ahead = self.asked.iter().any(|(asked, _)| *asked == step);
            let next = self.asked.back().filter(|_| ahead).map_or(step, |(last, _)| last + 1);
            let line = format!("{}\n", json!({ "fill": slot, "step": next }));
            // If the write fails, earlier answers are still read; then the pipe is found closed.
            let _ = self.say.write_all(line.as_bytes()).and_then(|()| self.say.flush());
            self.asked.push_back((next, slot));
        }
    }
}

impl Source for Feed {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn steps(&self) -> Option<u64> {
        self.steps
    }

    fn is_live(&self) -> bool {
        self.live
    }

    fn notes(&self) -> Notes {
        self.notes.clone()
    }

    fn open(&mut self, step: u64, wait: &Wait<'_>) -> Result<Option<Arc<dyn Step>>, SourceError> {
        loop {
            self.ask(step);
            let line = match self.lines.recv_timeout(LOOK) {
                Ok(line) => line.map_err(|what| self.fail(what))?,
                Err(RecvTimeoutError::Timeout) if wait() => continue,
                Err(RecvTimeoutError::Timeout) => return Err(SourceError::Stopped),
                // A simulation marks its end by closing; a reader that closes has failed.
                Err(RecvTimeoutError::Disconnected) if self.live => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    let fate = self.child.as_mut().map_or_else(String::new, Ending::fate);
                    return Err(self.fail(format!("the Python process that reads it {fate}")));
                }
            };
            let said = parse_line(&line).map_err(|what| self.fail(what))?;
            if let Some(text) = said["warning"].as_str() {
                self.notes.add(format!("{}: {text}", self.name));
                continue;
            }
            let Some((asked, slot)) = self.asked.pop_front() else {
                return Err(self.fail(format!("the reader sent an unexpected answer: {line}")));
            };
            // Free again when this is dropped: here, or with the step.
            let lease = Lease { slot, free: self.free.0.clone() };
            let number = if self.live { said["step"].as_u64().unwrap_or(asked) } else { asked };
            // Requests from before the steps began again are skipped.
            if asked != step && !self.live || number < step {
                continue;
            }
            if said["end"].as_bool() == Some(true) {
                return Ok(None);
            }
            if said["filled"].as_u64() != Some(slot as u64) {
                return Err(
                    self.fail(format!("the reader was asked to fill slot {slot} and answered {line}"))
                );
            }
            let (memory, shape, name) = (Arc::clone(&self.memory), self.shape, self.name.clone());
            return Ok(Some(Arc::new(Filled { number, memory, shape, name, lease })));
        }
    }
}

/// A slot that is in use.
struct Lease {
    slot: usize,
    free: Sender<usize>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // There is room for every slot.
        let _ = self.free.try_send(self.slot);
    }
}

/// A step in a slot.
struct Filled {
    number: u64,
    memory: Arc<File>,
    shape: Shape,
    name: String,
    lease: Lease,
}

impl Step for Filled {
    fn number(&self) -> u64 {
        self.number
    }

    fn read(&self, planes: Range<usize>, into: &mut [u8]) -> Result<(), SourceError> {
        let at =
            self.shape.values() * 4 * self.lease.slot as u64 + self.shape.plane() * 4 * planes.start as u64;
        self.memory.read_exact_at(into, at).map_err(SourceError::io(Path::new(&self.name)))
    }
}

/// Reads lines; the thread ends with the pipe, or when the lines are no longer taken.
fn listen(hear: Box<dyn Read + Send>) -> Receiver<Result<String, String>> {
    let (send, lines) = bounded(SLOTS);
    std::thread::spawn(move || {
        let mut hear = BufReader::new(hear);
        loop {
            let mut line = String::new();
            let said = match hear.by_ref().take(LINE).read_line(&mut line) {
                Ok(0) => return,
                Ok(_) if line.ends_with('\n') => Ok(line),
                Ok(_) => Err("the reader sent a line that is incomplete or too long".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            let over = said.is_err();
            if send.send(said).is_err() || over {
                return;
            }
        }
    });
    lines
}

/// Parses a line; a reported error is returned as one.
fn parse_line(line: &str) -> Result<Value, String> {
    let said: Value = serde_json::from_str(line)
        .map_err(|_| format!("the reader sent invalid JSON: {:?}", line.trim_end()))?;
    match said["error"].as_str() {
        Some(error) => Err(error.to_owned()),
        None => Ok(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_reads() {
        for fed in ["a.nc:t", "dir/a.h5:/g/v", "a.zarr:x", "sim.py:steps", "a.hdf5:v"] {
            assert!(is_fed(fed), "{fed}");
        }
        let file = tempfile::Builder::new().suffix(".nc").tempfile().unwrap();
        assert!(is_fed(&file.path().display().to_string()));
        for other in ["a.nc", "a.raw", "a.npy", "demo:gray-scott", "none.zarr", "a:b"] {
            assert!(!is_fed(other), "{other}");
        }
    }

    /// A process at the other end: answers requests by `answer`.
    fn feed(
        steps: Option<u64>,
        answer: impl Fn(u64, u64) -> String + Send + 'static,
    ) -> Result<Feed, SourceError> {
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(2 * 3 * 4 * 4 * SLOTS as u64).unwrap();
        let (requests, say) = std::io::pipe().unwrap();
        let (hear, mut answers) = std::io::pipe().unwrap();
        let slots = memory.try_clone().unwrap();
        std::thread::spawn(move || {
            writeln!(answers, "{}", json!({ "shape": [4, 3, 2], "steps": steps, "name": "test" })).unwrap();
            for line in BufReader::new(requests).lines() {
                let asked: Value = serde_json::from_str(&line.unwrap()).unwrap();
                let (slot, step) = (asked["fill"].as_u64().unwrap(), asked["step"].as_u64().unwrap());
                slots.write_all_at(&[step as u8; 96], slot * 96).unwrap();
                if writeln!(answers, "{}", answer(slot, step)).is_err() {
                    return;
                }
            }
        });
        Feed::handshake("t".into(), memory, Box::new(say), Box::new(hear), None)
    }

    fn first(feed: &mut Feed, step: u64) -> Option<(u64, u8)> {
        let step = feed.open(step, &|| true).unwrap()?;
        let mut into = [9; 24];
        step.read(2..3, &mut into).unwrap();
        Some((step.number(), into[23]))
    }

    #[test]
    fn steps_come_round_again() {
        let mut feed = feed(None, |slot, step| match step {
            0..5 => json!({ "filled": slot, "step": step }).to_string(),
            _ => json!({ "end": true }).to_string(),
        })
        .unwrap();
        assert_eq!((feed.shape().sides(), feed.name()), ((2, 3, 4), "test"));
        for _ in 0..3 {
            for step in 0..5 {
                assert_eq!(first(&mut feed, step), Some((step, step as u8)));
            }
            assert_eq!(first(&mut feed, 5), None);
        }
    }

    #[test]
    fn a_slot_in_use_is_not_filled_again() {
        let mut feed = feed(None, |slot, step| json!({ "filled": slot, "step": step }).to_string()).unwrap();
        let kept: Vec<_> =
            (0..SLOTS as u64).map(|step| feed.open(step, &|| true).unwrap().unwrap()).collect();
        assert!(matches!(feed.open(3, &|| false), Err(SourceError::Stopped)));
        let mut into = [9; 24];
        kept[1].read(0..1, &mut into).unwrap();
        assert_eq!(into, [1; 24]);
        drop(kept);
        assert_eq!(first(&mut feed, 3), Some((3, 3)));
    }

    #[test]
    fn errors_are_passed_on() {
        for (answer, said) in [
            (json!({ "error": "no variable t" }).to_string(), "no variable t"),
            (json!({ "filled": 99 }).to_string(), "asked to fill slot 0"),
            ("Traceback".to_owned(), "Traceback"),
        ] {
            let mut feed = feed(Some(1), move |_, _| answer.clone()).unwrap();
            let error = feed.open(0, &|| true).err().unwrap().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
