//! What people are told of results and news, a line each: the same by every program. Names and texts of others are made printable.

mod bcast;
mod copy;
mod daemon;
mod found;
mod get;
mod mount;
mod status;

/// A stranger's text without what could move the cursor or change colours.
fn plain(text: &str) -> String {
    tidecast_text::escaped(text).to_string()
}
