//! Where the dynamic loader of the GNU C library looks for a library.

use object::elf::{EM_386, EM_AARCH64, EM_ARM, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64};

use crate::elf::Machine;

/// Longest directory that is searched: with a name it must be a path.
const MAX_DIR: usize = 4096;

/// Possible values of `$PLATFORM`, and the name of the architecture's own directory below `lib` (Debian's
/// kind).
fn names(machine: Machine) -> (&'static [&'static str], &'static str) {
    match (machine.number, machine.wide) {
        // The first of them on Intel's processors since 2013, the second on all others.
        (EM_X86_64, true) => (&["haswell", "x86_64"], "x86_64-linux-gnu"),
        (EM_X86_64, false) => (&["haswell", "x86_64"], "x86_64-linux-gnux32"),
        (EM_386, _) => (&["i686"], "i386-linux-gnu"),
        (EM_AARCH64, _) => (&["aarch64"], "aarch64-linux-gnu"),
        (EM_ARM, _) => (&["v7l"], "arm-linux-gnueabihf"),
        (EM_PPC64, _) => (&["power9"], "powerpc64le-linux-gnu"),
        (EM_RISCV, _) => (&["riscv64"], "riscv64-linux-gnu"),
        (EM_S390, _) => (&["z14"], "s390x-linux-gnu"),
        _ => (&[""], "unknown-linux-gnu"),
    }
}

/// Possible values of `$LIB`: they depend on how the loader was built.
fn lib_dirs(machine: Machine) -> [String; 3] {
    let (_, triplet) = names(machine);
    let wide = if machine.wide { "lib64" } else { "lib32" };
    [format!("lib/{triplet}"), wide.into(), "lib".into()]
}

/// The directories that are searched by default. `/usr/local` comes from the configuration that the usual
/// distributions share.
pub(crate) fn default_dirs(machine: Machine) -> Vec<Vec<u8>> {
    let libs = lib_dirs(machine);
    let dirs = ["/usr/local/", "/", "/usr/"].into_iter();
    dirs.flat_map(|top| libs.iter().map(move |lib| format!("{top}{lib}").into_bytes())).collect()
}

/// The directories of a search path whose elements are separated by one of `separators`, with `$ORIGIN` and the like
/// expanded. Relative ones depend on where the program will be started, and are left out.
pub(crate) fn dirs(
    path: &[u8],
    separators: &[u8],
    origin: &[u8],
    machine: Machine,
) -> impl Iterator<Item = Vec<u8>> {
    let elements = path.split(|b| separators.contains(b));
    let dirs = elements.flat_map(move |element| expand(element, origin, machine));
    dirs.filter(|dir| dir.starts_with(b"/") && dir.len() <= MAX_DIR)
}

/// A name or directory with `$ORIGIN`, `$LIB` and `$PLATFORM` (or `${ORIGIN}`…) replaced; more than one where it
/// depends on the loader or the processor. Any other `$` stays.
pub(crate) fn expand(text: &[u8], origin: &[u8], machine: Machine) -> Vec<Vec<u8>> {
    if !text.contains(&b'$') {
        return vec![text.to_vec()];
    }
    let libs = lib_dirs(machine);
    let platforms = names(machine).0.iter();
    let mut made = Vec::new();
    for one in platforms.flat_map(|platform| libs.iter().map(|lib| expand_with(text, origin, lib, platform)))
    {
        if !made.contains(&one) {
            made.push(one);
        }
    }
    made
}

fn expand_with(text: &[u8], origin: &[u8], lib: &str, platform: &str) -> Vec<u8> {
    let mut made = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.iter().position(|&b| b == b'$') {
        made.extend(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        let (name, tail) = token(rest);
        let value = match name {
            b"ORIGIN" => origin,
            b"LIB" => lib.as_bytes(),
            b"PLATFORM" => platform.as_bytes(),
            _ => {
                made.push(b'$');
                continue;
            }
        };
        // A hostile text of nothing but `$ORIGIN` must not grow without bound.
        if made.len() > MAX_DIR {
            break;
        }
        made.extend(value);
        rest = tail;
    }
    made.extend(rest);
    made
}

/// The identifier at the start of `text`, in braces or not, and the rest. Empty: no identifier.
fn token(text: &[u8]) -> (&[u8], &[u8]) {
    let bare = text.strip_prefix(b"{");
    let name = bare.unwrap_or(text);
    let end = name.iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'_').unwrap_or(name.len());
    match (bare, name.get(end)) {
        (Some(_), Some(b'}')) => (&name[..end], &name[end + 1..]),
        (Some(_), _) => (&[], text),
        (None, _) => (&name[..end], &name[end..]),
    }
}

/// The subdirectories of `glibc-hwcaps` that the loader of this machine searches, best first.
#[cfg(target_arch = "x86_64")]
pub fn host_hwcaps() -> Vec<String> {
    let v2 = std::is_x86_feature_detected!("cmpxchg16b")
        && std::is_x86_feature_detected!("popcnt")
        && std::is_x86_feature_detected!("sse3")
        && std::is_x86_feature_detected!("ssse3")
        && std::is_x86_feature_detected!("sse4.1")
        && std::is_x86_feature_detected!("sse4.2");
    let v3 = v2
        && std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("bmi1")
        && std::is_x86_feature_detected!("bmi2")
        && std::is_x86_feature_detected!("f16c")
        && std::is_x86_feature_detected!("fma")
        && std::is_x86_feature_detected!("lzcnt")
        && std::is_x86_feature_detected!("movbe");
    let v4 = v3
        && std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512cd")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512vl");
    let levels = [(v4, "x86-64-v4"), (v3, "x86-64-v3"), (v2, "x86-64-v2")];
    levels.into_iter().filter(|(has, _)| *has).map(|(_, name)| name.into()).collect()
}

/// The subdirectories of `glibc-hwcaps` that the loader of this machine searches: not known here.
#[cfg(not(target_arch = "x86_64"))]
pub fn host_hwcaps() -> Vec<String> {
    Vec::new()
}
