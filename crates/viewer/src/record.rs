//! Recorded steps: a Zarr v3 array of (step, z, y, x), float32, one uncompressed chunk a step; its attribute
//! `steps` has the source's numbers of them, and `steps.jsonl` beside it a line for each. Numbers repeat when
//! a sender repeats its source: steps are requested by their positions.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde_json::Value;

use crate::error::Error;
use crate::reduce::Values;
use crate::state::{Closed, State};

/// Bytes that are read of a description at most.
const DESCRIPTION: u64 = 16 << 20;
/// Bytes of `steps.jsonl` at most.
const LINES: u64 = 64 << 20;
/// Steps at most.
const STEPS: u64 = 1 << 20;
/// Most entries of the history that are reported.
const TOLD: usize = 4096;

/// The relevant contents of a `zarr.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// The source's numbers of the steps.
    pub steps: Vec<u64>,
    /// x, y, z.
    pub shape: [u64; 3],
}

impl Array {
    /// Reads `zarr.json`.
    ///
    /// # Errors
    /// The reason why it is not supported, as text.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let all: Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        let list = |value: &Value| {
            value.as_array().and_then(|v| v.iter().map(Value::as_u64).collect::<Option<Vec<_>>>())
        };
        let expect = |good: bool, what: &str| if good { Ok(()) } else { Err(format!("expected {what}")) };
        expect(all["zarr_format"] == 3 && all["node_type"] == "array", "a Zarr version 3 array")?;
        expect(all["data_type"] == "float32", "data_type float32")?;
        let Some([count, nz, ny, nx]) = list(&all["shape"]).and_then(|v| v.first_chunk().copied()) else {
            return Err("expected a shape of step, z, y, x".into());
        };
        let shape = [nx, ny, nz];
        expect(shape.iter().all(|side| (1..=65_536).contains(side)), "sides of 1 to 65536")?;
        let chunk = list(&all["chunk_grid"]["configuration"]["chunk_shape"]);
        expect(count <= STEPS, "fewer steps")?;
        expect(chunk == Some(vec![1, nz, ny, nx]), "one chunk per step")?;
        let key = &all["chunk_key_encoding"];
        let slashes = matches!(key["configuration"]["separator"].as_str(), None | Some("/"));
        expect(key["name"] == "default" && slashes, "chunk keys as c/0/0/0/0")?;
        let codecs = all["codecs"].as_array().map(Vec::as_slice);
        let little = |codec: &Value| codec["name"] == "bytes" && codec["configuration"]["endian"] == "little";
        expect(matches!(codecs, Some([codec]) if little(codec)), "only the codec bytes, little endian")?;
        let told = list(&all["attributes"]["steps"]).filter(|told| told.len() as u64 == count);
        Ok(Self { steps: told.unwrap_or_else(|| (0..count).collect()), shape })
    }
}

/// A directory of recorded steps.
#[derive(Debug)]
pub(crate) struct Record {
    dir: PathBuf,
    name: String,
}

/// One step of it.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// None when nothing of it was recorded.
    file: Option<File>,
    path: PathBuf,
    shape: [u64; 3],
}

impl Record {
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let name =
            dir.file_name().map_or_else(|| "record".into(), |name| name.to_string_lossy().into_owned());
        let record = Self { dir: dir.into(), name };
        record.array().map(|_| record)
    }

    pub(crate) fn array(&self) -> Result<Array, Error> {
        let path = self.dir.join("zarr.json");
        // The steps are named in it: it grows with them.
        let text = head(&path, DESCRIPTION)?;
        Array::parse(&text).map_err(|why| Error::Format { path, what: "a recorded field", why })
    }

    /// The entries of `steps.jsonl` for each step; a truncated line is ignored.
    fn lines(&self, array: &Array) -> Vec<Line> {
        let text = head(&self.dir.join("steps.jsonl"), LINES).unwrap_or_default();
        let begun = |step: &u64| Line { closed: Closed { step: *step, ..Closed::default() }, range: None };
        let mut all: Vec<_> = array.steps.iter().map(begun).collect();
        for line in text.split(|byte| *byte == b'\n') {
            let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
            let place = line["index"].as_u64().and_then(|index| all.get_mut(index as usize));
            let range = line.get("min").zip(line.get("max"));
            let range = range.map(|(least, most)| least.as_f64().zip(most.as_f64()));
            if let (Some(place), Ok(closed)) = (place, serde_json::from_value(line)) {
                *place = Line { closed, range };
            }
        }
        all
    }

    fn chunk_path(&self, number: usize) -> PathBuf {
        self.dir.join(format!("c/{number}/0/0/0"))
    }

    pub(crate) fn state(&self) -> Result<State, Error> {
        let array = self.array()?;
        let lines = self.lines(&array);
        let range = range(&lines);
        let told = lines.iter().skip(lines.len().saturating_sub(TOLD));
        let history: Vec<_> = told.map(|line| line.closed.clone()).collect();
        Ok(State {
            name: self.name.clone(),
            title: "recorded".into(),
            shape: array.shape,
            step: lines.last().map_or(0, |line| line.closed.step),
            closed: lines.len() as u64,
            steps: Some(array.steps),
            history,
            range,
            ..State::default()
        })
    }

    /// A step by its place, or the last: the source's number of it, and its values.
    pub(crate) fn step(&self, place: Option<u64>) -> Result<(u64, Chunk), Error> {
        let array = self.array()?;
        let place = place.unwrap_or((array.steps.len() as u64).saturating_sub(1));
        let found = *array.steps.get(place as usize).ok_or(Error::Step(place))?;
        let path = self.chunk_path(place as usize);
        let file = match open(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::Io { path, error }),
        };
        Ok((found, Chunk { file, path, shape: array.shape }))
    }
}

/// The metadata of a recorded step.
struct Line {
    closed: Closed,
    /// Its least and its greatest value, if it has any; older recordings do not have them.
    range: Option<Option<(f64, f64)>>,
}

/// The least and the greatest value of all steps, if those of each are known.
fn range(lines: &[Line]) -> Option<(f64, f64)> {
    let all = lines.iter().map(|line| line.range).collect::<Option<Vec<_>>>()?;
    let wider = |one: (f64, f64), other: (f64, f64)| (one.0.min(other.0), one.1.max(other.1));
    all.into_iter().flatten().reduce(wider)
}

impl Values for Chunk {
    fn shape(&self) -> [u64; 3] {
        self.shape
    }

    fn read(&self, [x, y, z]: [u64; 3], values: &mut [f32]) -> Result<(), Error> {
        let Some(file) = &self.file else {
            values.fill(f32::NAN);
            return Ok(());
        };
        let place = (z * self.shape[1] + y) * self.shape[0] + x;
        let io = |error| Error::Io { path: self.path.clone(), error };
        crate::values::fill(values, |bytes| file.read_exact_at(bytes, place * 4).map_err(io))
    }
}

/// A file of a recording, in a directory where another user may have put a pipe: opening one would wait for a writer.
fn open(path: &Path) -> io::Result<File> {
    let without_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// The contents of a file, `most` bytes of it.
fn head(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    let io = |error| Error::Io { path: path.into(), error };
    let mut text = Vec::new();
    open(path).and_then(|file| file.take(most).read_to_end(&mut text)).map_err(io)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("zarr.json");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
        assert!(head(&path, DESCRIPTION).unwrap_err().to_string().contains("not a regular file"));
    }
    use crate::reduce::{How, Region, reduce};

    fn description(steps: &str) -> String {
        format!(
            r#"{{"zarr_format":3,"node_type":"array","attributes":{{"steps":[{steps}]}},"shape":[2,2,3,4],"data_type":"float32","fill_value":"NaN",
            "chunk_grid":{{"name":"regular","configuration":{{"chunk_shape":[1,2,3,4]}}}},
            "chunk_key_encoding":{{"name":"default","configuration":{{"separator":"/"}}}},
            "codecs":[{{"name":"bytes","configuration":{{"endian":"little"}}}}]}}"#
        )
    }

    #[test]
    fn steps_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("zarr.json"), description("7,9")).unwrap();
        std::fs::write(dir.path().join("steps.jsonl"), "{\"index\":1,\"step\":9,\"missing\":2}\n{\"ste")
            .unwrap();
        let chunk = dir.path().join("c/1/0/0");
        std::fs::create_dir_all(&chunk).unwrap();
        let values: Vec<u8> = (0..24).flat_map(|n| (n as f32).to_le_bytes()).collect();
        std::fs::write(chunk.join("0"), &values).unwrap();
        let record = Record::open(dir.path()).unwrap();
        let state = record.state().unwrap();
        assert_eq!((state.steps, state.history[1].missing, state.history[0].step), (Some(vec![7, 9]), 2, 7));
        let (step, chunk) = record.step(None).unwrap();
        let all = Region::new(chunk.shape(), 2, None).unwrap();
        assert_eq!((step, reduce(&chunk, &all, How::Max).unwrap().values), (9, vec![17.0, 19.0, 21.0, 23.0]));
        let (_, never) = record.step(Some(0)).unwrap();
        assert_eq!(reduce(&never, &all, How::Max).unwrap().missing, 24);
        assert!(matches!(record.step(Some(2)), Err(Error::Step(2))));
        assert_eq!(state.range, None, "older recordings do not say");
        let said = "{\"index\":0,\"step\":7,\"min\":-2.5,\"max\":1}\n{\"index\":1,\"step\":9,\"min\":null,\"max\":null}\n";
        std::fs::write(dir.path().join("steps.jsonl"), said).unwrap();
        assert_eq!(record.state().unwrap().range, Some((-2.5, 1.0)));
        std::fs::write(dir.path().join("c/1/0/0/0"), &values[..50]).unwrap();
        let (_, short) = record.step(Some(1)).unwrap();
        assert!(matches!(reduce(&short, &all, How::Max), Err(Error::Io { .. })));
    }

    #[test]
    fn another_array_is_refused() {
        assert!(Array::parse(description("7,9").as_bytes()).is_ok());
        for (from, to) in
            [("float32", "float64"), ("[1,2,3,4]", "[1,1,3,4]"), ("\"bytes\"", "\"zstd\""), ("[2,2", "[3,0")]
        {
            assert!(Array::parse(description("7,9").replace(from, to).as_bytes()).is_err(), "{to}");
        }
        assert!(Array::parse(b"{").is_err());
    }
}
