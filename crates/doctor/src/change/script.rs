//! Changes as commands of a shell.

use tidecast_text::quote;

use super::comment::comment;
use super::remedy;
use super::step::Step;
use super::target::{Target, Value};

/// The command that makes a change.
pub(super) fn command(step: &Step) -> String {
    match (&step.target, &step.after) {
        (Target::Sysctl(name), Value::Text(text)) => remedy::sysctl(name, text),
        (Target::Sysfs(path), Value::Text(text)) => remedy::sysfs(path, text),
        (Target::File(path), Value::Link(target)) => {
            format!("ln -sfn {} {}", quote(target), quote(&format!("/etc/{path}")))
        }
        (Target::File(path), Value::File { content, .. }) => {
            let bytes = data_encoding::BASE64.decode(content.as_bytes()).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            // The files are ours: each of their lines begins with a word that is not the end mark.
            format!("cat >{} <<'END-OF-FILE'\n{text}END-OF-FILE", quote(&format!("/etc/{path}")))
        }
        // No step has another pair.
        (target, value) => format!("# {}", comment(&format!("{target}: {value}"))),
    }
}

/// A script that makes all changes.
pub(super) fn script(steps: &[Step], manual: &[String], notes: &[String]) -> String {
    let mut text = String::from(
        "#!/bin/sh\n# Changes of settings that tidecast doctor proposes for this host. To be run as root.\n\
         # It keeps no record for tidecast doctor --undo; each value before is in a comment.\nset -eu\numask 022\n",
    );
    for step in steps {
        let before = comment(&step.before.to_string());
        text.push_str(&format!(
            "\n# {}, before: {before}\n{}\n",
            comment(&step.target.to_string()),
            command(step)
        ));
    }
    for (title, lines) in [("To be run by hand", manual), ("Left out", notes)] {
        for line in lines {
            text.push_str(&format!("\n# {title}: {}\n", comment(line)));
        }
    }
    text
}
