//! Runs a copy, and shows how it goes.

use tidecast::event::copy::{News, Started};
use tidecast::{Copy, Copying, Reached};
use tidecast_text::bytes_per_second;

use super::tell::{Shown, tell};
use crate::cmd::drive;
use crate::failure::Outcome;
use crate::output::Output;
use crate::report::{Reporter, fields_of};

/// Copies, and tells of it.
pub(super) fn run(copy: Copy, shown: Shown, reporter: &mut Reporter) -> Outcome {
    let stream = copy.stream();
    if let Some(path) = &stream {
        Output::of(path, reporter)?;
    }
    let shown = if stream.is_some() { Shown::default() } else { shown };
    follow(tidecast::copy(copy), shown, reporter, |_| {})
}

/// Waits for the end of a copy, which a signal ends; `begun` is called when it has begun.
pub(super) fn follow(
    copying: Copying,
    shown: Shown,
    reporter: &mut Reporter,
    mut begun: impl FnMut(&Started),
) -> Outcome {
    let news = |news, reporter: &mut Reporter| {
        if let News::Step(step) = news {
            reporter.clear();
            reporter.result(&format!("{:>12}  {}", bytes_per_second(step.bytes_per_second), step.what));
        }
    };
    let ended = drive::run_with_news(|| copying, reporter, |started, _| begun(started), news);
    let done = match &ended {
        Ok(done) => Some(done),
        Err(failure) => match failure.reached() {
            Some(Reached::Copy(done)) => Some(&**done),
            _ => None,
        },
    };
    done.iter().for_each(|done| tell(done, shown, reporter));
    Ok(fields_of(&ended?))
}
