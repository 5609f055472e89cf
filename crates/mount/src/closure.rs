//! The ELF closure: every file of a tree that the kernel and the dynamic loader read to start given programs.
//!
//! Pure: the bytes of a file must perhaps be fetched first, so the caller is asked for them, many files at a time:
//!
//! ```text
//! loop { let wanted = closure.wanted(); if wanted.is_empty() { break }  for file in wanted { closure.give(file, &bytes) } }
//! closure.files()
//! ```
//!
//! Each [`Closure::wanted`] walks the whole closure from the programs on, breadth first as the loader does,
//! and assumes that an unknown file is a fitting library without needs of its own. So the files of a level
//! are requested together, and the last walk, without unknown files, is exact. The rules are those of the GNU
//! C library. Files outside the tree (the host's) are not read: a library that the host has in a directory
//! searched earlier is not noticed, which costs one unneeded prefetch. `/etc/ld.so.cache` is not read either:
//! the files that it names are on the host, unless an administrator has entered the mount point there;
//! libraries found only through it are fetched when they are opened.

use std::collections::{HashMap, HashSet};

use crate::elf::{Machine, Needs};
use crate::script;
use crate::search::{default_dirs, dirs, expand};
use crate::walk::{Found, Tree, find};

/// Most paths that are looked up in all: no real closure needs a tenth of it, a hostile one ends.
const MAX_LOOKUPS: u64 = 10_000_000;
/// Most directories of one RPATH or RUNPATH that are searched.
const MAX_DIRS: usize = 4096;
/// Deepest chain of scripts that are interpreters of scripts.
const MAX_SCRIPTS: u32 = 5;

/// The environment in which the programs are started.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// Where the tree is mounted: an absolute path.
    pub prefix: Vec<u8>,
    /// `LD_LIBRARY_PATH`.
    pub library_path: Vec<u8>,
    /// `PATH`, for programs without `/`. The tree's own `bin` is searched after it.
    pub path: Vec<u8>,
    /// Subdirectories of `glibc-hwcaps` that the CPU is good for, best first: [`host_hwcaps`](crate::search::host_hwcaps).
    pub hwcaps: Vec<String>,
}

/// The closure of some programs, while it is found out.
#[derive(Debug)]
pub struct Closure<T> {
    tree: T,
    environment: Environment,
    programs: Vec<Vec<u8>>,
    /// Programs of the host, and where they lie.
    host_programs: Vec<(Vec<u8>, Content)>,
    known: HashMap<u32, Content>,
    lookups_left: u64,
    outcome: Outcome,
}

/// The content of a file, as far as it is known.
#[derive(Debug)]
enum Content {
    Elf(Needs),
    Script(Vec<Vec<u8>>),
    Other,
}

/// The result of a walk.
#[derive(Debug, Default)]
struct Outcome {
    files: Vec<u32>,
    files_seen: HashSet<u32>,
    outside: Vec<Vec<u8>>,
    outside_seen: HashSet<Vec<u8>>,
}

impl<T: Tree> Closure<T> {
    /// The closure of `programs`: absolute paths below the prefix, paths below the published directory (`bin/tool`), or
    /// bare names along `PATH`. Libraries may be among them.
    pub fn new(tree: T, environment: Environment, programs: Vec<Vec<u8>>) -> Self {
        Self {
            tree,
            environment,
            programs,
            host_programs: Vec::new(),
            known: HashMap::new(),
            lookups_left: MAX_LOOKUPS,
            outcome: Outcome::default(),
        }
    }

    /// Adds a program that lies outside the tree (at an absolute path without symlinks) and may need libraries in it.
    pub fn add_host_program(&mut self, path: &[u8], bytes: &[u8]) {
        self.host_programs.push((path.to_vec(), Content::of(bytes)));
    }

    /// The files whose bytes are needed next, each once; answer with [`Closure::give`] or [`Closure::lost`].
    /// An empty list: the closure is complete.
    pub fn wanted(&mut self) -> Vec<u32> {
        let mut walk = Walk {
            tree: &self.tree,
            environment: &self.environment,
            known: &self.known,
            lookups_left: self.lookups_left,
            outcome: Outcome::default(),
        };
        for (path, content) in &self.host_programs {
            walk.start(content, None, path, 0);
        }
        for program in &self.programs {
            walk.program(program, 0);
        }
        self.lookups_left = walk.lookups_left;
        self.outcome = walk.outcome;
        if self.is_cut_short() {
            return Vec::new();
        }
        // Whatever is opened is also read.
        self.outcome.files.iter().copied().filter(|file| !self.known.contains_key(file)).collect()
    }

    /// The whole content of a file that was wanted.
    pub fn give(&mut self, file: u32, bytes: &[u8]) {
        self.known.insert(file, Content::of(bytes));
    }

    /// A wanted file is not available; the closure continues without its needs.
    pub fn lost(&mut self, file: u32) {
        self.known.insert(file, Content::Other);
    }

    /// The files of the closure as of the last [`Closure::wanted`], in the order in which they are opened. Those that
    /// the loader opens and rejects (libraries for another machine) are among them.
    pub fn files(&self) -> &[u32] {
        &self.outcome.files
    }

    /// Programs and libraries that are not in the tree: the host must have them.
    pub fn outside(&self) -> &[Vec<u8>] {
        &self.outcome.outside
    }

    /// Whether the walk ended early because no real closure is so large.
    pub fn is_cut_short(&self) -> bool {
        self.lookups_left == 0
    }
}

impl Content {
    fn of(bytes: &[u8]) -> Self {
        match Needs::parse(bytes) {
            Ok(Some(needs)) => Content::Elf(needs),
            // The loader refuses a malformed file, but reads it first.
            Err(_) => Content::Other,
            Ok(None) => match script::interpreters(bytes) {
                programs if programs.is_empty() => Content::Other,
                programs => Content::Script(programs),
            },
        }
    }
}

impl Outcome {
    fn open(&mut self, file: u32) {
        if self.files_seen.insert(file) {
            self.files.push(file);
        }
    }

    fn missing(&mut self, name: &[u8]) {
        if self.outside_seen.insert(name.to_vec()) {
            self.outside.push(name.to_vec());
        }
    }
}

/// One walk from the programs on.
struct Walk<'a, T> {
    tree: &'a T,
    environment: &'a Environment,
    known: &'a HashMap<u32, Content>,
    lookups_left: u64,
    outcome: Outcome,
}

/// One process, as far as the loader has got with it.
struct Process<'a> {
    machine: Machine,
    objects: Vec<Object<'a>>,
    /// Names that are loaded: as asked for, and sonames. `None` is outside the tree.
    names: HashMap<Vec<u8>, Option<usize>>,
    files: HashMap<u32, usize>,
}

/// A program or library that is loaded.
struct Object<'a> {
    needs: Option<&'a Needs>,
    origin: Vec<u8>,
    /// Which object it was loaded for first.
    loader: Option<usize>,
}

impl<'a> Process<'a> {
    /// A file was mapped under a name: it may have been there already.
    fn add(&mut self, name: &[u8], file: Option<u32>, object: Object<'a>) {
        let next = self.objects.len();
        let at = file.map_or(next, |file| *self.files.entry(file).or_insert(next));
        self.names.entry(name.to_vec()).or_insert(Some(at));
        if at == next {
            if let Some(soname) = object.needs.and_then(|needs| needs.soname.clone()) {
                self.names.entry(soname).or_insert(Some(at));
            }
            self.objects.push(object);
        }
    }

    /// The directories where a library that object `at` needs is searched, in order.
    fn search_path(&self, at: usize, environment: &Environment) -> Vec<Vec<u8>> {
        let mut path = Vec::new();
        let object = &self.objects[at];
        let runpath = object.needs.and_then(|needs| needs.runpath.as_ref());
        let mut chain = if runpath.is_none() { Some(object) } else { None };
        while let Some(object) = chain.filter(|_| path.len() < MAX_DIRS) {
            let needs = object.needs.filter(|needs| needs.runpath.is_none());
            if let Some(rpath) = needs.and_then(|needs| needs.rpath.as_ref()) {
                path.extend(dirs(rpath, b":", &object.origin, self.machine).take(MAX_DIRS));
            }
            chain = object.loader.map(|loader| &self.objects[loader]);
        }
        path.extend(dirs(&environment.library_path, b":;", &self.objects[0].origin, self.machine));
        if let Some(runpath) = runpath {
            path.extend(dirs(runpath, b":", &object.origin, self.machine).take(MAX_DIRS));
        }
        if !object.needs.is_some_and(|needs| needs.no_default_dirs) {
            path.extend(default_dirs(self.machine));
        }
        path
    }
}

impl<'a, T: Tree> Walk<'a, T> {
    /// A program is started.
    fn program(&mut self, name: &[u8], scripts: u32) {
        let Some(found) = self.find_program(name) else { return self.outcome.missing(name) };
        self.outcome.open(found.file);
        if let Some(content) = self.known.get(&found.file) {
            self.start(content, Some(found.file), &found.path, scripts);
        }
    }

    fn start(&mut self, content: &'a Content, file: Option<u32>, path: &[u8], scripts: u32) {
        match content {
            Content::Elf(needs) => self.process(needs, file, path),
            Content::Script(programs) if scripts < MAX_SCRIPTS => {
                for program in programs {
                    self.program(program, scripts + 1);
                }
            }
            _ => {}
        }
    }

    fn find_program(&mut self, name: &[u8]) -> Option<Found> {
        if name.starts_with(b"/") {
            return self.find(name);
        }
        let prefix = &self.environment.prefix;
        if name.contains(&b'/') {
            return self.find(&join(prefix, name));
        }
        let path = self.environment.path.split(|&b| b == b':').filter(|dir| dir.starts_with(b"/"));
        let path: Vec<_> = path.map(|dir| join(dir, name)).collect();
        let inside = [join(&join(prefix, b"bin"), name), join(prefix, name)];
        path.iter().chain(&inside).find_map(|path| self.find(path))
    }

    /// All that a process of a program maps before its own first line runs.
    fn process(&mut self, needs: &'a Needs, file: Option<u32>, path: &[u8]) {
        let mut process = Process {
            machine: needs.machine,
            objects: Vec::new(),
            names: HashMap::new(),
            files: HashMap::new(),
        };
        process.add(path, file, Object { needs: Some(needs), origin: parent(path), loader: None });
        if let Some(interp) = &needs.interp {
            self.interpreter(&mut process, interp);
        }
        let mut at = 0;
        while let Some(object) = process.objects.get(at) {
            let origin = object.origin.clone();
            let needed = object.needs.map(|needs| needs.needed.as_slice()).unwrap_or_default();
            let (machine, mut path) = (process.machine, None);
            for name in needed.iter().flat_map(|name| expand(name, &origin, machine)) {
                if self.spend(1) && !process.names.contains_key(&name) {
                    self.library(&mut process, at, name, &mut path);
                }
            }
            at += 1;
        }
    }

    /// The loader itself: libraries need it too, by its bare name.
    fn interpreter(&mut self, process: &mut Process<'a>, path: &[u8]) {
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        match self.find(path) {
            None => {
                self.outcome.missing(path);
                process.names.insert(name.to_vec(), None);
            }
            Some(found) => {
                self.outcome.open(found.file);
                let needs = self.needs(found.file);
                let object = Object { needs, origin: parent(path), loader: None };
                process.add(path, Some(found.file), object);
                let at = process.files.get(&found.file).copied();
                process.names.insert(name.to_vec(), at);
            }
        }
    }

    /// Loads a library that object `at` needs and that is not there yet. `path` keeps the directories for the next.
    fn library(
        &mut self,
        process: &mut Process<'a>,
        at: usize,
        name: Vec<u8>,
        path: &mut Option<Vec<Vec<u8>>>,
    ) {
        if name.contains(&b'/') {
            if !self.try_load(process, at, &name, &name) {
                self.outcome.missing(&name);
                process.names.insert(name, None);
            }
            return;
        }
        if path.is_none() {
            let dirs = process.search_path(at, self.environment);
            self.spend(dirs.len() as u64);
            *path = Some(dirs);
        }
        let environment = self.environment;
        for dir in path.iter().flatten() {
            let hwcaps = environment.hwcaps.iter().map(|level| format!("glibc-hwcaps/{level}"));
            for sub in hwcaps.chain([String::new()]) {
                let candidate = join(&join(dir, sub.as_bytes()), &name);
                if self.try_load(process, at, &name, &candidate) {
                    return;
                }
            }
        }
        self.outcome.missing(&name);
        process.names.insert(name, None);
    }

    /// Loads a library from this path, if there is one that fits the machine.
    fn try_load(&mut self, process: &mut Process<'a>, at: usize, name: &[u8], path: &[u8]) -> bool {
        let Some(found) = self.find(path) else { return false };
        self.outcome.open(found.file);
        let needs = self.needs(found.file);
        let fits = match (needs, self.known.contains_key(&found.file)) {
            (Some(needs), _) => needs.machine == process.machine,
            // Not known yet: it probably does.
            (None, known) => !known,
        };
        if fits {
            process.add(name, Some(found.file), Object { needs, origin: parent(path), loader: Some(at) });
        }
        fits
    }

    /// The needs of a file, if they are known.
    fn needs(&self, file: u32) -> Option<&'a Needs> {
        match self.known.get(&file) {
            Some(Content::Elf(needs)) => Some(needs),
            _ => None,
        }
    }

    /// Counts work against its bound; false when it is used up.
    fn spend(&mut self, lookups: u64) -> bool {
        self.lookups_left = self.lookups_left.saturating_sub(lookups);
        self.lookups_left > 0
    }

    fn find(&mut self, path: &[u8]) -> Option<Found> {
        if self.spend(1) { find(self.tree, &self.environment.prefix, path) } else { None }
    }
}

/// The directory of a path.
fn parent(path: &[u8]) -> Vec<u8> {
    let end = path.iter().rposition(|&b| b == b'/').unwrap_or(0);
    path[..end.max(1).min(path.len())].to_vec()
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [dir, b"/", name].concat()
}

#[cfg(test)]
#[path = "closure_tests.rs"]
mod tests;
