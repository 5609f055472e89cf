//! The files that make changes last: one for kernel parameters, one for files below /sys, each with our name, and the
//! link that has systemd start the second.

use std::collections::BTreeMap;

use tidecast_text::quote;

use super::step::Step;
use super::target::{Host, SYSCTL, Target, UNIT, Value, WANTED};

const HEAD: &str =
    "# Written by tidecast doctor --fix; tidecast doctor --undo removes it and restores the values before.\n";

/// The steps that make `settings` last, and what cannot be made to last, with the reason. Of two values of one setting
/// the last counts.
pub(super) fn steps<'a>(
    host: &impl Host,
    settings: impl IntoIterator<Item = (&'a Target, &'a Value)>,
) -> (Vec<Step>, Vec<String>) {
    let last: BTreeMap<_, _> =
        settings.into_iter().filter(|(target, _)| !matches!(target, Target::File(_))).collect();
    let (files, mut notes) = files(host, &last);
    let mut steps = Vec::new();
    for (target, after) in files {
        match host.get(&target) {
            Ok(before) => {
                let before = before.unwrap_or(Value::Absent);
                if !target.same(&before, &after) {
                    steps.push(Step { target, before, after });
                }
            }
            Err(e) => notes.push(format!("{target} is not written: {e}")),
        }
    }
    (steps, notes)
}

fn files(host: &impl Host, settings: &BTreeMap<&Target, &Value>) -> (Vec<(Target, Value)>, Vec<String>) {
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
        files.push((Target::File(path.to_owned()), Value::File { mode: 0o644, owner: None, content }));
    };
    let sysctl: String = settings.iter().filter_map(parameter).collect();
    add(SYSCTL, sysctl);
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
    (files, notes)
}

/// A line of sysctl.d(5). The minus sign lets boot go on where the kernel no longer has the parameter.
fn parameter((target, value): (&&Target, &&Value)) -> Option<String> {
    let (Target::Sysctl(name), Value::Text(text)) = (target, value) else { return None };
    Some(format!("-{name} = {}\n", text.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// A command of systemd.service(5); a dollar and a percent sign have a meaning there, and are doubled.
fn command((target, value): (&&Target, &&Value)) -> Option<String> {
    let (Target::Sysfs(path), Value::Text(text)) = (target, value) else { return None };
    let shell = format!("printf '%s\\n' {} >{}", quote(text), quote(&format!("/sys/{path}")));
    let escaped = shell.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    Some(format!("ExecStart=-/bin/sh -c \"{escaped}\"\n"))
}
