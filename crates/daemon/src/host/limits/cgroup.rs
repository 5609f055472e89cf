//! The daemon's own cgroup (v2), where it may have one: as root, or where a service manager has delegated its own to it. There the
//! kernel holds it to cores and memory, the page cache of its store included, so that no job pays for it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Other cgroups get ten times its share.
const WEIGHT: &str = "10";
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "io"];
const PERIOD: f64 = 100_000.0;

/// The cgroup, if there is one.
pub(crate) struct Cgroup {
    dir: Option<PathBuf>,
    controllers: Vec<&'static str>,
    said: String,
}

impl Cgroup {
    /// None, and why.
    pub(super) fn none(why: &str) -> Self {
        Self { dir: None, controllers: Vec::new(), said: format!("none: {why}") }
    }

    /// Creates a cgroup and moves into it, if it can limit anything.
    pub(crate) fn enter() -> Self {
        let none = |why: &str| Self::none(why);
        let Some((mount, path)) = own() else { return none("no cgroup v2 on this host") };
        let is_root = rustix::process::geteuid().is_root();
        // In a service with a delegated cgroup: below it. Else root creates one beside the others.
        let delegated = std::env::var_os("INVOCATION_ID").is_some() && path != mount;
        let parent = if delegated || !is_root { path } else { mount };
        let offered = fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
        let offered: Vec<&str> =
            CONTROLLERS.into_iter().filter(|c| offered.split_whitespace().any(|o| o == *c)).collect();
        if offered.is_empty() {
            return none("no cpu, memory or io controller is available");
        }
        match make(&parent, &offered) {
            Err(error) => none(&format!("{}: {error}", parent.display())),
            Ok((dir, controllers)) => {
                let said = format!("{} ({})", dir.display(), controllers.join(", "));
                Self { dir: Some(dir), controllers, said }
            }
        }
    }

    /// For people.
    pub(crate) fn said(&self) -> &str {
        &self.said
    }

    /// Whether the kernel holds it to its memory.
    pub(crate) fn holds_memory(&self) -> bool {
        self.controllers.contains(&"memory")
    }

    /// Cores and bytes of memory from now on.
    pub(crate) fn limit(&self, cores: Option<f64>, memory: u64) {
        let Some(dir) = &self.dir else { return };
        let quota = cores.map_or("max".to_owned(), |cores| format!("{:.0}", (cores * PERIOD).max(1000.0)));
        // Besides blocks in memory there are the program itself and data being written.
        let high = memory.saturating_mul(2).max(256 << 20).to_string();
        for (controller, file, text) in [
            ("cpu", "cpu.max", format!("{quota} {PERIOD}")),
            ("cpu", "cpu.weight", WEIGHT.into()),
            ("memory", "memory.high", high),
            ("io", "io.weight", WEIGHT.into()),
        ] {
            if self.controllers.contains(&controller)
                && let Err(error) = fs::write(dir.join(file), text)
            {
                tracing::debug!(%error, file, "cannot set a cgroup limit");
            }
        }
    }
}

/// Where cgroup v2 is, and this process in it.
fn own() -> Option<(PathBuf, PathBuf)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let of_v2 = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        right.starts_with("cgroup2 ").then(|| left.split_whitespace().nth(4).map(PathBuf::from))?
    };
    let mount = mounts.lines().find_map(of_v2)?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some((mount.clone(), mount.join(path)))
}

fn make(parent: &Path, offered: &[&'static str]) -> io::Result<(PathBuf, Vec<&'static str>)> {
    // Those of daemons that have ended are empty; others cannot be removed.
    for old in fs::read_dir(parent)?.filter_map(Result::ok) {
        if old.file_name().to_string_lossy().starts_with("tidecast.") {
            let _ = fs::remove_dir(old.path());
        }
    }
    let dir = parent.join(format!("tidecast.{}", std::process::id()));
    fs::create_dir(&dir)?;
    // First out of the parent: a cgroup with processes of its own cannot distribute controllers to children.
    let moved = fs::write(dir.join("cgroup.procs"), "0");
    let taken: Vec<&'static str> = offered
        .iter()
        .filter(|c| {
            moved.is_ok() && fs::write(parent.join("cgroup.subtree_control"), format!("+{c}")).is_ok()
        })
        .copied()
        .collect();
    if taken.is_empty() {
        let _ = fs::write(parent.join("cgroup.procs"), "0");
        let _ = fs::remove_dir(&dir);
        moved?;
        return Err(io::Error::other("cannot enable any controller in the cgroup"));
    }
    Ok((dir, taken))
}
