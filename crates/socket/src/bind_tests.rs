#![allow(clippy::unwrap_used)]
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;

use super::*;
use crate::answers;

#[test]
fn what_is_no_socket_stays() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "precious").unwrap();
    fs::create_dir(at("dir")).unwrap();
    symlink("file", at("link")).unwrap();
    symlink("absent", at("dangling")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    drop(UnixListener::bind(at("dead")).unwrap());
    symlink("dead", at("to a dead socket")).unwrap();
    for name in ["file", "dir", "link", "dangling", "pipe", "to a dead socket"] {
        let before = at(name).symlink_metadata().unwrap();
        assert!(matches!(listen(&at(name), 0o600), Err(BindError::NotASocket(_))), "{name}");
        let after = at(name).symlink_metadata().unwrap();
        assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()), "{name}");
    }
    assert_eq!(fs::read_to_string(at("file")).unwrap(), "precious");
    assert!(at("dead").symlink_metadata().unwrap().file_type().is_socket());
}

#[test]
fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    let (listener, bound) = listen(&path, 0o640).unwrap();
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
    assert!(answers(&path));
    assert!(matches!(listen(&path, 0o600), Err(BindError::InUse)));
    assert!(matches!(bind(&path, SocketType::SEQPACKET, 0o600), Err(BindError::InUse)), "of another kind");
    UnixStream::connect(&path).unwrap();
    drop(listener);
    bound.remove();
    assert!(!path.exists());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing else is left");
}

#[test]
fn only_the_own_name_is_removed_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (_listener, bound) = listen(&path, 0o600).unwrap();
    fs::rename(&path, dir.path().join("aside")).unwrap();
    fs::write(&path, "precious").unwrap();
    bound.remove();
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let shared = dir.path().join("shared");
    fs::create_dir(&shared).unwrap();
    for (mode, fits) in [(0o777, false), (0o1777, true), (0o755, true), (0o700, true)] {
        fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
        let made = listen(&shared.join("s"), 0o600);
        assert_eq!(made.is_ok(), fits, "{mode:o}");
        if let Ok((_, bound)) = made {
            bound.remove();
        }
    }
}

#[test]
fn a_way_that_another_user_may_exchange_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let (shared, own) = (base.path().join("shared"), base.path().join("shared/own"));
    fs::create_dir_all(own.join("deep")).unwrap();
    for (mode, fits) in [(0o777, false), (0o1777, true), (0o755, true)] {
        fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
        for dir in [&own, &own.join("deep")] {
            let made = listen(&dir.join("s"), 0o600);
            match made {
                Ok((_, bound)) if fits => bound.remove(),
                Err(BindError::Exchangeable(at)) if !fits => assert_eq!(at, own),
                other => panic!("{mode:o} {other:?}"),
            }
        }
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can make another user's directories");
        return;
    }
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    std::os::unix::fs::chown(&own, Some(61001), None).unwrap();
    assert!(
        matches!(listen(&own.join("deep/s"), 0o600), Err(BindError::Exchangeable(_))),
        "a planted directory"
    );
}

#[test]
fn a_group_with_other_users_is_other_users() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can make directories of other groups");
        return;
    }
    let base = tempfile::tempdir().unwrap();
    let dir = base.path().join("dir");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o775)).unwrap();
    for (group, fits) in [(0, true), (61000, false)] {
        std::os::unix::fs::chown(&dir, None, Some(group)).unwrap();
        match listen(&dir.join("s"), 0o600) {
            Ok((_, bound)) if fits => bound.remove(),
            Err(BindError::Shared(at)) if !fits => assert_eq!(at, dir),
            other => panic!("{group} {other:?}"),
        }
    }
}

#[test]
fn a_file_that_takes_the_name_in_a_race_survives() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (fresh, dead) = (dir.path().join("fresh"), dir.path().join("dead"));
    let survives = || {
        let until = Instant::now() + Duration::from_secs(10);
        // It may be away for a moment, while it is looked at.
        while fs::read_to_string(&path).ok().as_deref() != Some("precious") || fs::remove_file(&path).is_err()
        {
            assert!(Instant::now() < until, "it is gone");
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let racing = scope.spawn(|| {
            for _ in 0..500 {
                drop(UnixListener::bind(&dead));
                fs::rename(&dead, &path).unwrap();
                fs::write(&fresh, "precious").unwrap();
                fs::rename(&fresh, &path).unwrap();
                survives();
            }
        });
        while !racing.is_finished() {
            if let Ok((_, bound)) = listen(&path, 0o600) {
                bound.remove();
            }
        }
    });
}

#[test]
fn of_many_that_start_at_once_one_listens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    for _ in 0..20 {
        drop(UnixListener::bind(&path));
        let all: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| listen(&path, 0o600))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 1);
        assert!(answers(&path));
        all.into_iter().flatten().for_each(|(_, bound)| bound.remove());
    }
}
