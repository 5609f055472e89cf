//! The closure equals the files that the loader of this machine loads: the tests compile programs and
//! libraries, and compare with the loader's own list.
#![allow(clippy::unwrap_used)]

use std::borrow::Cow;
use std::cell::RefCell;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::search::host_hwcaps;
use crate::walk::{Node, ROOT};
use proptest::prelude::*;

/// A directory of this machine as a tree; one index for all names of a file.
struct Disk {
    dirs: RefCell<Vec<PathBuf>>,
    files: RefCell<Vec<(u64, PathBuf)>>,
}

impl Disk {
    fn new(root: &Path) -> Self {
        // Their numbers are their places here.
        let dirs = vec![PathBuf::new(), root.to_path_buf()];
        Disk { dirs: RefCell::new(dirs), files: RefCell::default() }
    }

    fn path(&self, file: u32) -> PathBuf {
        self.files.borrow()[file as usize].1.clone()
    }
}

impl Tree for Disk {
    fn child(&self, dir: u64, name: &[u8]) -> Option<Node<'_>> {
        let path = self.dirs.borrow()[dir as usize].join(std::ffi::OsStr::from_bytes(name));
        let metadata = fs::symlink_metadata(&path).ok()?;
        if metadata.is_symlink() {
            return Some(Node::Symlink(Cow::Owned(fs::read_link(path).unwrap().into_os_string().into_vec())));
        }
        if metadata.is_dir() {
            let mut dirs = self.dirs.borrow_mut();
            let at = dirs.iter().position(|dir| *dir == path).unwrap_or_else(|| {
                dirs.push(path);
                dirs.len() - 1
            });
            return Some(Node::Dir(at as u64));
        }
        let mut files = self.files.borrow_mut();
        let at = files.iter().position(|(inode, _)| *inode == metadata.ino()).unwrap_or_else(|| {
            files.push((metadata.ino(), path));
            files.len() - 1
        });
        Some(Node::File(at as u32))
    }
}

fn environment(prefix: &Path, library_path: &str) -> Environment {
    Environment {
        prefix: prefix.as_os_str().as_bytes().to_vec(),
        library_path: library_path.into(),
        path: Vec::new(),
        hwcaps: host_hwcaps(),
    }
}

/// The closure of some programs, as canonical paths, and how many times bytes were asked for.
fn closure(root: &Path, environment: Environment, programs: &[&str]) -> (Vec<PathBuf>, Vec<String>, usize) {
    let disk = Disk::new(root);
    let programs = programs.iter().map(|p| p.as_bytes().to_vec()).collect();
    let mut closure = Closure::new(&disk, environment, programs);
    let mut rounds = 0;
    loop {
        let wanted = closure.wanted();
        if wanted.is_empty() {
            break;
        }
        for file in wanted {
            closure.give(file, &fs::read(disk.path(file)).unwrap());
        }
        rounds += 1;
    }
    assert!(!closure.is_cut_short());
    let files = closure.files().iter().map(|&file| disk.path(file).canonicalize().unwrap()).collect();
    (files, closure.outside().iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect(), rounds)
}

/// The files below `root` that the loader maps for a program, in order; the program itself comes first.
fn truth(root: &Path, program: &Path, library_path: &str) -> Vec<PathBuf> {
    let output = Command::new(program)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .env("LD_LIBRARY_PATH", library_path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut files = vec![program.canonicalize().unwrap()];
    for line in text.lines() {
        assert!(!line.contains("not found"), "the test's own tree is broken: {text}");
        let path = line.split(" (0x").next().unwrap().split("=> ").last().unwrap().trim();
        if path.starts_with('/') {
            files.push(Path::new(path).canonicalize().unwrap());
        }
    }
    files.retain(|file| file.starts_with(root));
    files
}

/// Makes programs and libraries in a directory of its own.
struct Lab {
    dir: tempfile::TempDir,
    root: PathBuf,
}

impl Lab {
    /// `None`, with a message, if there is no compiler.
    fn new() -> Option<Self> {
        if !Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED: no C compiler (cc) here; the closure was not compared with the loader");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("env");
        Some(Lab { dir, root })
    }

    fn cc(&self, out: &str, source: &str, shared: bool, needs: &[&str], flags: &[&str]) {
        let out = self.root.join(out);
        fs::create_dir_all(out.parent().unwrap()).unwrap();
        let c = self.dir.path().join("a.c");
        fs::write(&c, source).unwrap();
        let mut cc = Command::new("cc");
        if shared {
            cc.args(["-shared", "-fPIC", "-nostdlib"]);
        }
        cc.arg("-Wl,--no-as-needed,--allow-shlib-undefined,-z,lazy").arg("-o").arg(&out).arg(&c);
        cc.args(needs.iter().map(|lib| self.root.join(lib)));
        cc.args(flags.iter().map(|flag| flag.replace("@", self.root.to_str().unwrap())));
        let output = cc.output().unwrap();
        assert!(output.status.success(), "{cc:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A library; its soname is its file name.
    fn lib(&self, path: &str, needs: &[&str], flags: &[&str]) {
        let soname = format!("-Wl,-soname,{}", path.rsplit('/').next().unwrap());
        self.cc(path, "int x;", true, needs, &[flags, &[&soname]].concat());
    }

    fn program(&self, path: &str, needs: &[&str], flags: &[&str]) {
        self.cc(path, "int main() { return 0; }", false, needs, flags);
    }

    fn link(&self, to: &str, path: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }

    /// The closure of a program must equal the loader's list: these files, in this order.
    fn same(&self, program: &str, library_path: &str, want: &[&str]) {
        let library_path = library_path.replace("@", self.root.to_str().unwrap());
        let (files, ..) = closure(&self.root, environment(&self.root, &library_path), &[program]);
        let names = |files: &[PathBuf]| -> Vec<String> {
            files.iter().map(|f| f.strip_prefix(&self.root).unwrap().to_str().unwrap().to_owned()).collect()
        };
        let truth = names(&truth(&self.root, &self.root.join(program), &library_path));
        assert_eq!(names(&files), truth, "{program} (left: ours, right: the loader's)");
        assert_eq!(truth, want, "{program}: the test expects other files than the loader");
    }
}

const RPATH: &str = "-Wl,--disable-new-dtags";
const RUNPATH: &str = "-Wl,--enable-new-dtags";

#[test]
fn rpath_reaches_those_below_and_runpath_does_not() {
    let Some(lab) = Lab::new() else { return };
    lab.lib("one/libdeep.so.1", &[], &[]);
    lab.lib("two/libdeep.so.1", &[], &[]);
    lab.lib("one/libmid.so", &["one/libdeep.so.1"], &[]);
    // The RPATH of the program applies to the needs of its library.
    lab.program("bin/rpath", &["one/libmid.so"], &[RPATH, "-Wl,-rpath,$ORIGIN/../one"]);
    lab.same("bin/rpath", "", &["bin/rpath", "one/libmid.so", "one/libdeep.so.1"]);
    // RPATH comes before LD_LIBRARY_PATH, which comes before RUNPATH.
    lab.same("bin/rpath", "@/two", &["bin/rpath", "one/libmid.so", "one/libdeep.so.1"]);
    lab.program("bin/runpath", &["one/libmid.so"], &[RUNPATH, "-Wl,-rpath,$ORIGIN/../one"]);
    lab.same("bin/runpath", "@/two", &["bin/runpath", "one/libmid.so", "two/libdeep.so.1"]);
    // A library with a RUNPATH of its own ignores every RPATH.
    lab.lib("three/libown.so", &["one/libdeep.so.1"], &[RUNPATH, "-Wl,-rpath,@/two"]);
    lab.program("bin/own", &["three/libown.so"], &[RPATH, "-Wl,-rpath,@/one:@/three"]);
    lab.same("bin/own", "", &["bin/own", "three/libown.so", "two/libdeep.so.1"]);
    // The RPATH of the library itself comes before that of the program; empty and relative elements lead nowhere.
    lab.lib("three/libmine.so", &["one/libdeep.so.1"], &[RPATH, "-Wl,-rpath,::nowhere:@/two"]);
    lab.program("bin/mine", &["three/libmine.so"], &[RPATH, "-Wl,-rpath,@/one:@/three"]);
    lab.same("bin/mine", "", &["bin/mine", "three/libmine.so", "two/libdeep.so.1"]);
}

#[test]
fn breadth_comes_before_depth_and_each_is_loaded_once() {
    let Some(lab) = Lab::new() else { return };
    lab.lib("lib/libd.so", &[], &[]);
    lab.lib("lib/libc1.so", &["lib/libd.so"], &[]);
    lab.lib("lib/libb.so", &["lib/libc1.so"], &[]);
    lab.lib("lib/liba.so", &["lib/libb.so", "lib/libd.so"], &[]);
    lab.lib("lib/libe.so", &["lib/libb.so"], &[]);
    lab.program("bin/p", &["lib/liba.so", "lib/libe.so"], &[RPATH, "-Wl,-rpath,${ORIGIN}/../lib"]);
    let want = ["bin/p", "lib/liba.so", "lib/libe.so", "lib/libb.so", "lib/libd.so", "lib/libc1.so"];
    lab.same("bin/p", "", &want);
    // The files of one level are asked for together.
    let (.., rounds) = closure(&lab.root, environment(&lab.root, ""), &["bin/p"]);
    assert_eq!(rounds, 4);
    // Two programs: the additional needs of the second come after those of the first.
    lab.program("bin/q", &["lib/libd.so", "lib/libe.so"], &[RPATH, "-Wl,-rpath,$ORIGIN/../lib"]);
    let (files, ..) = closure(&lab.root, environment(&lab.root, ""), &["bin/p", "q", "bin/p", "none"]);
    let want: Vec<_> = want.iter().chain(&["bin/q"]).map(|file| lab.root.join(file)).collect();
    assert_eq!(files, want);
}

#[test]
fn sonames_paths_and_symlinks() {
    let Some(lab) = Lab::new() else { return };
    // Found under the name of a symlink, known by another soname afterwards.
    lab.cc("lib/libreal.so.1.2", "int x;", true, &[], &["-Wl,-soname,libother.so.9"]);
    lab.link("libreal.so.1.2", "lib/libreal.so");
    lab.cc("lib/libfirst.so", "int x;", true, &[], &["-Wl,-soname,libreal.so"]);
    lab.program("bin/p", &["lib/libfirst.so"], &[RUNPATH, "-Wl,-rpath,$ORIGIN/../lib"]);
    lab.same("bin/p", "", &["bin/p", "lib/libreal.so.1.2"]);
    // The soname of a loaded library satisfies a need, from whichever directory it was loaded; so does the
    // same file by a link.
    lab.lib("hidden/libother.so.9", &[], &[]);
    lab.link("libreal.so.1.2", "lib/libalias.so");
    lab.cc("lib/liblast.so", "int x;", true, &[], &["-Wl,-soname,libalias.so"]);
    let needs = ["lib/libfirst.so", "hidden/libother.so.9", "lib/liblast.so"];
    lab.program("bin/q", &needs, &[RPATH, "-Wl,-rpath,$ORIGIN/../lib:$ORIGIN/../hidden"]);
    lab.same("bin/q", "", &["bin/q", "lib/libreal.so.1.2"]);
    // $ORIGIN of a program is where it really lies, that of a library is where it was found.
    lab.lib("pkg/dep/libdep.so", &[], &[]);
    lab.lib("lib/dep/libdep.so", &[], &[]);
    lab.lib("pkg/libpkg.so", &["pkg/dep/libdep.so"], &[RUNPATH, "-Wl,-rpath,$ORIGIN/dep"]);
    lab.program("pkg/bin/r", &["pkg/libpkg.so"], &[RUNPATH, "-Wl,-rpath,$ORIGIN/../../lib"]);
    lab.link("../pkg/libpkg.so", "lib/libpkg.so");
    lab.link("../pkg/bin/r", "bin/r");
    lab.same("bin/r", "", &["pkg/bin/r", "pkg/libpkg.so", "lib/dep/libdep.so"]);
    // A need with a `/` is a path, in which $ORIGIN is expanded; libraries without a soname are needed by
    // path.
    lab.cc("odd/libpath.so", "int x;", true, &[], &["-Wl,-soname,$ORIGIN/../odd/libpath.so"]);
    lab.cc("odd/libabsolute.so", "int x;", true, &[], &[]);
    lab.program("bin/s", &["odd/libpath.so", "odd/libabsolute.so"], &[]);
    lab.same("bin/s", "", &["bin/s", "odd/libpath.so", "odd/libabsolute.so"]);
}

#[test]
fn what_does_not_fit_is_passed_over() {
    let Some(lab) = Lab::new() else { return };
    lab.lib("good/libx.so", &[], &[]);
    lab.program("bin/p", &["good/libx.so"], &[]);
    // Another machine, and another class: the first bytes of a real one, changed.
    let good = fs::read(lab.root.join("good/libx.so")).unwrap();
    for (dir, at, value) in [("machine", 18, 8), ("class", 4, 3 - good[4])] {
        let mut bad = good.clone();
        bad[at] = value;
        fs::create_dir_all(lab.root.join(dir)).unwrap();
        fs::write(lab.root.join(dir).join("libx.so"), bad).unwrap();
        let path = format!("{0}/none:{0}/{dir};{0}/good", lab.root.display());
        let (mut files, ..) = closure(&lab.root, environment(&lab.root, &path), &["bin/p"]);
        // The loader has opened the one that does not fit.
        assert_eq!(files.remove(1), lab.root.join(dir).join("libx.so"));
        assert_eq!(files, truth(&lab.root, &lab.root.join("bin/p"), &path));
        assert_eq!(files[1], lab.root.join("good/libx.so"));
    }
    // Unavailable files are skipped as well.
    let disk = Disk::new(&lab.root);
    let path = format!("{0}/class:{0}/good", lab.root.display());
    let mut closure = Closure::new(&disk, environment(&lab.root, &path), vec![b"bin/p".to_vec()]);
    let program = closure.wanted();
    closure.give(program[0], &fs::read(disk.path(program[0])).unwrap());
    let first = closure.wanted();
    closure.lost(first[0]);
    let second = closure.wanted();
    assert_eq!(disk.path(second[0]), lab.root.join("good/libx.so"));
    closure.lost(second[0]);
    assert!(closure.wanted().is_empty());
    assert_eq!(closure.files(), [program[0], first[0], second[0]]);
}

#[test]
fn the_best_variant_for_the_cpu_is_taken() {
    let Some(lab) = Lab::new() else { return };
    lab.lib("lib/libx.so", &[], &[]);
    lab.program("bin/p", &["lib/libx.so"], &[RUNPATH, "-Wl,-rpath,$ORIGIN/../lib"]);
    let mut want = "lib/libx.so".to_owned();
    for level in ["x86-64-v2", "x86-64-v3", "x86-64-v4"] {
        let variant = format!("lib/glibc-hwcaps/{level}/libx.so");
        lab.lib(&variant, &[], &[]);
        if host_hwcaps().contains(&level.to_owned()) {
            want = variant;
        }
        lab.same("bin/p", "", &["bin/p", &want]);
    }
}

/// The value of `$PLATFORM` on this machine: on some processors not the architecture's name.
fn platform() -> String {
    let loader = format!("/lib64/ld-linux-{}.so.2", std::env::consts::ARCH.replace('_', "-"));
    let says = Command::new(loader)
        .arg("--list-diagnostics")
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    let says = String::from_utf8_lossy(&says);
    let line = says.lines().find_map(|line| line.strip_prefix("dl_platform=\"")?.strip_suffix('"'));
    line.unwrap_or(std::env::consts::ARCH).to_owned()
}

#[test]
fn tokens_are_expanded() {
    let Some(lab) = Lab::new() else { return };
    let platform = platform();
    for (flag, dir) in [
        ("$ORIGIN/../a", "a"),
        ("${ORIGIN}x/../b", "binx/../b"),
        ("@/$PLATFORM", &platform),
        ("@/${PLATFORM}/c", &format!("{platform}/c")),
    ] {
        fs::create_dir_all(lab.root.join("binx")).unwrap();
        lab.lib(&format!("{dir}/libx.so"), &[], &[]);
        lab.program("bin/p", &[&format!("{dir}/libx.so")], &[RUNPATH, &format!("-Wl,-rpath,{flag}")]);
        let real = dir.trim_start_matches("binx/../");
        lab.same("bin/p", "", &["bin/p", &format!("{real}/libx.so")]);
    }
    // $LIB depends on how the loader was built; whatever it is here is among ours.
    for dir in ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib"] {
        lab.lib(&format!("{dir}/libl.so"), &[], &[]);
    }
    lab.program("bin/l", &["lib/libl.so"], &[RUNPATH, "-Wl,-rpath,$ORIGIN/../$LIB"]);
    let truth = truth(&lab.root, &lab.root.join("bin/l"), "");
    assert_eq!(truth.len(), 2);
    fs::remove_dir_all(lab.root.join("lib64")).unwrap();
    let (files, ..) = closure(&lab.root, environment(&lab.root, ""), &["bin/l"]);
    assert_eq!(files[0], truth[0]);
    assert!(files[1].starts_with(lab.root.join("lib")));
}

#[test]
fn scripts_and_programs_of_the_host() {
    let Some(lab) = Lab::new() else { return };
    lab.lib("lib/libx.so", &[], &[]);
    lab.program("bin/tool", &["lib/libx.so"], &[RUNPATH, "-Wl,-rpath,@/lib"]);
    let script = |path: &str, text: &str| {
        fs::write(lab.root.join(path), text.replace("@", lab.root.to_str().unwrap())).unwrap();
    };
    script("bin/a", "#!@/bin/tool -x\n");
    script("bin/b", "#!/usr/bin/env tool\n");
    script("bin/c", "#!@/bin/a\n");
    script("bin/loop", "#!@/bin/loop\n");
    let files = |program| {
        let (files, outside, _) = closure(&lab.root, environment(&lab.root, ""), &[program]);
        let names: Vec<_> =
            files.iter().map(|f| f.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        (names.join(" "), outside)
    };
    assert_eq!(files("bin/a").0, "a tool libx.so");
    assert_eq!(files("bin/b").0, "b tool libx.so");
    assert_eq!(files("bin/b").1[0], "/usr/bin/env");
    assert_eq!(files("c").0, "c a tool libx.so");
    assert_eq!(files("loop").0, "loop");
    assert_eq!(files("/bin/none"), (String::new(), vec!["/bin/none".to_owned()]));
    // The C library is the host's here.
    assert!(files("tool").1.iter().any(|name| name.starts_with("libc.so")));
    // The paper's own case: the program is the host's, its libraries are in the tree.
    let disk = Disk::new(&lab.root);
    let mut closure = Closure::new(&disk, environment(&lab.root, ""), Vec::new());
    closure.add_host_program(b"/home/me/tool", &fs::read(lab.root.join("bin/tool")).unwrap());
    let wanted = closure.wanted();
    assert_eq!(disk.path(wanted[0]), lab.root.join("lib/libx.so"));
    closure.lost(wanted[0]);
    assert_eq!((closure.wanted(), closure.files()), (Vec::new(), &wanted[..]));
}

#[test]
fn a_malformed_file_needs_nothing() {
    let Some(lab) = Lab::new() else { return };
    lab.program("bin/p", &[], &[RUNPATH, "-Wl,-rpath,$ORIGIN/../lib"]);
    let good = fs::read(lab.root.join("bin/p")).unwrap();
    let needs = Needs::parse(&good).unwrap().unwrap();
    assert_eq!(needs.runpath.as_deref(), Some(&b"$ORIGIN/../lib"[..]));
    assert!(needs.interp.is_some() && needs.machine.wide == cfg!(target_pointer_width = "64"));
    assert_eq!(Needs::parse(b"#!/bin/sh"), Ok(None));
    assert_eq!(Needs::parse(b""), Ok(None));
    // Cut anywhere in its headers it is an error, whatever else it is anything but a panic.
    for len in 4..good.len() {
        let got = Needs::parse(&good[..len]);
        assert!(len > 400 || got.is_err(), "{len}");
    }
    // A byte off in memory is the same file.
    let shifted = [&[0], &good[..]].concat();
    assert_eq!(Needs::parse(&shifted[1..]).unwrap().unwrap(), needs);
}

proptest! {
    #[test]
    fn any_change_of_a_file_is_read_or_refused(
        changes in proptest::collection::vec((0usize..2000, any::<u8>()), 1..20)
    ) {
        // The test's own program will do.
        let mut bytes = fs::read("/proc/self/exe").unwrap()[..4096].to_vec();
        for (at, value) in changes {
            bytes[at % 4096] = value;
        }
        let _ = Needs::parse(&bytes);
    }
}

/// A tree in which every directory has every name, and every file is the same library that needs ever more.
struct Endless;

impl Tree for Endless {
    fn child(&self, dir: u64, name: &[u8]) -> Option<Node<'_>> {
        let hash = name.iter().fold(dir as u32, |hash, b| hash.wrapping_mul(31).wrapping_add(u32::from(*b)));
        Some(if name.starts_with(b"d") { Node::Dir(ROOT) } else { Node::File(hash) })
    }
}

#[test]
fn the_work_is_bounded() {
    let needs = |file: u32| Needs {
        machine: Machine { wide: true, big_endian: false, number: 62 },
        interp: None,
        needed: (0..3).map(|i| format!("{file}-{i}").into_bytes()).collect(),
        rpath: Some(b"/d:".repeat(100_000)),
        runpath: None,
        soname: None,
        no_default_dirs: false,
    };
    let environment = Environment { prefix: b"/".to_vec(), ..Environment::default() };
    let mut closure = Closure::new(Endless, environment, vec![b"/d/first".to_vec()]);
    let mut made = 0;
    loop {
        let wanted = closure.wanted();
        if wanted.is_empty() {
            break;
        }
        for file in wanted {
            made += 1;
            closure.known.insert(file, Content::Elf(needs(file)));
        }
    }
    assert!(closure.is_cut_short() && made > 10, "{made}");
}
