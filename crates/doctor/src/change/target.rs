//! What a change changes, the values that it can have, and the host that has them.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use super::remedy::Change;

/// Longest value, bytes.
const VALUE_MAX: usize = 4000;

/// The object of a change.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The root queueing discipline of an interface.
    Qdisc(String),
    /// The MTU of an interface.
    Mtu(String),
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
    /// No such file; for a queueing discipline, the kernel's default.
    Absent,
    /// The text of a kernel parameter or of a file below /sys, or an MTU.
    Text(String),
    /// A queueing discipline.
    Qdisc {
        /// Its kind.
        kind: String,
        /// Its handle; 0 for one that the kernel has chosen.
        handle: u32,
        /// Its options as the kernel gives them, in hexadecimal.
        options: Option<String>,
    },
    /// A file.
    File {
        /// Its permission bits.
        mode: u32,
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
    /// The target and the new value of a change; `None` for a command that a person runs.
    ///
    /// # Errors
    /// Why a name or a value is not one that a kernel has.
    pub(super) fn of(change: &Change) -> Result<Option<(Target, Value)>, String> {
        Ok(Some(match change {
            Change::Sysctl { name, value } => {
                let (target, value) = (Target::Sysctl(name.clone()), text(value)?);
                path(&sysctl_path(name))
                    .ok_or_else(|| format!("{name:?} is not a name of a kernel parameter"))?;
                (target, value)
            }
            Change::Sysfs { path: at, value } => {
                path(at).ok_or_else(|| format!("{at:?} is not a path below /sys"))?;
                (Target::Sysfs(at.clone()), text(value)?)
            }
            Change::Mtu { interface: name, bytes } => {
                (Target::Mtu(interface(name)?), Value::Text(bytes.to_string()))
            }
            Change::Qdisc { interface: name, kind } => {
                let known = !kind.is_empty() && kind.len() < 16;
                if !known || !kind.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
                    return Err(format!("{kind:?} is not a kind of queueing discipline"));
                }
                let value = Value::Qdisc { kind: kind.clone(), handle: 0, options: None };
                (Target::Qdisc(interface(name)?), value)
            }
            Change::Manual { .. } => return Ok(None),
        }))
    }

    /// Whether two values are the same setting, however the kernel spells it.
    #[must_use]
    pub fn same(&self, one: &Value, other: &Value) -> bool {
        match (one, other) {
            (Value::Text(one), Value::Text(other)) => self.normal(one) == self.normal(other),
            (
                Value::Qdisc { kind, options, .. },
                Value::Qdisc { kind: other_kind, options: other_options, .. },
            ) => {
                let unknown = options.is_none() || other_options.is_none();
                kind == other_kind && (unknown || options == other_options)
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
            Target::Qdisc(interface) => write!(f, "queueing discipline of {interface}"),
            Target::Mtu(interface) => write!(f, "MTU of {interface}"),
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
            Value::Qdisc { kind, .. } => f.write_str(kind),
            Value::File { content, .. } => write!(f, "a file of {} bytes", content.len() / 4 * 3),
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

/// A relative path of plain components.
fn path(path: &str) -> Option<&str> {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    let fine = path.len() < 1000
        && path.split('/').all(plain)
        && !path.chars().any(|c| c.is_control() || c.is_whitespace());
    fine.then_some(path)
}

/// A name that the kernel accepts for an interface (dev_valid_name), without control characters.
fn interface(name: &str) -> Result<String, String> {
    let fine = !name.is_empty()
        && name.len() < 16
        && name != "."
        && name != ".."
        && !name.chars().any(|c| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
    if fine { Ok(name.to_owned()) } else { Err(format!("{name:?} is not a name of an interface")) }
}

/// A value of one line.
fn text(value: &str) -> Result<Value, String> {
    let fine = !value.trim().is_empty()
        && value.len() < VALUE_MAX
        && value.chars().all(|c| c == '\t' || c == ' ' || c.is_ascii_graphic());
    if fine {
        Ok(Value::Text(value.to_owned()))
    } else {
        Err(format!("{value:?} is not a value of one line"))
    }
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
        let mtu = |name: &str| Target::of(&Change::Mtu { interface: name.into(), bytes: 9000 });
        assert!(mtu("$(reboot)").is_ok(), "the kernel allows it, so it is quoted");
        for name in ["", ".", "..", "a/b", "a b", "a:1", "sixteen-letters-", "a\nb"] {
            assert!(mtu(name).is_err(), "{name:?}");
        }
        for path in ["/etc/passwd", "../x", "a/../../b", "", "a//b", "a\nb"] {
            assert!(Target::of(&Change::Sysfs { path: path.into(), value: "1".into() }).is_err(), "{path:?}");
        }
        let qdisc = |kind: &str| Target::of(&Change::Qdisc { interface: "e".into(), kind: kind.into() });
        assert!(qdisc("fq_codel").is_ok());
        assert!(qdisc("fq; reboot").is_err() && qdisc("").is_err());
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
        let qdisc = |kind: &str, options: Option<&str>| Value::Qdisc {
            kind: kind.into(),
            handle: 0,
            options: options.map(str::to_owned),
        };
        let root = Target::Qdisc("e".into());
        assert!(root.same(&qdisc("fq", None), &qdisc("fq", Some("00"))));
        assert!(!root.same(&qdisc("fq", Some("01")), &qdisc("fq", Some("00"))));
    }
}
