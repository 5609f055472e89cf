//! Arrays in files: raw float32 with a shape, and .npy. A file has one step or many, and several files follow one another.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::content;
use super::convert::convert;
use super::{Kind, Notes, NpyHeader, Source, SourceError, Step, Wait, check, npy};
use crate::geometry::Shape;

/// Values that are converted at a time.
const PIECE: usize = 64 << 10;

/// Steps that lie in one file, one after the other.
struct Part {
    path: PathBuf,
    /// The bytes in front of the values, which say what these are.
    head: Vec<u8>,
    steps: u64,
    kind: Kind,
    big_endian: bool,
}

impl Part {
    /// Opens it again, if its values are still of the same shape and type: other programs may have replaced it meanwhile.
    fn open(&self) -> Result<File, SourceError> {
        let file = regular(&self.path)?;
        let mut head = vec![0; self.head.len()];
        let same = file.read_exact_at(&mut head, 0).is_ok() && head == self.head;
        let what = "the file was replaced by another array since sending began";
        if same { Ok(file) } else { Err(SourceError::wrong(self.path.display().to_string(), what)) }
    }
}

struct Files {
    shape: Shape,
    name: String,
    parts: Vec<Part>,
    notes: Notes,
}

/// Raw float32, little-endian.
pub(super) fn raw(names: &[String], shape: Option<Shape>) -> Result<Box<dyn Source>, SourceError> {
    let first = names.first().map_or("", String::as_str);
    if let Some(missing) = names.iter().find(|name| !Path::new(name).exists()) {
        return Err(SourceError::wrong(missing, "no such file"));
    }
    if let Some(folder) = names.iter().find(|name| Path::new(name).is_dir()) {
        let what = "is a directory; name the files in it (the name of a Zarr array ends with .zarr)";
        return Err(SourceError::wrong(folder, what));
    }
    // One that is given alone with a shape is raw whatever its first bytes are; not so one among others.
    let described =
        |name: &&String| names.len() > 1 && content::of(Path::new(name)) != content::Content::Else;
    if let Some(name) = names.iter().find(described) {
        let what = "this file describes its own shape and type; the others of the series are raw values";
        return Err(SourceError::wrong(name, what));
    }
    let shape = shape.ok_or_else(|| {
        let what = content::foreign(Path::new(first));
        SourceError::wrong(first, what.unwrap_or("raw values need a shape; give --shape X,Y,Z"))
    })?;
    let step = shape.values() * 4;
    let mut parts = Vec::new();
    for path in names.iter().map(PathBuf::from) {
        let size = std::fs::metadata(&path).map_err(SourceError::io(&path))?.len();
        if size == 0 || size % step != 0 {
            let what = format!(
                "the file has {size} bytes, which is not a multiple of a step of --shape {shape} ({step} bytes)"
            );
            return Err(SourceError::wrong(path.display().to_string(), what));
        }
        parts.push(Part { path, head: Vec::new(), steps: size / step, kind: Kind::F32, big_endian: false });
    }
    Ok(Box::new(Files { shape, name: called(names), parts, notes: Notes::default() }))
}

/// .npy files of three axes, or of four, the first of which is time.
pub(super) fn npy(names: &[String]) -> Result<Box<dyn Source>, SourceError> {
    let mut parts = Vec::new();
    let mut shape = None;
    for path in names.iter().map(PathBuf::from) {
        let name = path.display().to_string();
        let (header, bytes) = head(&path)?;
        let (steps, axes) = match header.shape[..] {
            [z, y, x] => (1, [x, y, z]),
            [steps, z, y, x] => (steps, [x, y, z]),
            _ => {
                let what =
                    format!("the array has {} axes; expected three, or time and three", header.shape.len());
                return Err(SourceError::wrong(name, what));
            }
        };
        if header.fortran {
            let what = "the array is in Fortran order; send it alone, or save numpy.ascontiguousarray(array)";
            return Err(SourceError::wrong(name, what));
        }
        let axes = check(&name, axes)?;
        if *shape.get_or_insert(axes) != axes {
            return Err(SourceError::wrong(name, "its shape differs from the shape of the first file"));
        }
        let size = std::fs::metadata(&path).map_err(SourceError::io(&path))?.len();
        let step = axes.values() * header.kind.size() as u64;
        let end = step.checked_mul(steps).and_then(|all| all.checked_add(header.offset as u64));
        if steps == 0 {
            return Err(SourceError::wrong(name, "the array has no steps: its first axis has the length 0"));
        }
        if end.is_none_or(|end| end > size) {
            let what = format!("the file is truncated: it has {size} bytes, less than its header declares");
            return Err(SourceError::wrong(name, what));
        }
        let (kind, big_endian) = (header.kind, header.big_endian);
        parts.push(Part { path, head: bytes, steps, kind, big_endian });
    }
    let shape = shape.ok_or_else(|| SourceError::wrong("no source", "name a file"))?;
    Ok(Box::new(Files { shape, name: called(names), parts, notes: Notes::default() }))
}

/// Whether its values lie in the order of Fortran.
pub(super) fn is_fortran(name: &str) -> bool {
    head(Path::new(name)).is_ok_and(|(header, _)| header.fortran)
}

/// What a .npy declares, and the bytes that do so.
fn head(path: &Path) -> Result<(NpyHeader, Vec<u8>), SourceError> {
    let mut bytes = Vec::new();
    let file = regular(path)?;
    file.take(npy::MAX_HEADER as u64 + 12).read_to_end(&mut bytes).map_err(SourceError::io(path))?;
    let header = npy::parse(&bytes).map_err(|what| SourceError::wrong(path.display().to_string(), what))?;
    bytes.truncate(header.offset);
    bytes.shrink_to_fit();
    Ok((header, bytes))
}

/// Opens a file, without waiting for the other end of what another process has put in its place.
fn regular(path: &Path) -> Result<File, SourceError> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(SourceError::io(path))?;
    match file.metadata().map_err(SourceError::io(path))?.is_file() {
        true => Ok(file),
        false => Err(SourceError::wrong(path.display().to_string(), "is not a regular file")),
    }
}

/// The name of the first file, and how many there are.
fn called(names: &[String]) -> String {
    let first = names.first().map(Path::new).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    if names.len() == 1 { first.into_owned() } else { format!("{first} and {} more", names.len() - 1) }
}

impl Source for Files {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn steps(&self) -> Option<u64> {
        Some(self.parts.iter().map(|part| part.steps).sum())
    }

    fn notes(&self) -> Notes {
        self.notes.clone()
    }

    fn open(&mut self, step: u64, _wait: &Wait<'_>) -> Result<Option<Arc<dyn Step>>, SourceError> {
        let mut place = step;
        for part in &self.parts {
            if place < part.steps {
                let file = part.open()?;
                let plane = self.shape.plane() * part.kind.size() as u64;
                let offset = part.head.len() as u64 + place * self.shape.values() * part.kind.size() as u64;
                let (path, kind, big_endian) = (part.path.clone(), part.kind, part.big_endian);
                let notes = self.notes.clone();
                let step = InFile { step, file, path, offset, plane, kind, big_endian, notes };
                return Ok(Some(Arc::new(step)));
            }
            place -= part.steps;
        }
        Ok(None)
    }
}

/// A step in a file.
struct InFile {
    step: u64,
    file: File,
    path: PathBuf,
    offset: u64,
    /// Bytes of a plane.
    plane: u64,
    kind: Kind,
    big_endian: bool,
    notes: Notes,
}

impl Step for InFile {
    fn number(&self) -> u64 {
        self.step
    }

    fn read(&self, planes: Range<usize>, into: &mut [u8]) -> Result<(), SourceError> {
        let mut at = self.offset + planes.start as u64 * self.plane;
        let wrong = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => SourceError::wrong(
                self.path.display().to_string(),
                "the file has become shorter since sending began",
            ),
            _ => SourceError::io(&self.path)(error),
        };
        if self.kind == Kind::F32 && !self.big_endian {
            return self.file.read_exact_at(into, at).map_err(wrong);
        }
        let mut piece = vec![0; PIECE * self.kind.size()];
        for into in into.chunks_mut(PIECE * 4) {
            let from = &mut piece[..into.len() / 4 * self.kind.size()];
            self.file.read_exact_at(from, at).map_err(wrong)?;
            if convert(self.kind, self.big_endian, from, into) {
                let path = self.path.display();
                self.notes.add(format!(
                    "{path}: values beyond the range of float32 are sent as infinite, which counts as missing"
                ));
            }
            at += from.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &mut dyn Source, step: u64, planes: Range<usize>) -> Vec<f32> {
        let mut into = vec![0; source.shape().plane() as usize * 4 * planes.len()];
        source.open(step, &|| true).unwrap().unwrap().read(planes, &mut into).unwrap();
        into.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
    }

    #[test]
    fn steps_go_on_from_file_to_file() {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = ["a", "b"].map(|name| dir.path().join(name).display().to_string()).into();
        let bytes = |range: Range<u32>| range.flat_map(|n| (n as f32).to_le_bytes()).collect::<Vec<u8>>();
        std::fs::write(&names[0], bytes(0..48)).unwrap();
        std::fs::write(&names[1], bytes(48..72)).unwrap();
        let mut source = raw(&names, Some("2,3,4".parse().unwrap())).unwrap();
        assert_eq!((source.steps(), source.name()), (Some(3), "a and 1 more"));
        assert_eq!(read(&mut *source, 0, 0..1), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(read(&mut *source, 2, 3..4), [66.0, 67.0, 68.0, 69.0, 70.0, 71.0]);
        assert!(source.open(3, &|| true).unwrap().is_none());
        let error = raw(&names, Some("2,3,5".parse().unwrap())).err().unwrap().to_string();
        assert!(error.contains("192 bytes") && error.contains("120"), "{error}");
        assert!(raw(&names, None).err().unwrap().to_string().contains("--shape"));
        let pipe = dir.path().join("c.npy");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let error = npy(&[pipe.display().to_string()]).err().unwrap().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        let folder = [dir.path().display().to_string()];
        assert!(raw(&folder, None).err().unwrap().to_string().contains("a directory"));
    }

    #[test]
    fn npy_with_time_in_doubles_of_the_other_byte_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        let text = "{'descr': '>f8', 'fortran_order': False, 'shape': (2, 40, 50, 70), }\n";
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend((0..2 * 40 * 50 * 70).flat_map(|n| f64::from(n).to_be_bytes()));
        std::fs::write(&path, &bytes).unwrap();
        let names = [path.display().to_string()];
        let mut source = npy(&names).unwrap();
        assert_eq!((source.shape().sides(), source.steps()), ((70, 50, 40), Some(2)));
        let expected: Vec<f32> = (3500 * 42..3500 * 80).map(|n| n as f32).collect();
        assert_eq!(read(&mut *source, 1, 2..40), expected);
        let step = source.open(1, &|| true).unwrap().unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        let mut into = vec![0; source.shape().plane() as usize * 4 * 40];
        let error = step.read(0..40, &mut into).unwrap_err().to_string();
        assert!(error.contains("has become shorter"), "{error}");
        let other =
            [bytes[..10].to_vec(), bytes[10..].iter().map(|b| if *b == b'8' { b'4' } else { *b }).collect()];
        std::fs::write(dir.path().join("new"), other.concat()).unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
        let error = source.open(0, &|| true).err().unwrap().to_string();
        assert!(error.contains("replaced"), "{error}");
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(npy(&names).err().unwrap().to_string().contains("truncated"));
    }
}
