//! Lines of words, and the numbers in them.

use tidecast_text::units;

use super::error::Wrong;

/// The words of each non-empty line, with its number; text after a `#` is a comment.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    text.lines().enumerate().filter_map(|(i, line)| {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        (!words.is_empty()).then_some((i + 1, words))
    })
}

/// Bytes per second of a rate such as `40mbit`, `2.5gbit` or `125MB/s`.
pub(super) fn rate(word: &str) -> Result<u64, Wrong> {
    units::rate(word).ok().filter(|bits| *bits >= 8).map(|bits| bits / 8).ok_or(Wrong::Rate)
}

/// A number of digits only.
pub(super) fn number_of(word: &str) -> Option<u64> {
    word.bytes().all(|b| b.is_ascii_digit()).then(|| word.parse().ok()).flatten()
}
