//! The panels, shown side by side: each is a volume, whose slabs may lie in several places.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::Error;
use crate::record::Record;
use crate::reduce::{Cells, How, Region, reduce};
use crate::remote::Remote;
use crate::shm::{Front, Memory};
use crate::state::State;
use crate::token::Token;
use crate::values::FrontVolume;

/// Bytes of cells that are kept.
const KEPT: usize = 256 << 20;
/// How often a step that changes meanwhile is read.
const ATTEMPTS: u32 = 5;

/// A request for cells of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LevelRequest {
    /// None: the newest. Of a record, its place there.
    pub(crate) step: Option<u64>,
    pub(crate) factor: u64,
    pub(crate) part: Option<[u64; 6]>,
    pub(crate) how: How,
}

/// The answer.
#[derive(Debug, Clone)]
pub(crate) struct Level {
    pub(crate) step: u64,
    pub(crate) size: [u64; 3],
    pub(crate) cells: Arc<Cells>,
}

/// One volume.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) name: String,
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Memory(Memory, Mutex<VecDeque<(Front, LevelRequest, Level)>>),
    Record(Record),
    Remote(Remote),
}

impl Panel {
    /// By its name: of shared memory, or `http://host:port/NAME`, or several of these with `+` between.
    pub(crate) fn new(name: &str, token: Option<&Token>) -> Result<Self, Error> {
        let part = |name: &str| match name.strip_prefix("http://") {
            Some(rest) => Remote::new(rest, token.cloned()).map(Part::Remote),
            None => Memory::new(name).map(|memory| Part::Memory(memory, Mutex::default())),
        };
        Ok(Self { name: name.into(), parts: name.split('+').map(part).collect::<Result<_, _>>()? })
    }

    /// Recorded steps.
    pub(crate) fn record(dir: &Path) -> Result<Self, Error> {
        let record = Record::open(dir)?;
        Ok(Self { name: record.state()?.name, parts: vec![Part::Record(record)] })
    }

    /// How it is now; why there is nothing is part of it.
    pub(crate) fn state(&self) -> State {
        let state = |part: &Part| {
            let state = match part {
                Part::Memory(memory, _) => memory.state(),
                Part::Record(record) => record.state(),
                Part::Remote(remote) => remote.state(),
            };
            state.unwrap_or_else(|error| State {
                name: self.name.clone(),
                error: Some(error.to_string()),
                ..State::default()
            })
        };
        State::join(&self.name, self.parts.iter().map(state).collect())
    }

    /// Values at a level of detail; blocks.
    pub(crate) fn level(&self, wanted: &LevelRequest) -> Result<Level, Error> {
        let mut levels = self.parts.iter().map(|part| part.level(wanted));
        let first = levels.next().unwrap_or(Err(Error::Absent(self.name.clone())))?;
        levels.try_fold(first, |all, next| join(all, &next?, wanted.how))
    }
}

impl Part {
    fn level(&self, wanted: &LevelRequest) -> Result<Level, Error> {
        match self {
            Self::Memory(memory, kept) => in_memory(memory, kept, wanted),
            Self::Record(record) => {
                let (step, chunk) = record.step(wanted.step)?;
                let region = Region::new(record.array()?.shape, wanted.factor, wanted.part)?;
                let cells = Arc::new(reduce(&chunk, &region, wanted.how)?);
                Ok(Level { step, size: region.size, cells })
            }
            Self::Remote(remote) => remote.level(wanted),
        }
    }
}

/// Reads the front volume, until it has not changed meanwhile.
fn in_memory(
    memory: &Memory,
    kept: &Mutex<VecDeque<(Front, LevelRequest, Level)>>,
    wanted: &LevelRequest,
) -> Result<Level, Error> {
    for _ in 0..ATTEMPTS {
        let open = memory.current()?;
        let Some(front) = open.front()? else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        if let Some(step) = wanted.step
            && step != front.step
        {
            return Err(Error::Step(step));
        }
        let found =
            kept.lock().iter().find(|(f, w, _)| *f == front && w == wanted).map(|(.., level)| level.clone());
        if let Some(level) = found {
            return Ok(level);
        }
        let region = Region::new(open.layout.shape, wanted.factor, wanted.part)?;
        let source = FrontVolume { filled: open.filled()?, open, front };
        let cells = reduce(&source, &region, wanted.how)?;
        // A volume that is always changing is read as it is.
        if front.is_changing() || source.open.front()? == Some(front) {
            let level = Level { step: front.step, size: region.size, cells: Arc::new(cells) };
            keep(&mut kept.lock(), (front, *wanted, level.clone()));
            return Ok(level);
        }
    }
    Err(Error::Changing)
}

/// Keeps a level, and of older ones as much as there is room for.
fn keep(kept: &mut VecDeque<(Front, LevelRequest, Level)>, entry: (Front, LevelRequest, Level)) {
    kept.retain(|(front, ..)| *front == entry.0);
    kept.push_back(entry);
    let bytes = |(.., level): &(Front, LevelRequest, Level)| level.cells.values.len() * 4;
    while kept.iter().map(bytes).sum::<usize>() > KEPT {
        kept.pop_front();
    }
}

/// Cells of one volume from two places: each has the cells that the other lacks. A cell that both have in
/// part, at the border of their slabs, has the mean of the two, or the greater.
fn join(mut all: Level, more: &Level, how: How) -> Result<Level, Error> {
    if all.size != more.size {
        return Err(Error::Request("the volumes to combine have different shapes".into()));
    }
    let cells = Arc::make_mut(&mut all.cells);
    for (a, b) in cells.values.iter_mut().zip(&more.cells.values) {
        *a = match (a.is_nan(), b.is_nan(), how) {
            (true, ..) => *b,
            (_, true, _) => *a,
            (.., How::Max) => a.max(*b),
            _ => (*a + *b) / 2.0,
        };
    }
    cells.missing = cells.values.iter().filter(|v| v.is_nan()).count() as u64;
    cells.range = match (cells.range, more.cells.range) {
        (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
        (one, other) => one.or(other),
    };
    all.step = all.step.max(more.step);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_at_two_places_are_one() {
        let level = |step, values: &[f32]| Level {
            step,
            size: [3, 1, 1],
            cells: Arc::new(Cells { values: values.to_vec(), range: None, missing: 0 }),
        };
        let joined =
            join(level(3, &[1.0, f32::NAN, 2.0]), &level(4, &[f32::NAN, f32::NAN, 4.0]), How::Mean).unwrap();
        assert_eq!((joined.step, joined.cells.values[0], joined.cells.values[2]), (4, 1.0, 3.0));
        assert!(joined.cells.values[1].is_nan() && joined.cells.missing == 1);
        let other = Level { size: [1, 1, 3], ..level(3, &[0.0; 3]) };
        assert!(join(level(3, &[0.0; 3]), &other, How::Mean).is_err());
    }

    #[test]
    fn names_that_are_none_are_refused() {
        assert!(Panel::new("a+b", None).is_ok_and(|panel| panel.parts.len() == 2));
        for name in ["", "a/b", "a+", "../x", "http://", "http://x:y"] {
            assert!(Panel::new(name, None).is_err(), "{name}");
        }
    }
}
