//! Making the changes of a plan.

use super::error::Error;
use super::persist;
use super::plan::Plan;
use super::record::{Entry, Progress, Record};
use super::step::Step;
use super::target::{Host, Target, Value};

/// What became of one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// What was changed.
    pub target: Target,
    /// Its value before.
    pub before: Value,
    /// Its value now; or why the system refused the change.
    pub now: Result<Value, String>,
}

/// Records the steps of a plan, then makes them; a change that the system refuses is reported, and the others
/// are made. The files that make changes last are written last, and contain only those that were made.
///
/// `reach` is called before and behind each effect with its name, and ends the work there by an error: tests do.
///
/// # Errors
/// The record cannot be written; then nothing further is changed.
pub fn apply(
    plan: &Plan,
    host: &impl Host,
    record: &mut Record,
    reach: &mut dyn FnMut(&'static str) -> Result<(), Error>,
) -> Result<Vec<Applied>, Error> {
    let (mut files, settings): (Vec<Step>, Vec<Step>) =
        plan.steps.iter().cloned().partition(|step| matches!(step.target, Target::File(_)));
    let mut all = make(settings, host, record, reach)?;
    if all.iter().any(|applied| applied.now.is_err()) && !files.is_empty() {
        let made = record.entries().iter().filter(|entry| entry.is_made());
        files = persist::steps(host, made.map(|entry| (&entry.target, &entry.after))).0;
    }
    all.extend(make(files, host, record, reach)?);
    reach("end")?;
    Ok(all)
}

fn make(
    steps: Vec<Step>,
    host: &impl Host,
    record: &mut Record,
    reach: &mut dyn FnMut(&'static str) -> Result<(), Error>,
) -> Result<Vec<Applied>, Error> {
    if steps.is_empty() {
        return Ok(Vec::new());
    }
    reach("announce")?;
    let intended = steps.iter().cloned().map(Entry::intended);
    let first = record.announce(intended.collect())?;
    let mut all = Vec::with_capacity(steps.len());
    for (number, step) in steps.into_iter().enumerate() {
        reach("change")?;
        // A setting that somebody has changed since the plan was shown is not overwritten: the record has
        // another value before.
        let now = host.get(&step.target).map(|now| now.unwrap_or(Value::Absent));
        let unchanged = now.is_ok_and(|now| step.target.same(&now, &step.before));
        let made = if unchanged {
            host.set(&step.target, &step.after).map_err(|e| e.to_string())
        } else {
            Err("its value has changed since it was shown".to_owned())
        };
        reach("read back")?;
        let now = made.and_then(|()| read_back(host, &step));
        let progress = now.as_ref().map_or(Progress::Refused, |now| Progress::Made(now.clone()));
        reach("mark")?;
        record.mark(first + number, progress)?;
        all.push(Applied { target: step.target, before: step.before, now });
    }
    Ok(all)
}

/// The value that a change has brought. Where the kernel has made another of it, the one before is restored:
/// nothing stays that was not shown.
fn read_back(host: &impl Host, step: &Step) -> Result<Value, String> {
    match host.get(&step.target) {
        Ok(Some(now)) if step.target.same(&now, &step.after) => Ok(now),
        Ok(now) => {
            let now = now.unwrap_or(Value::Absent);
            let back = host.set(&step.target, &step.before);
            let end = back.map_or_else(
                |e| format!(", and {} cannot be restored: {e}", step.before),
                |()| String::new(),
            );
            Err(format!("the kernel has set {now} instead of {}{end}", step.after))
        }
        Err(e) => Err(format!("it cannot be read back: {e}")),
    }
}
