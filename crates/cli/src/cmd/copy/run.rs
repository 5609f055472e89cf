//! Runs a copy, and shows how it goes.

use serde_json::{Value, json};
use tidecast_mover::session::{Copy, Copying, Done, Event, Step};
use tidecast_text::bytes_per_second;

use super::tell::{self, Shown, failure};
use crate::cmd::Context;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::report::{Reporter, object, round};
use crate::stop::{Stop, block_on};

/// Copies, and tells of it.
pub(super) fn run(copy: Copy, shown: Shown, context: &Context<'_>, reporter: &mut Reporter) -> Outcome {
    let Some((from, to)) = copy.pairs().first() else { return Err(Failure::cut("cut off")) };
    let mut start = json!({ "from": from.to_string(), "to": to.to_string() });
    let stream = copy.stream();
    if let (Some(path), Value::Object(start)) = (&stream, &mut start) {
        start.insert("to".into(), Output::of(path, reporter)?.to_string().into());
    }
    if let (2.., Value::Object(start)) = (copy.pairs().len(), &mut start) {
        start.insert("pairs".into(), copy.names().into());
    }
    let dry = copy.receive.dry_run;
    let copying = copy.start().map_err(failure)?;
    reporter.started("copy", object(start));
    let done = follow(copying, true, context, reporter)?;
    let shown = if stream.is_some() { Shown::default() } else { shown };
    let mut fields = tell::tell(&done, dry, shown, reporter)?;
    if let Some(ladder) = &done.ladder {
        let step = |step: &Step| json!({ "step": step.what, "bytes_per_second": step.rate().round(), "seconds": round(step.seconds) });
        let steps: Vec<Value> = ladder.steps.iter().map(step).collect();
        fields.extend(object(json!({ "ladder": steps, "limit": ladder.limit, "wire": ladder.wire })));
    }
    Ok(fields)
}

/// Waits for the end of a copy; a signal ends it.
pub(super) fn follow(
    mut copying: Copying,
    shows: bool,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> Result<Done, Failure> {
    block_on(context.threads(), async {
        let stop = Stop::listen()?;
        while let Some(event) = copying.next_event() {
            if stop.is_asked() {
                copying.stop();
            }
            match event {
                Event::Warning(warning) => reporter.warning(&warning.to_string()),
                Event::Progress(progress) if shows => reporter.progress(&tell::snapshot(&progress)),
                Event::Step(step) => {
                    reporter.clear();
                    reporter.result(&format!("{:>12}  {}", bytes_per_second(step.rate()), step.what));
                }
                _ => {}
            }
        }
        let done = copying.wait().map_err(failure)?;
        if let Some(ladder) = &done.ladder {
            reporter.result(&format!("the limit: {}", ladder.limit));
        }
        Ok(done)
    })
}
