use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use rustix::io::Errno;
use tempfile::TempDir;

use crate::{Kind, Root, is_link};

/// A directory to work in, and one beside it that nothing may change.
struct Ground {
    dir: TempDir,
    before: BTreeMap<PathBuf, String>,
}

impl Ground {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("in")).unwrap();
        fs::create_dir_all(dir.path().join("victim/a/b")).unwrap();
        for name in ["a/b/c", "a/c", "b", "c"] {
            fs::write(dir.path().join("victim").join(name), name).unwrap();
        }
        let before = picture(&dir.path().join("victim"));
        Ground { dir, before }
    }

    fn inside(&self) -> PathBuf {
        self.dir.path().join("in")
    }

    fn victim(&self) -> PathBuf {
        self.dir.path().join("victim")
    }

    fn roots(&self) -> [Root; 2] {
        [Root::open(&self.inside()).unwrap(), Root::open(&self.inside()).unwrap().walking()]
    }

    fn assert_untouched(&self) {
        assert_eq!(picture(&self.victim()), self.before);
    }
}

/// All that can be said of a tree.
fn picture(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut stack = vec![top.to_path_buf()];
    while let Some(path) = stack.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let what = if meta.is_dir() {
            stack.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            String::new()
        } else if meta.is_symlink() {
            format!("{:?}", fs::read_link(&path).unwrap())
        } else {
            fs::read_to_string(&path).unwrap_or_default()
        };
        let time = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
        all.insert(
            path,
            format!("{what} {:o} {} {} {time:?} {}", meta.mode(), meta.uid(), meta.gid(), meta.nlink()),
        );
    }
    all
}

fn code<T>(r: io::Result<T>) -> Result<T, String> {
    r.map_err(|e| format!("{:?}", e.raw_os_error()))
}

/// Something that is tried on a path, or two.
#[derive(Clone, Debug)]
enum Op {
    Open,
    Write,
    OpenOrCreate,
    Create,
    MakeDir,
    MakeDirs,
    Ensure,
    List,
    Stat,
    Symlink,
    ReadLink,
    Link(PathBuf),
    Rename(PathBuf, bool),
    Remove,
    RemoveFile,
    RemoveAll,
    Clear,
    Chmod(u32),
    SetTime,
    Whole,
    Scratch,
    Visit,
    Sync,
    Sub,
    Copy(PathBuf),
    Lock,
}

fn apply(root: &Root, op: &Op, path: &Path) -> Result<String, String> {
    use std::io::Write;
    let said = |r: io::Result<()>| code(r).map(|()| String::new());
    let open = |r: io::Result<fs::File>| code(r).map(|f| f.metadata().unwrap().len().to_string());
    match op {
        Op::Open => open(root.open_file(path)),
        Op::Write => {
            code(root.open_write(path)).map(|mut f| f.write_all(b"w").map(|()| String::new()).unwrap())
        }
        Op::OpenOrCreate => open(root.open_or_create(path, 0o644)),
        Op::Create => open(root.create(path, 0o600)),
        Op::MakeDir => said(root.make_dir(path, 0o755)),
        Op::MakeDirs => said(root.make_dirs(path, 0o755)),
        Op::Ensure => said(root.ensure_dir(path, 0o755)),
        Op::List => code(root.list(path)).map(|mut names| {
            names.sort();
            format!("{names:?}")
        }),
        Op::Stat => code(root.stat(path)).map(|m| format!("{:?} {:o}", m.kind, m.mode)),
        Op::Symlink => said(root.symlink("../victim", path)),
        Op::ReadLink => code(root.read_link(path)).map(|t| t.is_empty().to_string()),
        Op::Link(to) => said(root.link(path, to)),
        Op::Rename(to, replace) => said(root.rename(path, to, *replace)),
        Op::Remove => said(root.remove(path)),
        Op::RemoveFile => said(root.remove_file(path)),
        Op::RemoveAll => said(root.remove_all(path)),
        Op::Clear => said(root.clear(path)),
        Op::Chmod(mode) => said(root.chmod(path, *mode)),
        Op::SetTime => said(root.set_time(path, (7, 9))),
        Op::Whole => said(root.write_whole(path, b"whole", 0o640)),
        Op::Scratch => code(root.scratch(path, 0o640).and_then(|mut s| {
            s.file_mut().write_all(b"scratch")?;
            s.finish()
        }))
        .map(|()| String::new()),
        Op::Visit => {
            let mut sum = (0, 0);
            let visited = root.visit(path, &mut |m| {
                sum = (sum.0 + 1, sum.1 + u64::from(m.is_symlink()));
                Ok(())
            });
            code(visited).map(|()| format!("{sum:?}"))
        }
        Op::Sync => said(root.sync(path)),
        Op::Sub => code(root.sub(path)).map(|r| format!("{:?}", r.is_dir("a"))),
        Op::Copy(to) => code(root.copy(path, to, 0o600)).map(|_| String::new()),
        Op::Lock => code(root.lock(path)).map(|l| l.is_some().to_string()),
    }
}

/// Names that meet often: files, directories and links of the ground have them too.
fn path() -> impl Strategy<Value = PathBuf> {
    let part = prop_oneof![
        9 => prop::sample::select(vec!["a", "b", "c", "up", "abs", "self", "broken"]),
        1 => prop::sample::select(vec!["..", ".", ""]),
    ];
    prop_oneof![
        30 => prop::collection::vec(part, 1..4).prop_map(|parts| PathBuf::from(parts.join("/"))),
        1 => Just(PathBuf::from("/nowhere/at/all")),
        1 => Just(PathBuf::new()),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        prop::sample::select(vec![
            Op::Open,
            Op::Write,
            Op::OpenOrCreate,
            Op::Create,
            Op::MakeDir,
            Op::MakeDirs,
            Op::Ensure,
            Op::List,
            Op::Stat,
            Op::Symlink,
            Op::ReadLink,
            Op::Remove,
            Op::RemoveFile,
            Op::RemoveAll,
            Op::Clear,
            Op::SetTime,
            Op::Whole,
            Op::Scratch,
            Op::Visit,
            Op::Sync,
            Op::Sub,
            Op::Lock,
        ]),
        path().prop_map(Op::Link),
        (path(), any::<bool>()).prop_map(|(to, replace)| Op::Rename(to, replace)),
        path().prop_map(Op::Copy),
        prop::sample::select(vec![0o755, 0o700, 0o555, 0o644]).prop_map(Op::Chmod),
    ]
}

/// The planted entry, by `kind`.
fn plant(top: &Path, planted: &[(PathBuf, u8)]) {
    for (path, kind) in planted {
        let path: &PathBuf = &path.components().collect();
        let plain = path.components().all(|c| matches!(c, std::path::Component::Normal(_)));
        if !plain || path.as_os_str().is_empty() {
            continue;
        }
        let at = top.join(path);
        // Never through a link: else the test itself would reach outside.
        let mut above = top.to_path_buf();
        let clear = path.parent().unwrap_or(Path::new("")).iter().all(|part| {
            above.push(part);
            let _ = fs::create_dir(&above);
            fs::symlink_metadata(&above).is_ok_and(|m| m.is_dir())
        });
        if !clear || fs::symlink_metadata(&at).is_ok() {
            continue;
        }
        match kind % 6 {
            0 => fs::write(&at, "file").unwrap(),
            1 => fs::create_dir(&at).unwrap(),
            2 => symlink(top.join("../victim"), &at).unwrap(),
            3 => symlink("../".repeat(path.iter().count()) + "victim/a", &at).unwrap(),
            4 => symlink("nowhere", &at).unwrap(),
            _ => symlink(".", &at).unwrap(),
        }
    }
}

/// The attributes of a test tree without times, which differ between two runs.
fn shape(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut stack = vec![top.to_path_buf()];
    while let Some(path) = stack.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let what = if meta.is_dir() {
            stack.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            String::new()
        } else if meta.is_symlink() {
            fs::read_link(&path).unwrap().strip_prefix(top).map_or("link", |_| "inner").into()
        } else {
            fs::read_to_string(&path).unwrap()
        };
        let name = path.strip_prefix(top).unwrap().to_path_buf();
        all.insert(name, format!("{what} {:o} {}", meta.mode(), meta.nlink()));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// Both methods have the same result, and neither changes anything outside.
    #[test]
    fn both_ways_agree_and_stay_inside(
        planted in prop::collection::vec((path(), any::<u8>()), 0..12),
        ops in prop::collection::vec((op(), path()), 1..24),
    ) {
        let grounds = [Ground::new(), Ground::new()];
        let mut roots = Vec::new();
        for (ground, walk) in grounds.iter().zip([false, true]) {
            plant(&ground.inside(), &planted);
            let root = Root::open(&ground.inside()).unwrap();
            roots.push(if walk { root.walking() } else { root });
        }
        for (op, path) in &ops {
            let said: Vec<_> = roots.iter().map(|root| apply(root, op, path)).collect();
            prop_assert_eq!(&said[0], &said[1], "{:?} {:?}", op, path);
            for ground in &grounds {
                ground.assert_untouched();
            }
        }
        prop_assert_eq!(shape(&grounds[0].inside()), shape(&grounds[1].inside()));
    }

    /// A tree with links everywhere goes without a trace elsewhere.
    #[test]
    fn a_tree_is_removed_and_nothing_else(planted in prop::collection::vec((path(), any::<u8>()), 0..40)) {
        let ground = Ground::new();
        for root in ground.roots() {
            root.make_dirs("tree", 0o755).unwrap();
            plant(&ground.inside().join("tree"), &planted);
            root.remove_all("tree").unwrap();
            prop_assert!(root.list("").unwrap().is_empty());
            ground.assert_untouched();
        }
    }
}

#[test]
fn links_are_said_to_be_links() {
    let ground = Ground::new();
    symlink("../victim", ground.inside().join("up")).unwrap();
    for root in ground.roots() {
        assert!(is_link(&root.open_file("up/b").unwrap_err()));
        assert!(is_link(&root.open_file("up").unwrap_err()));
        assert!(is_link(&root.ensure_dir("up", 0o700).unwrap_err()));
        assert!(is_link(&root.make_dirs("up/x/y", 0o700).unwrap_err()));
        assert!(is_link(&root.sub("up").unwrap_err()));
        assert!(is_link(&root.chmod("up", 0o700).unwrap_err()));
        assert!(is_link(&root.list("up").unwrap_err()));
        assert!(is_link(&root.set_xattr("up", b"user.x", b"y").unwrap_err()));
        assert_eq!(root.stat("up").unwrap().kind, Kind::Symlink);
        assert_eq!(root.read_link("up").unwrap(), "../victim");
        assert!(root.create("up", 0o600).is_err() && root.lock("up").is_err());
    }
    ground.assert_untouched();
}

#[test]
fn a_planted_pipe_or_socket_does_not_block() {
    let ground = Ground::new();
    let kinds = [("pipe", rustix::fs::FileType::Fifo), ("socket", rustix::fs::FileType::Socket)];
    for (name, kind) in kinds {
        rustix::fs::mknodat(rustix::fs::CWD, ground.inside().join(name), kind, 0o666.into(), 0).unwrap();
    }
    for root in ground.roots() {
        for (name, _) in kinds {
            for opened in [root.open_file(name), root.open_write(name), root.open_or_create(name, 0o600)] {
                assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
            }
            root.chmod(name, 0o640).unwrap();
            assert_eq!(root.stat(name).unwrap().mode, 0o640);
        }
        root.write_whole("pipe", b"now a file", 0o600).unwrap();
        root.remove_all("pipe").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, ground.inside().join("pipe"), kinds[0].1, 0o666.into(), 0)
            .unwrap();
    }
}

/// Deeper than descriptors, the stack or a path reach.
#[test]
fn a_deep_tree_is_measured_and_removed() {
    let ground = Ground::new();
    for root in ground.roots() {
        let name = "d".repeat(100);
        let mut at = root.again().unwrap();
        for _ in 0..3000 {
            at.make_dir(&name, 0o755).unwrap();
            at.create("f", 0o644).unwrap();
            at = at.sub(&name).unwrap();
        }
        let mut seen = 0;
        root.visit(&name, &mut |_| {
            seen += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, 2 * 3000 - 1);
        root.remove_all(&name).unwrap();
        root.remove_file("f").unwrap();
        assert!(root.list("").unwrap().is_empty());
    }
}

/// As a user without rights over other users' files: modes that block this process from its own tree are
/// corrected.
#[test]
fn our_own_closed_directories_are_removed() {
    let ground = Ground::new();
    let top = ground.inside().join("tree");
    let modes = [0o000, 0o100, 0o300, 0o400, 0o500, 0o555, 0o700];
    let make = || {
        for (i, mode) in modes.iter().enumerate() {
            let dir = top.join(i.to_string()).join("inner");
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("file"), "x").unwrap();
            fs::set_permissions(&dir, fs::Permissions::from_mode(*mode)).unwrap();
            fs::set_permissions(dir.parent().unwrap(), fs::Permissions::from_mode(*mode)).unwrap();
        }
    };
    for root in ground.roots() {
        make();
        root.remove_all("tree").unwrap();
        assert!(root.list("").unwrap().is_empty());
    }
    ground.assert_untouched();
}

/// A thread swaps directories for links to the victim and back while everything is tried: nothing gets there.
#[test]
fn directories_that_are_swapped_for_links_lead_nowhere() {
    let ground = Ground::new();
    let inside = ground.inside();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            symlink(ground.victim(), inside.join("link")).unwrap();
            let (a, link, aside) = (inside.join("a"), inside.join("link"), inside.join("aside"));
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::create_dir_all(a.join("a/b"));
                let _ = fs::rename(&a, &aside);
                let _ = fs::rename(&link, &a);
                let _ = fs::remove_file(&a);
                let _ = fs::rename(&aside, &a);
                let _ = symlink(ground.victim(), &link);
            }
        });
        for root in ground.roots() {
            for _ in 0..400 {
                for op in [
                    Op::Create,
                    Op::OpenOrCreate,
                    Op::MakeDirs,
                    Op::Chmod(0o711),
                    Op::SetTime,
                    Op::Whole,
                    Op::Symlink,
                    Op::RemoveFile,
                    Op::RemoveAll,
                    Op::Scratch,
                    Op::Clear,
                    Op::Link("a/b".into()),
                    Op::Rename("a/b".into(), true),
                    Op::Copy("a/c".into()),
                    Op::Lock,
                ] {
                    for path in ["a/b", "a/a/b/c", "a/c", "a"] {
                        let _ = apply(&root, &op, Path::new(path));
                    }
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    ground.assert_untouched();
}

#[test]
fn a_lock_is_of_the_file_that_has_the_name() {
    let ground = Ground::new();
    let [root, other] = ground.roots();
    let lock = root.lock("lock").unwrap().unwrap();
    assert!(other.lock("lock").unwrap().is_none());
    root.remove_file("lock").unwrap();
    assert!(other.lock("lock").unwrap().is_some());
    drop(lock);
}

#[test]
fn what_is_not_finished_leaves_nothing() {
    let ground = Ground::new();
    for root in ground.roots() {
        drop(root.scratch("file", 0o600).unwrap());
        assert!(root.list("").unwrap().is_empty());
    }
}

/// The effect of `f` where `inside/tree/mounted` shows `victim`, a directory of the same file system: in a
/// mount namespace, by this test's own program once more. Only root can; others leave it out.
fn where_mounted(name: &str, f: impl Fn(&Ground)) {
    const BASE: &str = "TIDECAST_TEST_MOUNTED";
    let ground = Ground::new();
    if std::env::var_os(BASE).is_some() {
        fs::create_dir_all(ground.inside().join("tree/mounted")).unwrap();
        let (from, to) = (ground.victim(), ground.inside().join("tree/mounted"));
        let bound = Command::new("mount").arg("--bind").args([from, to]).status().unwrap();
        assert!(bound.success());
        f(&ground);
        let gone = Command::new("umount").arg(ground.inside().join("tree/mounted")).status().unwrap();
        assert!(gone.success());
        return;
    }
    let private = || {
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private"]);
        command
    };
    if !private().arg("true").output().is_ok_and(|o| o.status.success()) {
        eprintln!("SKIPPED: mounting needs root");
        return;
    }
    let ran = private()
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(BASE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

#[test]
fn nothing_is_removed_through_a_bind_mount() {
    where_mounted("tests::nothing_is_removed_through_a_bind_mount", |ground| {
        for root in ground.roots() {
            fs::write(ground.inside().join("tree/file"), "1").unwrap();
            assert!(root.crosses_mount("tree/mounted").unwrap());
            assert!(root.crosses_mount("tree/mounted/b").unwrap());
            for plain in ["tree", "tree/file", "tree/missing", "tree/file/x"] {
                assert!(!root.crosses_mount(plain).unwrap(), "{plain}");
            }
            let refused = root.remove_all("tree").unwrap_err();
            assert_eq!(Errno::from_io_error(&refused), Some(Errno::XDEV));
            ground.assert_untouched();
        }
    });
}
