//! What a change changes, the values that it can have, and the host that has them.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use tidecast_text::count;

use super::remedy::Change;

/// Longest value, bytes.
const VALUE_MAX: usize = 4000;

/// Read at boot by systemd-sysctl and by sysctl --system.
pub(super) const SYSCTL: &str = "sysctl.d/90-tidecast-doctor.conf";
/// Writes what is below /sys at boot.
pub(super) const UNIT: &str = "systemd/system/tidecast-doctor.service";
/// Has systemd start it.
pub(super) const WANTED: &str = "systemd/system/multi-user.target.wants/tidecast-doctor.service";
/// The files that make changes last. No other file below /etc is ever written.
const FILES: [&str; 3] = [SYSCTL, UNIT, WANTED];

/// The object of a change.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A file below /sys.
    Sysfs(String),
    /// A kernel parameter, by its name with dots.
    Sysctl(String),
    /// A file or link below /etc that makes changes last; its path relative to /etc.
    File(String),
}

/// A value of a [`Target`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    /// No such file.
    Absent,
    /// The text of a kernel parameter or of a file below /sys.
    Text(String),
    /// A file.
    File {
        /// Its permission bits.
        mode: u32,
        /// Its user and group. `None`: those of the process that writes it.
        owner: Option<[u32; 2]>,
        /// Its content, in base64.
        content: String,
    },
    /// A symbolic link.
    Link(String),
}

/// The settings of a host: the real ones, or a test's.
pub trait Host {
    /// The value of a target; `None` if this host has no such target.
    ///
    /// # Errors
    /// The system's error.
    fn get(&self, target: &Target) -> io::Result<Option<Value>>;

    /// Gives a target a value.
    ///
    /// # Errors
    /// The system's error.
    fn set(&self, target: &Target, value: &Value) -> io::Result<()>;

    /// Whether `directory`, relative to /etc, is there: without it no file can make changes last.
    fn has_directory(&self, directory: &str) -> bool;
}

impl Target {
    /// The target and the new value of a change; `None` for one that a person makes.
    ///
    /// # Errors
    /// Why a name or a value is not one that a kernel has.
    pub(super) fn of(change: &Change) -> Result<Option<(Target, Value)>, String> {
        let (target, value) = match change {
            Change::Sysctl { name, value } => (Target::Sysctl(name.clone()), value),
            Change::Sysfs { path, value } => (Target::Sysfs(path.clone()), value),
            Change::Mtu { .. } | Change::Qdisc { .. } | Change::Manual { .. } => return Ok(None),
        };
        let value = Value::Text(value.clone());
        target.check(&value)?;
        Ok(Some((target, value)))
    }

    /// Whether this is a target of this program, and `value` one that it sets.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(&self, value: &Value) -> Result<(), String> {
        match self {
            Target::Sysctl(name) if !is_path(&sysctl_path(name)) => {
                Err(format!("{name:?} is not a name of a kernel parameter"))
            }
            Target::Sysfs(path) if !is_path(path) => Err(format!("{path:?} is not a path below /sys")),
            Target::File(path) if !FILES.contains(&path.as_str()) => {
                Err(format!("{:?} is not a file of tidecast doctor", format!("/etc/{path}")))
            }
            Target::Sysctl(_) | Target::Sysfs(_) => match value {
                Value::Text(text) if is_line(text) => Ok(()),
                other => Err(format!("{:?} is not a value of one line", other.to_string())),
            },
            Target::File(_) => match value {
                Value::File { .. } | Value::Link(_) => Ok(()),
                other => Err(format!("{:?} is not a file", other.to_string())),
            },
        }
    }

    /// Whether two values are the same setting, however the kernel spells it.
    #[must_use]
    pub fn same(&self, one: &Value, other: &Value) -> bool {
        match (one, other) {
            (Value::Text(one), Value::Text(other)) => self.normal(one) == self.normal(other),
            (
                Value::File { mode, owner, content },
                Value::File { mode: other_mode, owner: other_owner, content: other_content },
            ) => {
                let unknown = owner.is_none() || other_owner.is_none();
                mode == other_mode && content == other_content && (unknown || owner == other_owner)
            }
            _ => one == other,
        }
    }

    /// A text without what has no meaning: kinds and amounts of white space, and in a mask of CPUs commas and
    /// leading zeros.
    fn normal(&self, text: &str) -> String {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_mask =
            matches!(self, Target::Sysfs(path) if path.ends_with("_cpus") || path.ends_with("_affinity"));
        if is_mask && words.chars().all(|c| c.is_ascii_hexdigit() || c == ',') {
            return words.replace(',', "").trim_start_matches('0').to_ascii_lowercase();
        }
        words
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Sysfs(path) => write!(f, "/sys/{path}"),
            Target::Sysctl(name) => f.write_str(name),
            Target::File(path) => write!(f, "/etc/{path}"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Absent => f.write_str("absent"),
            Value::Text(text) => f.write_str(&text.split_whitespace().collect::<Vec<_>>().join(" ")),
            Value::File { content, .. } => {
                let padding = content.bytes().rev().take_while(|byte| *byte == b'=').count();
                write!(f, "a file of {}", count((content.len() / 4 * 3 - padding) as u64, "byte"))
            }
            Value::Link(target) => write!(f, "a link to {target}"),
        }
    }
}

/// The path below /proc/sys of a parameter's name: dots separate, and a slash stands for a dot within a
/// component, as in the name of a VLAN's interface (sysctl.d(5)).
pub(super) fn sysctl_path(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            '.' => '/',
            '/' => '.',
            other => other,
        })
        .collect()
}

/// Whether this is a relative path of plain components.
fn is_path(path: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.len() < 1000
        && path.split('/').all(plain)
        && !path.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// Whether this is a value of one line.
fn is_line(value: &str) -> bool {
    !value.trim().is_empty()
        && value.len() < VALUE_MAX
        && value.chars().all(|c| c == '\t' || c == ' ' || c.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_and_values_are_refused() {
        let sysctl =
            |name: &str, value: &str| Target::of(&Change::Sysctl { name: name.into(), value: value.into() });
        assert!(sysctl("net.ipv4.tcp_rmem", "4096\t131072\t6291456").is_ok());
        assert!(sysctl("net.ipv4.conf.eth0/100.forwarding", "1").is_ok());
        for name in ["", ".", "..", "a..b", "net./.x", "a b", "a\nb", ".net", "net.", "//.x"] {
            assert!(sysctl(name, "1").is_err(), "{name:?}");
        }
        for value in ["", " ", "1\n2", "1\0", "\u{1b}[2J", &"1".repeat(5000)] {
            assert!(sysctl("net.x", value).is_err(), "{value:?}");
        }
        for path in ["/etc/passwd", "../x", "a/../../b", "", "a//b", "a\nb"] {
            assert!(Target::of(&Change::Sysfs { path: path.into(), value: "1".into() }).is_err(), "{path:?}");
        }
        for path in ["passwd", "../etc/shadow", "sysctl.d/90-other.conf"] {
            let value = Value::File { mode: 0o644, owner: None, content: String::new() };
            assert!(Target::File(path.into()).check(&value).is_err(), "{path:?}");
        }
    }

    #[test]
    fn values_are_compared_as_the_kernel_means_them() {
        let text = |text: &str| Value::Text(text.into());
        let rmem = Target::Sysctl("net.ipv4.tcp_rmem".into());
        assert!(rmem.same(&text("4096\t131072\t6291456\n"), &text("4096 131072  6291456")));
        assert!(!rmem.same(&text("4096 131072 6291456"), &text("4096 131072 6291457")));
        let mask = Target::Sysfs("class/net/e/queues/rx-0/rps_cpus".into());
        assert!(mask.same(&text("00000000,000000FF"), &text("ff")));
        assert!(mask.same(&text("00"), &text("0")));
        let file = |owner| Value::File { mode: 0o644, owner, content: "YQ==".into() };
        let conf = Target::File(SYSCTL.into());
        assert!(conf.same(&file(None), &file(Some([7, 7]))));
        assert!(!conf.same(&file(Some([0, 0])), &file(Some([7, 7]))));
        assert_eq!(file(None).to_string(), "a file of 1 byte");
    }
}
