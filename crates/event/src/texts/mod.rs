//! Texts for people of results and news, one line each: the same in every program. Names and texts from peers are escaped.

mod bcast;
mod ca;
mod copy;
mod daemon;
mod existing_files;
mod get;
mod mount;
mod status;

/// A text from a peer or file, without characters that control a terminal.
fn plain(text: &str) -> String {
    tidecast_text::escaped(text).to_string()
}
