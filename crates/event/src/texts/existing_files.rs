//! Texts of existing files at the destination, and of the origin of a rate: the same for `bcast` and `get`.

use tidecast_text::count;

use crate::bcast::ExistingFiles;
use crate::get::LinkRateFrom;

/// The origin of the rate of a link.
pub(super) fn known_from(from: LinkRateFrom) -> &'static str {
    match from {
        LinkRateFrom::Told => "by --link-rate",
        LinkRateFrom::Driver => "by the driver",
        LinkRateFrom::Trial => "by a short trial",
    }
}

/// Lines about files that were replaced, kept or removed. `of`: the number of files of a figure, and their place.
pub(super) fn lines(of: impl Fn(fn(&ExistingFiles) -> u64) -> (u64, String)) -> Vec<String> {
    let line = |figure: fn(&ExistingFiles) -> u64, format: fn(&str, [&str; 3], &str) -> String| {
        let (number, place) = of(figure);
        let verb = if number == 1 { ["was", "stays", "it"] } else { ["were", "stay", "them"] };
        (number > 0).then(|| format(&count(number, "file"), verb, &place))
    };
    let lines = [
        line(
            |f| f.replaced.saturating_sub(f.replaced_foreign),
            |files, _, place| format!("replaced {files} in {place}"),
        ),
        line(
            |f| f.replaced_foreign,
            |files, [were, ..], place| {
                format!("replaced {files} that {were} not delivered by tidecast in {place}")
            },
        ),
        line(
            |f| f.deleted,
            |files, _, place| format!("deleted {files} that the source does not have from {place}"),
        ),
        line(
            |f| f.stale.saturating_sub(f.foreign),
            |files, [_, stay, them], place| {
                format!(
                    "{files} that the source does not have {stay} in {place}; remove {them} with --delete"
                )
            },
        ),
        line(
            |f| f.foreign,
            |files, [were, stay, them], place| {
                format!(
                    "{files} that {were} not delivered by tidecast {stay} in {place}; --delete --force removes {them} too"
                )
            },
        ),
    ];
    lines.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_told_with_the_flag_that_removes_it() {
        let found = ExistingFiles { replaced: 2, replaced_foreign: 1, stale: 4, foreign: 3, deleted: 1 };
        let lines = lines(|of| (of(&found), "D".to_owned()));
        assert_eq!(
            lines,
            [
                "replaced 1 file in D",
                "replaced 1 file that was not delivered by tidecast in D",
                "deleted 1 file that the source does not have from D",
                "1 file that the source does not have stays in D; remove it with --delete",
                "3 files that were not delivered by tidecast stay in D; --delete --force removes them too",
            ]
        );
    }
}
