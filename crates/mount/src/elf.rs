//! The needs of an ELF file, as the dynamic loader reads them.
//!
//! Promise: any bytes may be given; reading is bounded and never panics.

use object::Endianness;
use object::elf::{
    DF_1_NODEFLIB, DT_AUXILIARY, DT_FILTER, DT_FLAGS_1, DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, DT_SONAME,
    DT_STRTAB, ELFMAG, FileHeader32, FileHeader64, PT_LOAD,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

/// Most entries of the dynamic section that are read.
const MAX_DYNAMIC: usize = 64 << 10;
/// Most bytes of names and paths in all.
const MAX_NAMES: usize = 1 << 20;

/// The data of a program or library that the loader uses, from its program headers alone: a stripped file has
/// no other headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Which machine it is for: a process has one.
    pub machine: Machine,
    /// The loader that the kernel starts (`PT_INTERP`).
    pub interp: Option<Vec<u8>>,
    /// The libraries it needs (`DT_NEEDED`, and filtees), in order.
    pub needed: Vec<Vec<u8>>,
    /// `DT_RPATH`: where this object and those that it brings search, unless there is a `runpath`.
    pub rpath: Option<Vec<u8>>,
    /// `DT_RUNPATH`: where this object searches.
    pub runpath: Option<Vec<u8>>,
    /// The name that a library gives itself.
    pub soname: Option<Vec<u8>>,
    /// Linked with `-z nodefaultlib`: default directories are not searched for it.
    pub no_default_dirs: bool,
}

/// Class, byte order and architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Machine {
    /// 64-bit class.
    pub wide: bool,
    /// Most significant byte first.
    pub big_endian: bool,
    /// `e_machine`.
    pub number: u16,
}

/// Why an ELF file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// It contradicts itself, or ends too early.
    #[error("malformed ELF file: {0}")]
    Malformed(String),
    /// More names than any real file has.
    #[error("malformed ELF file: more than {MAX_DYNAMIC} dynamic entries, or {MAX_NAMES} bytes of names")]
    TooMuch,
}

impl From<object::read::Error> for ElfError {
    fn from(error: object::read::Error) -> Self {
        ElfError::Malformed(error.to_string())
    }
}

impl Needs {
    /// Reads a whole file; `None` if it is not an ELF file.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, ElfError> {
        match bytes.strip_prefix(&ELFMAG) {
            None => Ok(None),
            Some([1, ..]) => read::<FileHeader32<Endianness>>(bytes).map(Some),
            Some(_) => read::<FileHeader64<Endianness>>(bytes).map(Some),
        }
    }
}

fn read<H: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Result<Needs, ElfError> {
    let header = H::parse(bytes)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, bytes)?;
    let mut needs = Needs {
        machine: Machine {
            wide: header.is_class_64(),
            big_endian: header.is_big_endian(),
            number: header.e_machine(endian),
        },
        interp: None,
        needed: Vec::new(),
        rpath: None,
        runpath: None,
        soname: None,
        no_default_dirs: false,
    };
    let mut dynamic = None;
    for segment in segments {
        if needs.interp.is_none() {
            needs.interp = segment.interpreter(endian, bytes)?.map(<[u8]>::to_vec);
        }
        dynamic = dynamic.or(segment.dynamic(endian, bytes)?);
    }
    let Some(dynamic) = dynamic else { return Ok(needs) };
    let dynamic: Vec<(i64, u64)> = dynamic
        .iter()
        .map(|entry| (entry.d_tag(endian).into(), entry.d_val(endian).into()))
        .take_while(|&(tag, _)| tag != DT_NULL)
        .take(MAX_DYNAMIC + 1)
        .collect();
    if dynamic.len() > MAX_DYNAMIC {
        return Err(ElfError::TooMuch);
    }
    let strings = strings::<H>(&dynamic, segments, endian, bytes);
    fill(&mut needs, &dynamic, strings)?;
    Ok(needs)
}

/// The string table of the dynamic section: from its address to the end of the segment that holds it.
fn strings<'a, H: FileHeader<Endian = Endianness>>(
    dynamic: &[(i64, u64)],
    segments: &[H::ProgramHeader],
    endian: Endianness,
    bytes: &'a [u8],
) -> &'a [u8] {
    let address = dynamic.iter().rev().find(|(tag, _)| *tag == DT_STRTAB).map(|&(_, address)| address);
    let table = address.and_then(|address| {
        segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD).find_map(|segment| {
            let offset = address.checked_sub(segment.p_vaddr(endian).into())?;
            segment.data(endian, bytes).ok()?.get(usize::try_from(offset).ok()?..)
        })
    });
    table.unwrap_or_default()
}

/// The entries of the dynamic section.
fn fill(needs: &mut Needs, dynamic: &[(i64, u64)], strings: &[u8]) -> Result<(), ElfError> {
    let mut room = MAX_NAMES;
    let mut string = |at: u64| {
        let tail = usize::try_from(at).ok().and_then(|at| strings.get(at..));
        let tail = tail.ok_or_else(|| ElfError::Malformed("a name is outside the string table".into()))?;
        // No name is longer than the remaining space.
        let tail = &tail[..tail.len().min(room + 1)];
        let end = tail.iter().position(|&b| b == 0);
        let end = end.ok_or_else(|| match tail.len() > room {
            true => ElfError::TooMuch,
            false => ElfError::Malformed("unterminated name".into()),
        })?;
        room -= end;
        Ok::<_, ElfError>(tail[..end].to_vec())
    };
    for &(tag, value) in dynamic {
        match tag {
            DT_NEEDED | DT_AUXILIARY | DT_FILTER => needs.needed.push(string(value)?),
            DT_RPATH => needs.rpath = Some(string(value)?),
            DT_RUNPATH => needs.runpath = Some(string(value)?),
            DT_SONAME => needs.soname = Some(string(value)?),
            DT_FLAGS_1 => needs.no_default_dirs = value & u64::from(DF_1_NODEFLIB) != 0,
            _ => {}
        }
    }
    Ok(())
}
