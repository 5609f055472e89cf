//! The daemon as a service of systemd: its user, its unit, and acting for that user where root sets it up.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{Gid, Uid, User, chown, getgroups, setegid, seteuid, setgroups};
use tidecast_event::{Context as _, Error};
use tidecast_paths::follow;

const SERVICE: &str = include_str!("../../../../dist/systemd/tidecast.service");
const SOCKET: &str = include_str!("../../../../dist/systemd/tidecast.socket");
const SYSUSERS: &str = include_str!("../../../../dist/sysusers/tidecast.conf");
/// The program in [`SERVICE`].
const PROGRAM: &str = "/usr/bin/tidecast";
/// The user in [`SYSUSERS`].
const USER: &str = "tidecast";
/// Where units are: an administrator's, those of packages.
const UNITS: [&str; 4] = [
    "/etc/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// This process has the effective user and groups of a directory's owner, until this is dropped.
#[derive(Debug)]
pub struct EffectiveUser(Option<Vec<Gid>>);

/// Root acts as the owner of `dir` from now on: files that it writes there belong to that user, and a link
/// that this user has put there gives no access to files of root. Other users, and root in a directory of its
/// own, act as themselves.
///
/// # Errors
/// An error of the system.
pub fn act_as_owner(dir: &Path) -> Result<EffectiveUser, Error> {
    let Ok(there) = fs::metadata(dir) else { return Ok(EffectiveUser(None)) };
    if !Uid::effective().is_root() || there.uid() == 0 {
        return Ok(EffectiveUser(None));
    }
    let (uid, gid) = (Uid::from_raw(there.uid()), Gid::from_raw(there.gid()));
    let context = || format!("cannot act as user {uid}, which owns {}", dir.display());
    let before = getgroups().with_context(context)?;
    let change = || {
        setgroups(&[gid])?;
        setegid(gid)?;
        seteuid(uid)
    };
    // Dropped on an error half-way.
    let acting = EffectiveUser(Some(before));
    change().with_context(context)?;
    Ok(acting)
}

impl Drop for EffectiveUser {
    fn drop(&mut self) {
        if let Some(groups) = self.0.take() {
            // The real user is root: each of these is allowed.
            let _ = seteuid(Uid::from_raw(0)).and(setegid(Gid::from_raw(0))).and(setgroups(&groups));
        }
    }
}

/// Whether services of this host are systemd's, and this process may set them up.
#[must_use]
pub fn is_manageable() -> bool {
    Uid::effective().is_root() && Path::new("/run/systemd/system").is_dir()
}

/// Makes the user of the service, and its directory `dir` if that is absent.
///
/// # Errors
/// The user cannot be made, or the directory.
pub fn prepare(dir: &Path) -> Result<(), Error> {
    let user = || User::from_name(USER).context("cannot read the user database");
    if user()?.is_none() {
        write(Path::new("/etc/sysusers.d/tidecast.conf"), SYSUSERS)?;
        run(&["systemd-sysusers"])?;
    }
    if dir.symlink_metadata().is_ok() {
        return Ok(());
    }
    let user = user()?.context("systemd-sysusers did not make the user tidecast")?;
    let context = || format!("cannot make {}", dir.display());
    fs::DirBuilder::new().recursive(true).mode(0o711).create(dir).with_context(context)?;
    chown(dir, Some(user.uid), Some(user.gid)).with_context(context)
}

/// Starts the service now and at each boot; installs its units if no package did. Answers which unit it is.
///
/// # Errors
/// A unit cannot be written, or systemd refuses.
pub fn start() -> Result<PathBuf, Error> {
    let installed =
        UNITS.iter().map(|dir| Path::new(dir).join("tidecast.service")).find(|unit| unit.exists());
    let unit = match installed {
        Some(unit) => unit,
        None => {
            let program = std::env::current_exe().context("cannot find this program")?;
            check_program(&program)?;
            let [own, ..] = UNITS;
            write(&Path::new(own).join("tidecast.socket"), SOCKET)?;
            let unit = Path::new(own).join("tidecast.service");
            write(&unit, &service(&program)?)?;
            run(&["systemctl", "daemon-reload"])?;
            unit
        }
    };
    run(&["systemctl", "enable", "tidecast.socket", "tidecast.service"])?;
    run(&["systemctl", "start", "tidecast.socket"])?;
    // One that runs has started without the site.
    run(&["systemctl", "restart", "tidecast.service"])?;
    Ok(unit)
}

/// Refuses a program that a user besides root owns or may exchange: the service is to run it at each boot.
fn check_program(program: &Path) -> Result<(), Error> {
    let mut foreign = None;
    let end = follow(program, &mut |step| {
        let is_foreign = [step.owner.unwrap_or(0), step.dir.owner].into_iter().any(|owner| owner != 0);
        if is_foreign || step.dir.lets_exchange() {
            foreign.get_or_insert_with(|| step.path.to_owned());
        }
        Ok(())
    });
    end.with_context(|| format!("cannot look at {}", program.display()))?;
    foreign.map_or(Ok(()), |at| {
        let at = at.display();
        Err(Error::fault(format!(
            "users besides root can exchange {at}, and the service would run it; install the program where only root writes"
        )))
    })
}

/// The unit for a program that is somewhere else than a package puts it.
fn service(program: &Path) -> Result<String, Error> {
    let text =
        program.to_str().filter(|path| !path.contains(|c: char| c.is_whitespace() || "\"'\\%$".contains(c)));
    let text = text.with_context(|| format!("a unit cannot name {}; move the program", program.display()))?;
    Ok(SERVICE.replace(PROGRAM, text))
}

/// Puts a file of root's where only root writes; whole or not at all.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    let context = || format!("cannot write {}", path.display());
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir).with_context(context)?;
    let mut file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(dir)
        .with_context(context)?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).with_context(context)?;
    file.persist(path).map(drop).with_context(context)
}

fn run(words: &[&str]) -> Result<(), Error> {
    let shown = words.join(" ");
    let [program, arguments @ ..] = words else { return Ok(()) };
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {shown}"))?;
    if output.status.success() {
        return Ok(());
    }
    let why = tidecast_text::escaped_bytes(output.stderr.trim_ascii()).to_string();
    Err(Error::fault(format!("{shown} failed: {why}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_unit_starts_this_program() {
        let text = service(Path::new("/opt/bin/tidecast")).unwrap();
        assert!(text.contains("ExecStart=/opt/bin/tidecast daemon --system\n"), "{text}");
        assert!(!text.contains(PROGRAM));
        assert!(service(Path::new("/opt/my programs/tidecast")).is_err());
    }
}
