//! The settings of this host.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tidecast_paths::Root;

use super::target::{Host, Target, Value, sysctl_path};

/// Longest value that is read, bytes.
const READ_MAX: u64 = 64 << 10;
/// Longest file below /etc that is replaced, and so kept in the record, bytes.
const FILE_MAX: u64 = 1 << 20;

/// Where the settings of a host are.
#[derive(Debug, Clone)]
pub struct Places {
    /// Kernel parameters: /proc/sys.
    pub parameters: PathBuf,
    /// Devices: /sys.
    pub devices: PathBuf,
    /// Files that make changes last: /etc.
    pub lasting: PathBuf,
    /// The record of changes: /var/lib/tidecast-doctor. It is not below /var/lib/tidecast, which belongs to the
    /// daemon's user: root restores what the record says, so no other user may write to it.
    pub record: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            parameters: "/proc/sys".into(),
            devices: "/sys".into(),
            lasting: "/etc".into(),
            record: "/var/lib/tidecast-doctor".into(),
        }
    }
}

/// The settings of this host, or of a directory that a test has filled.
#[derive(Debug)]
pub struct Live {
    places: Places,
}

impl Live {
    /// The settings at `places`.
    #[must_use]
    pub fn new(places: Places) -> Self {
        Self { places }
    }

    /// The directory and the path beneath it of a file below /sys, which is full of links: they are followed
    /// within /sys.
    fn device(&self, path: &str) -> io::Result<(Root, PathBuf)> {
        let top = self.places.devices.canonicalize()?;
        let full = top.join(path).canonicalize()?;
        let below = full.strip_prefix(&top).map_err(|_| io::Error::from(Errno::XDEV))?;
        Ok((Root::open(&top)?, below.to_owned()))
    }

    fn file(&self, path: &str) -> io::Result<Option<Value>> {
        let etc = Root::open(&self.places.lasting)?;
        let Some(meta) = etc.look(path)? else { return Ok(None) };
        if meta.is_symlink() {
            let target = etc.read_link(path)?.into_string();
            return Ok(Some(Value::Link(target.map_err(|_| io::Error::from(Errno::ILSEQ))?)));
        }
        let mut content = Vec::new();
        let read = etc.open_file(path)?.take(FILE_MAX + 1).read_to_end(&mut content)?;
        if read as u64 > FILE_MAX {
            return Err(Errno::FBIG.into());
        }
        let content = data_encoding::BASE64.encode(&content);
        Ok(Some(Value::File { mode: meta.mode & 0o7777, owner: Some([meta.uid, meta.gid]), content }))
    }

    fn set_file(&self, path: &str, value: &Value) -> io::Result<()> {
        let etc = Root::open(&self.places.lasting)?;
        let directory = Path::new(path).parent().unwrap_or(Path::new(""));
        // A crash may have left this beside it: it is removed whatever comes.
        let scratch = Path::new(path).with_added_extension("new");
        if etc.look(&scratch)?.is_some() {
            etc.remove_file(&scratch)?;
        }
        match value {
            Value::File { mode, owner, content } => {
                let bytes = data_encoding::BASE64.decode(content.as_bytes()).map_err(io::Error::other)?;
                etc.write_whole(path, &bytes, 0o600)?;
                // In this order: a change of the owner clears permission bits.
                if let Some([user, group]) = owner {
                    etc.chown(path, Some(*user), Some(*group))?;
                }
                etc.chmod(path, *mode)?;
            }
            Value::Link(target) => {
                etc.symlink(target, &scratch)?;
                etc.rename(&scratch, path, true)?;
            }
            _ if etc.look(path)?.is_some() => etc.remove_file(path)?,
            _ => {}
        }
        etc.sync(directory)
    }
}

impl Host for Live {
    fn get(&self, target: &Target) -> io::Result<Option<Value>> {
        let found = match target {
            Target::Sysctl(name) => {
                let root = Root::open(&self.places.parameters)?;
                read(&root, Path::new(&sysctl_path(name))).map(|text| Some(Value::Text(text)))
            }
            Target::Sysfs(path) => {
                self.device(path).and_then(|(root, path)| read(&root, &path)).map(|text| {
                    // A file that offers choices has the one in force in brackets.
                    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
                    Some(Value::Text(chosen.map_or(text.clone(), |(chosen, _)| chosen.to_owned())))
                })
            }
            Target::File(path) => Ok(Some(self.file(path)?.unwrap_or(Value::Absent))),
        };
        match found {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other,
        }
    }

    fn set(&self, target: &Target, value: &Value) -> io::Result<()> {
        match (target, value) {
            (Target::Sysctl(name), Value::Text(text)) => {
                write(&Root::open(&self.places.parameters)?, Path::new(&sysctl_path(name)), text)
            }
            (Target::Sysfs(path), Value::Text(text)) => {
                let (root, path) = self.device(path)?;
                write(&root, &path, text)
            }
            (Target::File(path), Value::File { .. } | Value::Link(_) | Value::Absent) => {
                self.set_file(path, value)
            }
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn has_directory(&self, directory: &str) -> bool {
        Root::open(&self.places.lasting).is_ok_and(|etc| etc.is_dir(directory))
    }
}

fn read(root: &Root, path: &Path) -> io::Result<String> {
    let mut text = String::new();
    root.open_file(path)?.take(READ_MAX).read_to_string(&mut text)?;
    Ok(text.trim_end_matches('\n').to_owned())
}

/// The kernel takes a value in one write.
fn write(root: &Root, path: &Path, text: &str) -> io::Result<()> {
    let line = format!("{}\n", text.trim_end_matches('\n'));
    let mut file = root.open_write(path)?;
    match file.write(line.as_bytes())? {
        written if written == line.len() => Ok(()),
        _ => Err(Errno::IO.into()),
    }
}
