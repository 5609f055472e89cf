//! Each example runs, and is short enough to be read at once.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn every_example_runs_and_has_forty_lines_at_most() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    // Cargo has built them beside this test.
    let built = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples");
    let names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .inspect(|path| assert!(fs::read_to_string(path).unwrap().lines().count() <= 40, "{path:?}"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert!(names.len() >= 10);
    std::thread::scope(|scope| {
        for name in &names {
            let program = built.join(name);
            scope.spawn(move || {
                let out = Command::new(program).output().unwrap();
                assert!(out.status.success(), "{name}: {out:?}");
            });
        }
    });
}
