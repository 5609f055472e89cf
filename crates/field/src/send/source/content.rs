//! The type of a file by its first bytes, whatever its name is.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The type of the file at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// NumPy's .npy.
    Npy,
    /// NetCDF, HDF5, Zarr, .npz, VTK's files: the formats that the Python package reads.
    Science,
    /// Raw values, or nothing that is known.
    Else,
}

/// The files that make a directory a Zarr array or group.
const ZARR: [&str; 3] = ["zarr.json", ".zarray", ".zgroup"];
/// XML of VTK's is recognised within this many bytes.
const XML: usize = 512;
/// HDF5 begins at 0, or at 512 times a power of two, after a user block.
const HDF5: &[u8; 8] = b"\x89HDF\r\n\x1a\n";

pub(super) fn of(path: &Path) -> Content {
    if path.is_dir() {
        let zarr = ZARR.iter().any(|name| path.join(name).is_file());
        return if zarr { Content::Science } else { Content::Else };
    }
    // A pipe or a device is not read before it is sent.
    if !path.is_file() {
        return Content::Else;
    }
    let Ok(file) = File::open(path) else { return Content::Else };
    let mut head = [0; 8];
    let begins = |head: &[u8; 8]| match head {
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Content::Npy,
        [b'C', b'D', b'F', 1 | 2 | 5, ..] | [b'P', b'K', 3, 4, ..] | b"# vtk Da" => Content::Science,
        b"<?xml ve" | b"<VTKFile" if is_vtk(&file) => Content::Science,
        _ => Content::Else,
    };
    for at in std::iter::once(0).chain((0..48).map(|n| 512u64 << n)) {
        if file.read_exact_at(&mut head, at).is_err() {
            break;
        }
        if &head == HDF5 {
            return Content::Science;
        }
        if at == 0 && begins(&head) != Content::Else {
            return begins(&head);
        }
    }
    Content::Else
}

/// The instructions for a file that is often taken for a field but has to be converted first.
pub(super) fn foreign(path: &Path) -> Option<&'static str> {
    if !path.is_file() {
        return None;
    }
    let mut head = [0; 6];
    let read = File::open(path).and_then(|file| file.read_at(&mut head, 0)).ok()?;
    match head.get(..read)? {
        [0x1f, 0x8b, ..] => Some("compressed with gzip; decompress it first (gunzip -k)"),
        [b'B', b'Z', b'h', ..] => Some("compressed with bzip2; decompress it first (bunzip2 -k)"),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Some("compressed with xz; decompress it first (unxz -k)"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("compressed with zstd; decompress it first (unzstd)"),
        [b'G', b'R', b'I', b'B', ..] => {
            Some("GRIB is not supported; convert it to NetCDF first (cdo -f nc copy, grib_to_netcdf)")
        }
        _ => None,
    }
}

/// Whether XML is of VTK's kinds: other XML is not a field.
fn is_vtk(file: &File) -> bool {
    let mut head = [0; XML];
    let read = file.read_at(&mut head, 0).unwrap_or(0);
    String::from_utf8_lossy(&head[..read]).contains("<VTKFile")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wrfout_d01_2026-11-26_00:00:00");
        let behind = |count: usize| [vec![7; count], HDF5.to_vec(), vec![0; 64]].concat();
        for (bytes, content) in [
            (b"CDF\x01".repeat(9), Content::Science),
            (b"CDF\x05".repeat(9), Content::Science),
            (b"CDF\x03".repeat(9), Content::Else),
            (b"PK\x03\x04".repeat(9), Content::Science),
            (behind(0), Content::Science),
            (behind(2048), Content::Science),
            (behind(100), Content::Else),
            (b"\x93NUMPY\x01\x00".to_vec(), Content::Npy),
            (b"\x89HDF".to_vec(), Content::Else),
            (b"# vtk DataFile Version 3.0\n".to_vec(), Content::Science),
            (b"<?xml version=\"1.0\"?>\n<VTKFile type=\"ImageData\">".to_vec(), Content::Science),
            (b"<VTKFile type='PImageData'>".to_vec(), Content::Science),
            (b"<?xml version=\"1.0\"?>\n<html>".to_vec(), Content::Else),
            (Vec::new(), Content::Else),
        ] {
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(of(&path), content, "{bytes:?}");
            assert_eq!(foreign(&path), None, "{bytes:?}");
        }
        for (bytes, word) in [
            (&b"\x1f\x8b\x08\0"[..], "gunzip"),
            (b"BZh91AY", "bunzip2"),
            (b"\xfd7zXZ\0\0", "unxz"),
            (b"\x28\xb5\x2f\xfd\0", "unzstd"),
            (b"GRIB\0\0\0\x02", "NetCDF"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert!(foreign(&path).unwrap().contains(word), "{word}");
        }
        assert_eq!(of(dir.path()), Content::Else);
        std::fs::write(dir.path().join(".zgroup"), "{}").unwrap();
        assert_eq!(of(dir.path()), Content::Science);
        assert_eq!(of(&dir.path().join("none")), Content::Else);
    }
}
