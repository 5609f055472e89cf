//! Texts for people of results and news, one line each: the same in every program. Names and texts from peers are escaped.

mod bcast;
mod ca;
mod copy;
mod daemon;
mod doctor;
mod existing_files;
mod get;
mod mount;
mod peers;
mod status;

/// Settings of this host that limited a command, by the names of the doctor's checks.
pub(crate) fn host_limits(checks: &[String], command: &str) -> Option<String> {
    let names = checks.join(", ");
    (!checks.is_empty())
        .then(|| format!("limited by settings of this host: {names}; run tidecast doctor --for {command}"))
}

/// A text from a peer or file, without characters that control a terminal.
fn plain(text: &str) -> String {
    tidecast_text::escaped(text).to_string()
}
