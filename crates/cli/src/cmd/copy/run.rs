//! Runs a copy, and shows its progress and result.

use tidecast::event::copy::{Done, News, Started};
use tidecast::{Copy, Copying};
use tidecast_text::{count, escaped};

use crate::cmd::run_operation;
use crate::failure::{Outcome, reached};
use crate::output::Output;
use crate::report::{Reporter, fields_of};

/// Output in rsync's format.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    /// Each change, in rsync's letters (`--itemize-changes`).
    pub(super) itemize: bool,
    /// Counts of files and bytes (`--stats`).
    pub(super) stats: bool,
}

/// Copies, and prints the result.
pub(super) fn run(copy: Copy, shown: Shown, reporter: &mut Reporter) -> Outcome {
    let stream = copy.stream();
    if let Some(path) = &stream {
        Output::of(path, reporter)?;
    }
    let shown = if stream.is_some() { Shown::default() } else { shown };
    follow(tidecast::copy(copy), shown, reporter, |_| {})
}

/// Waits for the end of a copy; a signal stops it. `begun` is called when the copy has begun.
pub(super) fn follow(
    copying: Copying,
    shown: Shown,
    reporter: &mut Reporter,
    mut begun: impl FnMut(&Started),
) -> Outcome {
    let news = |news, reporter: &mut Reporter| {
        if let News::Step(step) = news {
            reporter.clear();
            reporter.result(&step.line());
        }
    };
    let ended = run_operation::run_with_news(|| copying, reporter, |started, _| begun(started), news);
    reached(&ended).iter().for_each(|done| tell(done, shown, reporter));
    Ok(fields_of(&ended?))
}

/// Prints the result.
fn tell(done: &Done, shown: Shown, reporter: &Reporter) {
    for problem in &done.problems {
        // With JSON the names are not escaped, as in `problems`.
        let path = if reporter.is_json() { problem.path.clone() } else { escaped(&problem.path).to_string() };
        reporter.warning(&format!("{path}: {}", problem.what));
    }
    if done.problems_more > 0 {
        reporter.warning(&format!("and {}", count(done.problems_more, "more problem")));
    }
    done.lines(shown.itemize, shown.stats).iter().for_each(|line| reporter.result(line));
}
