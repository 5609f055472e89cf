//! Embeds the built page (`web/dist`, by `scripts/web`) in the program; without it, a page with the
//! instructions to build it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../web");
    let dist = root.join("dist");
    let mut files = Vec::new();
    if dist.is_dir() {
        walk(&dist, &mut files)?;
        println!("cargo:rerun-if-changed={}", dist.display());
    }
    // A missing file counts as changed each time: its folder changes when it is created.
    println!("cargo:rerun-if-changed={}", root.display());
    files.sort();
    let mut text = String::from("/// Path, content.\npub(crate) static FILES: &[(&str, &[u8])] = &[\n");
    for file in &files {
        let name = file.strip_prefix(&dist).unwrap_or(file).display().to_string();
        let path = fs::canonicalize(file)?.display().to_string();
        writeln!(text, "    ({name:?}, include_bytes!({path:?})),").map_err(io::Error::other)?;
    }
    text.push_str("];\n");
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("files.rs"), text)
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() { walk(&path, files)? } else { files.push(path) }
    }
    Ok(())
}
