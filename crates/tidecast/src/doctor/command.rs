//! Changes of settings as the commands that root types.

use tidecast_doctor::Change;
use tidecast_text::quote;

/// What root types for a change.
pub(super) fn command(change: &Change) -> String {
    match change {
        Change::Sysctl { name, value } => format!("sysctl -w {name}={}", quote(value)),
        Change::Sysfs { path, value } => format!("echo {} > /sys/{path}", quote(value)),
        Change::Mtu { interface, bytes } => {
            format!("ip link set dev {} mtu {bytes}", quote(interface))
        }
        Change::Qdisc { interface, kind } => {
            format!("tc qdisc replace dev {} root {}", quote(interface), quote(kind))
        }
        Change::Manual { command } => command.clone(),
    }
}
