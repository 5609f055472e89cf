//! Mounts a shared directory and reads a file of it, which comes when it is opened. Skips where nothing can be mounted.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tidecast::{MountOptions, Program, ServeOptions, ShareOptions, Source, SwarmOptions, UnmountOptions};
use tidecast::{mount, share, unmount};

fn main() -> Result<(), Box<dyn Error>> {
    // The program that serves mounts: where cargo builds it, else in PATH.
    let built =
        std::env::current_exe()?.parent().and_then(|dir| dir.parent()).map(|dir| dir.join("tidecast"));
    let program = built.filter(|built| built.is_file()).unwrap_or_else(|| PathBuf::from("tidecast"));
    let is_there = std::process::Command::new(&program).arg("--version").output().is_ok();
    if !is_there || fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
        println!("SKIPPED: a mount needs the program tidecast and /dev/fuse");
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let (data, at) = (dir.path().join("data"), dir.path().join("mounted"));
    let state_dir = Some(dir.path().join("state"));
    fs::create_dir(&data)?;
    fs::write(data.join("a.txt"), "the same bytes")?;
    let (swarm, state) = (SwarmOptions::loopback(), state_dir.clone());
    let sharing = share(&data, ShareOptions { swarm, state_dir: state, ..Default::default() });
    let source = Source::read(&sharing.ready_blocking()?.ticket.unwrap_or_default())?;

    let (cache, timeout) = (Some(dir.path().join("cache")), Some(Duration::from_secs(60)));
    let serve = ServeOptions { cache, timeout, swarm: SwarmOptions::loopback(), ..Default::default() };
    let options = MountOptions { serve, program: Program::Named(program), state_dir, ..Default::default() };
    let mounted = mount(source, &at, options).wait_blocking()?;
    println!("mounted at {} after {} s", mounted.path.display(), mounted.mount_seconds);
    let text = fs::read_to_string(at.join("a.txt"));
    unmount(&at, UnmountOptions { lazy: true, abort: false })?;
    assert_eq!(text?, "the same bytes");
    Ok(())
}
