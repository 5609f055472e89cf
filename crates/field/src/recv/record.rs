//! Recording: every step that readers see becomes a chunk of a Zarr v3 array, which ParaView finds by
//! `series.xdmf` and xarray by `series.zarr`. Missing values are NaN in the recording, whatever readers see.
//!
//! A step is copied out of the volume before it is written, so that a disk that is busy for a moment costs nothing, and one that is too slow
//! costs steps of the recording and nothing else. Small steps are copied where they close: they may follow each other faster than another
//! thread wakes up. Copying a large one there would keep its stream from receiving.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use serde_json::{Value, json};
use tidecast_event::field::receive::Closed;
use tidecast_paths::Root;

use super::slot::Area;
use super::{Event, Hub};
use crate::geometry::Shape;
use crate::packet::VALUE;

/// Time between two writings of the series: it names all steps, so it is not written with each.
const SERIES: Duration = Duration::from_secs(1);

/// The group that xarray opens; and its array, whose chunks are the recording's own.
const GROUP: &str = "series.zarr";
const FIELD: &str = "field";

/// Large steps that wait to be copied: those that a volume may still have.
const COPYING: usize = 8;

/// Bytes that a small step has at most.
const SMALL: usize = 1 << 20;

/// Bytes of steps that wait to be written, at most; one step waits in any case.
const WAITING: usize = 256 << 20;

/// Bytes that a waiting step needs apart from its values, about.
const ENTRY: usize = 512;

/// Numbers in a chunk of a coordinate: chunks of one length, so that a reader of a growing recording finds a
/// chunk as long as announced.
const NUMBERS: usize = 4096;

/// Each step is a collection of this many slabs, which several processes of ParaView share among them.
const SLABS: u32 = 8;

/// A step that has just closed.
pub(super) struct ClosedStep {
    pub(super) area: Arc<Area>,
    pub(super) closed: Closed,
    /// Where it is, as long as the volume has this sequence.
    pub(super) volume: usize,
    pub(super) sequence: u64,
    pub(super) shape: Shape,
    /// The planes that are here: the first, and the one after the last.
    pub(super) planes: (u32, u32),
    pub(super) title: String,
}

impl ClosedStep {
    fn bytes(&self) -> usize {
        (self.planes.1 - self.planes.0) as usize * self.shape.plane() as usize * VALUE
    }
}

/// Modes of new directories and files, before the umask.
const DIR: u32 = 0o777;
const FILE: u32 = 0o666;

/// Opens the directory of a recording, made if need be, and checks that steps can be recorded there: before the first
/// one comes, while the user is still watching.
pub(super) fn prepare(dir: &Path) -> io::Result<Root> {
    let dir = Root::make(dir)?;
    before(&dir)?;
    let probe = "zarr.json.part";
    dir.remove_file(probe)?;
    dir.create(probe, FILE)?;
    dir.remove_file(probe)?;
    Ok(dir)
}

/// The shape and the steps of the recording that a directory has, if it has one; other contents are not
/// overwritten.
fn before(dir: &Root) -> io::Result<Option<(Vec<u64>, Vec<u64>)>> {
    let foreign =
        |what: &str| Err(io::Error::other(format!("the directory contains {what}; name another directory")));
    if [".zgroup", ".zarray"].iter().any(|name| matches!(dir.look(name), Ok(Some(_)))) {
        return foreign("Zarr data of version 2");
    }
    let text = match dir.read("zarr.json") {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let Ok(had) = serde_json::from_slice::<Value>(&text) else {
        return foreign("a damaged zarr.json");
    };
    if had["node_type"] == "group" {
        return foreign("a Zarr group");
    }
    let numbers = |value: &Value| serde_json::from_value::<Vec<u64>>(value.clone()).ok();
    match (numbers(&had["shape"]), numbers(&had["attributes"]["steps"])) {
        (Some(shape), Some(steps)) if shape.first() == Some(&(steps.len() as u64)) => {
            Ok(Some((shape, steps)))
        }
        _ => foreign("a Zarr array that is not a recording"),
    }
}

/// Values of steps, copied out of volumes, and their buffers, which go round.
struct Copies {
    /// Bytes of the steps that wait to be written.
    held: AtomicUsize,
    emptied: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
}

impl Copies {
    /// The values of a step; None if too many wait, or a later step has come into its volume.
    fn of(&self, step: &ClosedStep) -> Option<Vec<u8>> {
        let waits = self.held.load(Relaxed);
        if waits > 0 && waits + step.bytes() + ENTRY > WAITING {
            return None;
        }
        let mut buffer = self.emptied.1.try_recv().unwrap_or_default();
        if !copy(step, &mut buffer) {
            return None;
        }
        self.held.fetch_add(buffer.len() + ENTRY, Relaxed);
        Some(buffer)
    }

    /// The values are no longer needed.
    fn give_back(&self, values: Vec<u8>) {
        self.held.fetch_sub(values.len() + ENTRY, Relaxed);
        // The other end is in the same place.
        let _ = self.emptied.0.send(values);
    }
}

/// Where closed steps go to.
pub(super) struct Recorder {
    /// With their values, if these are copied already.
    steps: Sender<(ClosedStep, Option<Vec<u8>>)>,
    copies: Arc<Copies>,
}

/// The other end of a [`Recorder`].
pub(super) struct Taken {
    steps: Receiver<(ClosedStep, Option<Vec<u8>>)>,
    copies: Arc<Copies>,
}

/// A queue for [`work`]: the end that takes closed steps, and the end that gives them.
pub(super) fn channel() -> (Recorder, Taken) {
    let copies = Arc::new(Copies { held: AtomicUsize::new(0), emptied: unbounded() });
    let (sender, receiver) = unbounded();
    (Recorder { steps: sender, copies: Arc::clone(&copies) }, Taken { steps: receiver, copies })
}

impl Recorder {
    /// Takes a step that has just closed; false if the recording is too far behind.
    pub(super) fn add(&self, step: ClosedStep) -> bool {
        let values = match step.bytes() <= SMALL {
            true => match self.copies.of(&step) {
                None => return false,
                values => values,
            },
            false if self.steps.len() >= COPYING => return false,
            false => None,
        };
        if let Err(unsent) = self.steps.send((step, values)) {
            // The writer has reported why it ended.
            unsent.0.1.into_iter().for_each(|values| self.copies.give_back(values));
        }
        true
    }
}

/// Records until the receiver ends or the disk fails: large steps are copied here, and all are written by a thread of its own.
pub(super) fn work(hub: &Hub, dir: &Root, taken: &Taken) {
    let (copied, waiting) = unbounded();
    std::thread::scope(|threads| {
        threads.spawn(move || write(hub, dir, waiting, &taken.copies));
        while let Some((step, values)) = next(hub, &taken.steps) {
            let Some(values) = values.or_else(|| taken.copies.of(&step)) else {
                hub.skipped.add(1);
                continue;
            };
            // The writer has reported why it ended.
            if copied.send((step, values)).is_err() {
                break;
            }
        }
        drop(copied);
    });
    let skipped = hub.skipped.get();
    if skipped > 0 {
        let why = format!(
            "{skipped} of the received steps were not recorded in {}: later steps came before they were copied",
            dir.path().display()
        );
        hub.unrecorded.lock().get_or_insert(why);
    }
}

/// Writes the copied steps, until there are no more or the disk fails.
fn write(hub: &Hub, dir: &Root, waiting: Receiver<(ClosedStep, Vec<u8>)>, copies: &Copies) {
    let mut recording: Option<Recording<'_>> = None;
    for (take, buffer) in waiting {
        let done = match &mut recording {
            Some(recording) => recording.add(&take, &buffer),
            None => {
                Recording::open(dir, &take).and_then(|opened| recording.insert(opened).add(&take, &buffer))
            }
        };
        copies.give_back(buffer);
        match done {
            Ok(()) => hub.recorded.add(1),
            Err(error) => {
                let why = format!("recording into {} stopped", dir.path().display());
                hub.report(Event::Note(format!("{why}, receiving continues: {error}")));
                hub.unrecorded.lock().get_or_insert(format!("{why}: {error}"));
                break;
            }
        }
    }
    if let Some(Err(error)) = recording.map(|mut recording| recording.write_series()) {
        let why = format!("cannot write the series of {}: {error}", dir.path().display());
        hub.unrecorded.lock().get_or_insert(why);
    }
}

/// The next step; `None` when the receiver has ended and all is taken.
fn next<T>(hub: &Hub, steps: &Receiver<T>) -> Option<T> {
    loop {
        match steps.recv_timeout(Duration::from_millis(100)) {
            Ok(step) => return Some(step),
            Err(_) if hub.stop.load(Relaxed) => return steps.try_recv().ok(),
            Err(_) => {}
        }
    }
}

/// Copies the planes here, with NaN for missing values, so that values of other steps do not look like this
/// one's. False if a later step has been written into the volume meanwhile.
fn copy(take: &ClosedStep, buffer: &mut Vec<u8>) -> bool {
    let (shared, volume) = (&take.area.shared, take.volume);
    let plane = take.shape.plane() as usize;
    buffer.resize(take.bytes(), 0);
    if shared.sequence(volume) != take.sequence {
        return false;
    }
    let first = take.planes.0 as usize * plane;
    shared.read(volume, first, buffer);
    if take.closed.missing > 0 {
        let values = buffer.as_chunks_mut::<VALUE>().0;
        shared.each_hole(volume, first, values.len(), |place| {
            if let Some(value) = values.get_mut(place - first) {
                *value = f32::NAN.to_le_bytes();
            }
        });
    }
    std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
    shared.sequence(volume) == take.sequence
}

/// A directory with a recording.
struct Recording<'d> {
    dir: &'d Root,
    /// Planes, rows and values of a row.
    sides: [u32; 3],
    first_plane: u32,
    title: String,
    steps: Vec<u64>,
    log: File,
    series: Option<Instant>,
}

impl<'d> Recording<'d> {
    /// Begins a recording, or continues one of the same shape.
    fn open(dir: &'d Root, take: &ClosedStep) -> io::Result<Self> {
        let (nx, ny, _) = take.shape.sides();
        let sides = [take.planes.1 - take.planes.0, ny, nx];
        let steps = match before(dir)? {
            None => Vec::new(),
            Some((shape, steps)) if shape.get(1..) == Some(&sides.map(u64::from)) => steps,
            Some(_) => {
                return Err(io::Error::other(
                    "the directory contains a recording of another shape; name another directory",
                ));
            }
        };
        let mut log = dir.open_or_create("steps.jsonl", FILE)?;
        log.seek(SeekFrom::End(0))?;
        let title = take.title.clone();
        Ok(Self { dir, sides, first_plane: take.planes.0, title, steps, log, series: None })
    }

    fn add(&mut self, take: &ClosedStep, values: &[u8]) -> io::Result<()> {
        let (nx, ny, _) = take.shape.sides();
        if [take.planes.1 - take.planes.0, ny, nx] != self.sides {
            return Err(io::Error::other("the shape changed; start again with another directory"));
        }
        let index = self.steps.len();
        let chunk = format!("c/{index}/0/0");
        self.dir.make_dirs(&chunk, DIR)?;
        put(self.dir, &format!("{chunk}/0"), values)?;
        let mut line = serde_json::to_value(&take.closed)?;
        line["index"] = index.into();
        let range = range(values);
        line["min"] = range.map_or(Value::Null, |(least, _)| least.into());
        line["max"] = range.map_or(Value::Null, |(_, most)| most.into());
        writeln!(self.log, "{line}")?;
        self.steps.push(take.closed.step);
        let said = json!({ "name": self.title, "steps": self.steps, "first_plane": self.first_plane });
        put(self.dir, "zarr.json", self.array(&said).to_string().as_bytes())?;
        if self.series.is_none_or(|written| written.elapsed() > SERIES) {
            self.write_series()?;
        }
        Ok(())
    }

    /// The array's metadata and attributes.
    fn array(&self, said: &Value) -> Value {
        let [nz, ny, nx] = self.sides;
        described(
            "float32",
            &json!("NaN"),
            (json!([self.steps.len(), nz, ny, nx]), json!([1, nz, ny, nx])),
            &json!(["step", "z", "y", "x"]),
            said,
        )
    }

    fn write_series(&mut self) -> io::Result<()> {
        self.write_group()?;
        self.series = Some(Instant::now());
        put(self.dir, "series.xdmf", self.xdmf().as_bytes())
    }

    /// The group for xarray, which opens no array that is in none, with the numbers of steps and of planes as coordinates. The coordinates are written
    /// first, so that none names a step that is not there.
    fn write_group(&self) -> io::Result<()> {
        let (dir, nz) = (self.dir, self.sides[0]);
        dir.make_dirs(format!("{GROUP}/{FIELD}"), DIR)?;
        match dir.symlink("../../c", format!("{GROUP}/{FIELD}/c")) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let planes: Vec<_> = (self.first_plane..self.first_plane + nz).map(u64::from).collect();
        let (step, z) = (coordinate(dir, "step", &self.steps)?, coordinate(dir, "z", &planes)?);
        let field = self.array(&json!({ "long_name": self.title }));
        put(dir, &format!("{GROUP}/{FIELD}/zarr.json"), field.to_string().as_bytes())?;
        let group = json!({
            "zarr_format": 3, "node_type": "group", "attributes": { "title": self.title },
            "consolidated_metadata": {
                "kind": "inline", "must_understand": false, "metadata": { FIELD: field, "step": step, "z": z },
            },
        });
        put(dir, &format!("{GROUP}/zarr.json"), group.to_string().as_bytes())
    }

    /// The series for ParaView. Time is the number within the recording: numbers of steps come again when a sender goes round.
    fn xdmf(&self) -> String {
        let [nz, ny, nx] = self.sides;
        let plain: String =
            self.title.chars().filter(|c| c.is_alphanumeric() || " ._-/".contains(*c)).collect();
        let name = if plain.is_empty() { "field" } else { &plain };
        let mut text = String::from(
            "<?xml version=\"1.0\"?>\n<Xdmf Version=\"3.0\"><Domain><Grid Name=\"series\" GridType=\"Collection\" CollectionType=\"Temporal\">\n",
        );
        for (index, step) in self.steps.iter().enumerate() {
            text += &format!(
                "<Grid Name=\"step {step}\" GridType=\"Collection\" CollectionType=\"Spatial\"><Time Value=\"{index}\"/>\n"
            );
            for slab in 0..SLABS.min(nz) {
                let (first, end) = (slab * nz / SLABS.min(nz), (slab + 1) * nz / SLABS.min(nz));
                // A plane more, so that no gap is drawn between them.
                let planes = (end + 1).min(nz) - first;
                let seek = u64::from(first) * u64::from(ny) * u64::from(nx) * VALUE as u64;
                text += &format!(
                    "<Grid Name=\"slab {slab}\"><Topology TopologyType=\"3DCoRectMesh\" Dimensions=\"{planes} {ny} {nx}\"/>\
                     <Geometry GeometryType=\"ORIGIN_DXDYDZ\"><DataItem Dimensions=\"3\" Format=\"XML\">{} 0 0</DataItem>\
                     <DataItem Dimensions=\"3\" Format=\"XML\">1 1 1</DataItem></Geometry>\
                     <Attribute Name=\"{name}\" AttributeType=\"Scalar\" Center=\"Node\"><DataItem Dimensions=\"{planes} {ny} {nx}\" \
                     NumberType=\"Float\" Precision=\"4\" Format=\"Binary\" Endian=\"Little\" Seek=\"{seek}\">c/{index}/0/0/0</DataItem>\
                     </Attribute></Grid>\n",
                    self.first_plane + first
                );
            }
            text += "</Grid>\n";
        }
        text += "</Grid></Domain></Xdmf>\n";
        text
    }
}

/// An array's metadata, as Zarr v3 has it: of a shape, in chunks of another one.
fn described(kind: &str, fill: &Value, (shape, chunk): (Value, Value), names: &Value, said: &Value) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "data_type": kind, "fill_value": fill, "shape": shape, "dimension_names": names,
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": chunk } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "codecs": [{ "name": "bytes", "configuration": { "endian": "little" } }],
        "attributes": said,
    })
}

/// Writes a coordinate of the group; answers its metadata.
fn coordinate(dir: &Root, name: &str, numbers: &[u64]) -> io::Result<Value> {
    let chunks = format!("{GROUP}/{name}/c");
    dir.make_dirs(&chunks, DIR)?;
    for (place, chunk) in numbers.chunks(NUMBERS).enumerate() {
        let filled = chunk.iter().chain(std::iter::repeat(&0)).take(NUMBERS);
        let bytes: Vec<u8> = filled.flat_map(|number| number.to_le_bytes()).collect();
        put(dir, &format!("{chunks}/{place}"), &bytes)?;
    }
    let shapes = (json!([numbers.len()]), json!([NUMBERS]));
    let said = described("int64", &json!(0), shapes, &json!([name]), &json!({}));
    put(dir, &format!("{GROUP}/{name}/zarr.json"), said.to_string().as_bytes())?;
    Ok(said)
}

/// Values that are compared at once.
const LANES: usize = 16;

/// The least and the greatest of the values that are numbers, if there are any. Without branches, as every recorded value comes by here.
fn range(values: &[u8]) -> Option<(f32, f32)> {
    let (mut least, mut most) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
    let mut take = |lane: usize, value: [u8; VALUE]| {
        let value = f32::from_le_bytes(value);
        // False for NaN as well.
        let counts = value.abs() < f32::INFINITY;
        least[lane] = least[lane].min(if counts { value } else { f32::INFINITY });
        most[lane] = most[lane].max(if counts { value } else { f32::NEG_INFINITY });
    };
    let (rows, rest) = values.as_chunks::<VALUE>().0.as_chunks::<LANES>();
    for row in rows {
        for (lane, value) in row.iter().enumerate() {
            take(lane, *value);
        }
    }
    for value in rest {
        take(0, *value);
    }
    let least = least.into_iter().fold(f32::INFINITY, f32::min);
    let most = most.into_iter().fold(f32::NEG_INFINITY, f32::max);
    (least <= most).then_some((least, most))
}

/// Writes a file atomically.
fn put(dir: &Root, path: &str, bytes: &[u8]) -> io::Result<()> {
    let part = format!("{path}.part");
    dir.remove_file(&part)?;
    let written = dir.create(&part, FILE).and_then(|mut file| file.write_all(bytes));
    let written = written.and_then(|()| dir.rename(&part, path, true));
    if written.is_err() {
        // The part that a full disk holds is of no use.
        let _ = dir.remove_file(&part);
    }
    written
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_in_the_directory_lead_no_write_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let (at, victim) = (dir.path().join("run"), dir.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        fs::create_dir_all(at.join("c")).unwrap();
        symlink(&victim, at.join("zarr.json.part")).unwrap();
        symlink(dir.path(), at.join("c/0")).unwrap();
        symlink(&victim, at.join("steps.jsonl")).unwrap();
        let root = prepare(&at).unwrap();
        assert!(!at.join("zarr.json.part").exists());
        assert!(root.make_dirs("c/0/0/0", DIR).is_err() && root.open_or_create("steps.jsonl", FILE).is_err());
        symlink(&victim, at.join("series.xdmf.part")).unwrap();
        put(&root, "series.xdmf", b"new").unwrap();
        assert_eq!(fs::read(at.join("series.xdmf")).unwrap(), b"new");
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert!(!dir.path().join("0").exists());
    }

    #[test]
    fn where_nothing_can_be_recorded_is_known_before() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("a/b");
        prepare(&new).unwrap();
        assert_eq!(fs::read_dir(&new).unwrap().count(), 0, "nothing is left behind");
        fs::write(new.join("file"), "").unwrap();
        assert!(prepare(&new.join("file")).is_err());
        let write = |text: &str| fs::write(new.join("zarr.json"), text).unwrap();
        for (text, said) in [
            (r#"{"zarr_format":3,"node_type":"group"}"#, "a Zarr group"),
            (r#"{"zarr_format":3,"node_type":"array","shape":[2,3]}"#, "not a recording"),
            (r#"{"shape":[3,4,4,4],"attributes":{"steps":[1,2]}}"#, "not a recording"),
            ("{", "damaged"),
        ] {
            write(text);
            let error = prepare(&new).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        write(r#"{"shape":[2,4,4,4],"attributes":{"steps":[1,2]}}"#);
        assert_eq!(before(&Root::open(&new).unwrap()).unwrap(), Some((vec![2, 4, 4, 4], vec![1, 2])));
        fs::write(new.join(".zgroup"), "").unwrap();
        assert!(prepare(&new).unwrap_err().to_string().contains("version 2"));
    }

    #[test]
    fn the_range_is_that_of_finite_values() {
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        let values = [f32::NAN, 2.0, f32::INFINITY, -3.5, f32::NEG_INFINITY];
        assert_eq!(range(&bytes(&values)), Some((-3.5, 2.0)));
        for at in 0..40 {
            let mut many = [1.0; 40];
            many[at] = 7.0;
            many[(at + 1) % 40] = f32::NAN;
            assert_eq!(range(&bytes(&many)), Some((1.0, 7.0)), "{at}");
        }
        assert_eq!(range(&bytes(&[f32::NAN, f32::INFINITY])), None);
        assert_eq!(range(&[]), None);
    }
}
