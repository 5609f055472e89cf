//! One change of a host's settings, as data.

use tidecast_text::quote;

/// One change of a setting, the remedy of a [`crate::Finding`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// Writes a kernel parameter.
    Sysctl {
        /// Its name with dots: `net.ipv4.tcp_rmem`.
        name: String,
        /// Its new value.
        value: String,
    },
    /// Writes a file below /sys.
    Sysfs {
        /// Its path relative to /sys: `devices/system/cpu/cpu0/cpufreq/scaling_governor`.
        path: String,
        /// Its new value.
        value: String,
    },
    /// Sets the MTU of an interface. A person decides it: where a switch of the path drops large packets, it cuts the host
    /// off, and no host can see that.
    Mtu {
        /// The interface.
        interface: String,
        /// Bytes of the largest IP packet.
        bytes: u32,
    },
    /// Replaces the root queueing discipline of an interface. A person decides it: classes and filters of the one before
    /// could not be restored.
    Qdisc {
        /// The interface.
        interface: String,
        /// Its kind: `fq`.
        kind: String,
    },
    /// A command that a person has to run: it is shown, and never run by this program.
    Manual {
        /// The command line.
        command: String,
    },
}

impl Change {
    /// The change of a kernel parameter.
    pub(crate) fn sysctl(name: &str, value: impl Into<String>) -> Self {
        Self::Sysctl { name: name.to_owned(), value: value.into() }
    }

    /// The command line by which root makes the change.
    #[must_use]
    pub fn command(&self) -> String {
        match self {
            Self::Sysctl { name, value } => sysctl(name, value),
            Self::Sysfs { path, value } => sysfs(path, value),
            Self::Mtu { interface, bytes } => {
                let note = "# only if all switches of the path carry frames of this size";
                format!("ip link set dev {} mtu {bytes}  {note}", quote(interface))
            }
            Self::Qdisc { interface, kind } => {
                format!("tc qdisc replace dev {} root {}", quote(interface), quote(kind))
            }
            Self::Manual { command } => command.clone(),
        }
    }
}

/// The command that sets a kernel parameter.
pub(super) fn sysctl(name: &str, value: &str) -> String {
    format!("sysctl -w {}={}", quote(name), quote(value.trim()))
}

/// The command that writes a file below /sys.
pub(super) fn sysfs(path: &str, value: &str) -> String {
    format!("echo {} > {}", quote(value.trim()), quote(&format!("/sys/{path}")))
}
