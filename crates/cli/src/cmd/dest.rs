//! What became of what stood at the destination: one rule and the same words for `bcast` and `get`.

use crate::units::count;

/// What was done to the copy, in the events of programs.
pub(crate) fn action(nothing_there: bool, unchanged: bool) -> &'static str {
    match (nothing_there, unchanged) {
        (true, _) => "delivered",
        (_, true) => "unchanged",
        _ => "replaced",
    }
}

/// What is to be said of files that were replaced, stay or were removed at `place`.
pub(crate) fn lines(replaced: u64, stale: u64, deleted: u64, place: &str) -> Vec<String> {
    let files = |n| count(n, "file");
    let mut lines = Vec::new();
    if replaced > 0 {
        lines.push(format!("replaced {} in {place}", files(replaced)));
    }
    if deleted > 0 {
        lines.push(format!("deleted {} that the source does not have from {place}", files(deleted)));
    }
    if stale > 0 {
        let (stay, them) = if stale == 1 { ("stays", "it") } else { ("stay", "them") };
        lines.push(format!(
            "{} that the source does not have {stay} in {place}; remove {them} with --delete",
            files(stale)
        ));
    }
    lines
}
