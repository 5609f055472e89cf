//! Confines this process to the files that its work is about, by Landlock where the kernel has it.
//!
//! It holds only for the calling thread and threads that it starts: [`Confinement::apply`] is to be called in `main`'s thread
//! before the runtime starts. Files that are replaced by renaming keep their rule only by their directory, so rules name
//! directories. Sockets, processes and descriptors that are open already are not concerned.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, path_beneath_rules,
};

/// The newest rules for files that are used. Later ones would also forbid to connect to sockets.
const NEWEST: ABI = ABI::V5;

/// Files needed to look up users and hosts, and for certificates, time zones and facts of the machine: the C
/// library's files and its modules, the targets of links in /etc, and the kernel's files.
const SYSTEM: &[&str] = &[
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/lib32",
    "/proc",
    "/sys",
    "/dev/urandom",
    "/dev/random",
    "/run/systemd/resolve",
    "/run/systemd/userdb",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/nscd",
    "/var/lib/sss",
    "/var/cache/nscd",
    "/var/db/nscd",
    "/nix/store",
];
/// Further files that may be written.
const WRITTEN: &[&str] = &["/dev/null", "/sys/fs/cgroup"];

/// The files that a process may still access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    reads: Vec<PathBuf>,
    writes: Vec<PathBuf>,
    runs: Vec<PathBuf>,
}

impl Default for Confinement {
    fn default() -> Self {
        Self::new()
    }
}

impl Confinement {
    /// The system's files, for reading.
    #[must_use]
    pub fn new() -> Self {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        Self { reads: paths(SYSTEM), writes: paths(WRITTEN), runs: Vec::new() }
    }

    /// A directory, and all below it, for reading.
    #[must_use]
    pub fn reads(mut self, dir: &Path) -> Self {
        self.reads.push(dir.to_owned());
        self
    }

    /// A file that may be replaced meanwhile: its directory, for reading, and the one that it is a link to.
    #[must_use]
    pub fn reads_file(mut self, file: &Path) -> Self {
        let real = file.canonicalize().ok();
        for file in [Some(file), real.as_deref()].into_iter().flatten() {
            let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            self.reads.push(dir.to_owned());
        }
        self
    }

    /// A directory, and all below it, for everything but running programs.
    #[must_use]
    pub fn writes(mut self, dir: &Path) -> Self {
        self.writes.push(dir.to_owned());
        self
    }

    /// This program itself, to be started again.
    #[must_use]
    pub fn runs_itself(mut self) -> Self {
        let program = std::env::current_exe().ok();
        self.reads.extend(program.clone());
        self.runs.extend(program);
        // The dynamic linker is run with it.
        self.runs.extend(["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/nix/store"].map(PathBuf::from));
        self
    }

    /// Programs of the system, which may read all files of their user, and write to the directory for
    /// temporary files: HTCondor's programs prove their user there (its method FS).
    #[must_use]
    pub fn runs_programs(mut self) -> Self {
        self.reads.push("/".into());
        self.writes.push(std::env::temp_dir());
        self.runs.push("/".into());
        self
    }

    /// Confines the calling thread, and those that it starts. Returns a text about the result: missing paths
    /// are left out, and rules unknown to the kernel are not enforced.
    #[must_use]
    pub fn apply(self) -> String {
        if threads() != Some(1) {
            return "not confined: other threads are already running".into();
        }
        match self.restrict() {
            Ok(said) => said,
            Err(error) => format!("not confined: {error}"),
        }
    }

    fn restrict(self) -> Result<String, RulesetError> {
        let all = AccessFs::from_all(NEWEST);
        let run = all & AccessFs::Execute;
        let read = AccessFs::from_read(NEWEST) & !run;
        let status = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(all)?
            .create()?
            .add_rules(path_beneath_rules(self.reads, read))?
            .add_rules(path_beneath_rules(self.writes, all & !run))?
            .add_rules(path_beneath_rules(self.runs, run))?
            .restrict_self()?;
        Ok(match (status.landlock, status.ruleset) {
            (LandlockStatus::NotImplemented, _) => "not confined: kernel has no Landlock".into(),
            (LandlockStatus::NotEnabled, _) => "not confined: Landlock is not enabled in the kernel".into(),
            (_, RulesetStatus::NotEnforced) => "not confined: the kernel enforces none of the rules".into(),
            (LandlockStatus::Available { effective_abi, kernel_abi }, _) => {
                format!("confined: landlock ABI {}", kernel_abi.unwrap_or(effective_abi as i32))
            }
        })
    }
}

/// Threads of this process.
fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn rules_name_directories_as_files_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (real, links) = (dir.path().join("real"), dir.path().join("links"));
        std::fs::create_dir(&real).unwrap();
        std::fs::create_dir(&links).unwrap();
        std::fs::write(real.join("trust.toml"), "").unwrap();
        std::os::unix::fs::symlink(real.join("trust.toml"), links.join("trust.toml")).unwrap();
        let made = Confinement::new().reads_file(&links.join("trust.toml")).writes(&dir.path().join("store"));
        let added = &made.reads[SYSTEM.len()..];
        assert_eq!(added, [links, real.canonicalize().unwrap()]);
        assert_eq!(made.writes[WRITTEN.len()..], [dir.path().join("store")]);
        assert!(made.runs.is_empty());
        assert_eq!(Confinement::new().reads_file(Path::new("absent")).reads.last().unwrap(), Path::new("."));
    }

    #[test]
    fn a_process_with_threads_is_not_confined_by_halves() {
        std::thread::scope(|scope| {
            let (end, wait) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || wait.recv());
            assert_eq!(Confinement::new().apply(), "not confined: other threads are already running");
            drop(end);
        });
    }
}
