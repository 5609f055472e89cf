//! One change of a host's settings, as data.

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
    /// Sets the MTU of an interface.
    Mtu {
        /// The interface.
        interface: String,
        /// Bytes of the largest IP packet.
        bytes: u32,
    },
    /// Replaces the root queueing discipline of an interface.
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
}
