//! Taking all recorded changes back.
//!
//! The changes of one target form a chain: the value before the first, then each value set. What is there now
//! is looked up in the chain from its end; a value that is not in it was set by somebody else and stays. So
//! undo can be interrupted and run again at any point, and needs no mark of its own.

use super::error::Error;
use super::record::{Entry, Progress, Record};
use super::target::{Host, Target, Value};

/// What became of one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restored {
    /// It has its value before again.
    Now(Value),
    /// It had it already.
    Already,
    /// Somebody else has changed it since: it stays as it is.
    Foreign {
        /// The value that was set by us.
        ours: Value,
        /// The value that is there.
        now: Value,
    },
    /// This host no longer has it.
    Gone,
    /// The system refused; the record keeps it.
    Refused(String),
}

/// What became of one target, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// The target.
    pub target: Target,
    /// What became of it.
    pub restored: Restored,
}

/// Restores the values before all recorded changes, in reverse order, and removes the record, but for what the
/// system refuses.
///
/// `reach` is as in [`super::apply()`].
///
/// # Errors
/// The record cannot be written. What was restored by then stays so.
pub fn undo(
    host: &impl Host,
    record: Record,
    reach: &mut dyn FnMut(&'static str) -> Result<(), Error>,
) -> Result<Vec<Undone>, Error> {
    let mut all = Vec::new();
    for target in order(&record) {
        let chain: Vec<&Entry> = record.entries().iter().filter(|entry| entry.target == target).collect();
        reach("restore")?;
        let restored = match host.get(&target) {
            Ok(None) if !matches!(target, Target::File(_)) => Restored::Gone,
            Ok(now) => {
                let now = now.unwrap_or(Value::Absent);
                match wanted(&target, &chain, last_begun(&record) == Some(&target), &now) {
                    Wanted::Restore(before) => put(host, &target, before),
                    Wanted::Nothing => tidy(host, &target),
                    Wanted::Foreign(ours) => Restored::Foreign { ours, now },
                }
            }
            Err(e) => Restored::Refused(e.to_string()),
        };
        all.push(Undone { target, restored });
    }
    reach("remove record")?;
    let refused: Vec<Target> = all
        .iter()
        .filter(|undone| matches!(undone.restored, Restored::Refused(_)))
        .map(|undone| undone.target.clone())
        .collect();
    record.keep(&refused)?;
    reach("end")?;
    Ok(all)
}

/// The targets, those changed last first.
fn order(record: &Record) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for entry in record.entries().iter().rev() {
        if !targets.contains(&entry.target) {
            targets.push(entry.target.clone());
        }
    }
    targets
}

enum Wanted<'a> {
    Restore(&'a Value),
    Nothing,
    Foreign(Value),
}

/// The target of the change during which the last fix was interrupted.
fn last_begun(record: &Record) -> Option<&Target> {
    let all = record.entries();
    let is_open = |entry: &Entry| entry.progress == Progress::Intended;
    let first = all.iter().rposition(|entry| !is_open(entry)).map_or(0, |at| at + 1);
    all.get(first).map(|entry| &entry.target)
}

/// What to do with `target`, whose changes are `chain` and whose value is `now`; `in_flight`: a fix was
/// interrupted while it changed it.
fn wanted<'a>(target: &Target, chain: &[&'a Entry], in_flight: bool, now: &Value) -> Wanted<'a> {
    let is_ours = |entry: &Entry| match &entry.progress {
        Progress::Made(read) => target.same(now, read),
        _ => target.same(now, &entry.after),
    };
    let Some(last) = chain.last() else { return Wanted::Nothing };
    let place = chain.iter().rposition(|entry| is_ours(entry));
    if place.is_none() && chain.iter().any(|entry| target.same(now, &entry.before)) {
        // It was there before some change and set by none.
        return Wanted::Nothing;
    }
    let place = match place {
        Some(place) => place,
        // The kernel may have made another value of it, and the crash came before that was noticed.
        None if in_flight => chain.len() - 1,
        None => return Wanted::Foreign(last.after.clone()),
    };
    let mut begin = place;
    while begin > 0 && target.same(&chain[begin].before, &chain[begin - 1].after) {
        begin -= 1;
    }
    let before = &chain[begin].before;
    if target.same(before, now) { Wanted::Nothing } else { Wanted::Restore(before) }
}

fn put(host: &impl Host, target: &Target, before: &Value) -> Restored {
    if let Err(e) = host.set(target, before) {
        return Restored::Refused(e.to_string());
    }
    match host.get(target) {
        Ok(now) => {
            let now = now.unwrap_or(Value::Absent);
            if target.same(&now, before) {
                Restored::Now(now)
            } else {
                Restored::Refused(format!("it is {now} instead of {before}"))
            }
        }
        Err(e) => Restored::Refused(e.to_string()),
    }
}

/// A file that has its content already may have one in the making beside it, which a crash has left: writing
/// removes it.
fn tidy(host: &impl Host, target: &Target) -> Restored {
    if let Target::File(_) = target
        && let Ok(now) = host.get(target)
        && let Err(e) = host.set(target, &now.unwrap_or(Value::Absent))
    {
        return Restored::Refused(e.to_string());
    }
    Restored::Already
}
