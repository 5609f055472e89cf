//! The files that make changes last: one for kernel parameters, one for interfaces, one for what is below /sys,
//! each with our name, and the link that has systemd start the last.

use tidecast_text::quote;

use super::target::{Host, Target, Value};

/// Read at boot by systemd-sysctl and by sysctl --system.
pub(super) const SYSCTL: &str = "sysctl.d/90-tidecast-doctor.conf";
/// Read by udev when an interface appears.
pub(super) const UDEV: &str = "udev/rules.d/90-tidecast-doctor.rules";
/// Writes what is below /sys at boot.
pub(super) const UNIT: &str = "systemd/system/tidecast-doctor.service";
/// Has systemd start it.
pub(super) const WANTED: &str = "systemd/system/multi-user.target.wants/tidecast-doctor.service";
const HEAD: &str =
    "# Written by tidecast doctor --fix; tidecast doctor --undo removes it and restores the values before.\n";

/// The files for `settings`, and what cannot be made to last, with the reason.
pub(super) fn files(host: &impl Host, settings: &[(Target, Value)]) -> (Vec<(Target, Value)>, Vec<String>) {
    let (mut files, mut notes) = (Vec::new(), Vec::new());
    let mut add = |path: &str, body: String| {
        if body.is_empty() {
            return;
        }
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        if !host.has_directory(directory) {
            notes.push(format!(
                "{path} is not written, so that part of it ends at reboot: no directory /etc/{directory}"
            ));
            return;
        }
        let content = data_encoding::BASE64.encode(format!("{HEAD}{body}").as_bytes());
        files.push((Target::File(path.to_owned()), Value::File { mode: 0o644, content }));
    };
    let sysctl: String = settings.iter().filter_map(parameter).collect();
    add(SYSCTL, sysctl);
    add(UDEV, settings.iter().filter_map(rule).collect());
    let commands: String = settings.iter().filter_map(command).collect();
    if !commands.is_empty() {
        add(
            UNIT,
            format!(
                "[Unit]\nDescription=Settings of devices that tidecast doctor has changed\nAfter=systemd-udev-settle.service\n\n\
                 [Service]\nType=oneshot\n{commands}\n[Install]\nWantedBy=multi-user.target\n"
            ),
        );
        if host.has_directory("systemd/system/multi-user.target.wants") {
            files.push((Target::File(WANTED.to_owned()), Value::Link("../tidecast-doctor.service".into())));
        } else {
            notes.push("tidecast-doctor.service is not enabled: no directory /etc/systemd/system/multi-user.target.wants".into());
        }
    }
    for (target, _) in settings {
        if let Target::Mtu(interface) | Target::Qdisc(interface) = target
            && !is_plain(interface)
        {
            notes.push(format!(
                "{target} ends at reboot: the name has characters that a udev rule cannot match"
            ));
        }
    }
    (files, notes)
}

/// A line of sysctl.d(5). The minus sign lets boot go on where the kernel no longer has the parameter.
fn parameter((target, value): &(Target, Value)) -> Option<String> {
    let (Target::Sysctl(name), Value::Text(text)) = (target, value) else { return None };
    Some(format!("-{name} = {}\n", text.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// A rule of udev(7) for an interface.
fn rule((target, value): &(Target, Value)) -> Option<String> {
    let (interface, action) = match (target, value) {
        (Target::Mtu(interface), Value::Text(bytes)) => (interface, format!("ATTR{{mtu}}=\"{bytes}\"")),
        (Target::Qdisc(interface), Value::Qdisc { kind, .. }) => {
            (interface, format!("RUN+=\"/sbin/tc qdisc replace dev {interface} root {kind}\""))
        }
        _ => return None,
    };
    is_plain(interface)
        .then(|| format!("ACTION==\"add\", SUBSYSTEM==\"net\", KERNEL==\"{interface}\", {action}\n"))
}

/// A command of systemd.service(5); a dollar and a percent sign have a meaning there, and are doubled.
fn command((target, value): &(Target, Value)) -> Option<String> {
    let (Target::Sysfs(path), Value::Text(text)) = (target, value) else { return None };
    let shell = format!("printf '%s\\n' {} >{}", quote(text), quote(&format!("/sys/{path}")));
    let escaped = shell.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    Some(format!("ExecStart=-/bin/sh -c \"{escaped}\"\n"))
}

/// A name without characters that udev expands or matches patterns by.
fn is_plain(interface: &str) -> bool {
    interface.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) && !interface.starts_with('-')
}
