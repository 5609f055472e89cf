//! What would change on this host, and in which order.

use super::persist;
use super::record::Entry;
use super::remedy::Change;
use super::script;
use super::step::Step;
use super::target::{Host, Target, Value};

/// What would change on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The changes, in the order in which they are made.
    pub steps: Vec<Step>,
    /// Commands that a person has to run.
    pub manual: Vec<String>,
    /// What is left out, with the reason.
    pub notes: Vec<String>,
}

impl Plan {
    /// Reads the present values and plans the changes; of two changes of one setting, the first counts. `earlier` are the
    /// changes of the record, which the lasting files keep; `None`: this user may not read it.
    #[must_use]
    pub fn new(changes: &[Change], host: &impl Host, earlier: Option<&[Entry]>) -> Self {
        let mut plan = Plan::default();
        for change in changes {
            match Target::of(change) {
                Ok(Some((target, value))) => plan.add(host, target, value),
                Ok(None) => {
                    let command = change.command();
                    if !plan.manual.contains(&command) {
                        plan.manual.push(command);
                    }
                }
                Err(why) => plan.notes.push(why),
            }
        }
        plan.steps.sort_by(|one, other| one.target.cmp(&other.target));
        plan.last(host, earlier);
        plan
    }

    /// The commands that do the same, one for each step.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        self.steps.iter().map(script::command).collect()
    }

    /// A script for sh that does the same, without a record.
    #[must_use]
    pub fn script(&self) -> String {
        script::script(&self.steps, &self.manual, &self.notes)
    }

    fn add(&mut self, host: &impl Host, target: Target, after: Value) {
        if self.steps.iter().any(|step| step.target == target) {
            return;
        }
        let before = match host.get(&target) {
            Ok(Some(before)) => before,
            Ok(None) => {
                return self.notes.push(format!("{target} is not changed: it does not exist on this host"));
            }
            Err(e) => return self.notes.push(format!("{target} is not changed: it cannot be read: {e}")),
        };
        if target.same(&before, &after) {
            return;
        }
        self.steps.push(Step { target, before, after });
    }

    /// Adds the files that make the changes last.
    fn last(&mut self, host: &impl Host, earlier: Option<&[Entry]>) {
        if self.steps.is_empty() {
            return;
        }
        let Some(earlier) = earlier else {
            let note = "the files that make the changes last: only root can read the record of earlier changes, which they also contain";
            return self.notes.push(note.into());
        };
        let earlier = earlier.iter().filter(|entry| entry.is_made());
        let now = self.steps.iter().map(|step| (&step.target, &step.after));
        let (files, notes) =
            persist::steps(host, earlier.map(|entry| (&entry.target, &entry.after)).chain(now));
        self.steps.extend(files);
        self.notes.extend(notes);
    }
}
