//! What would change on this host, and in which order.

use super::persist;
use super::record::Entry;
use super::remedy::Change;
use super::script;
use super::step::Step;
use super::target::{Host, Target, Value};

/// Queueing disciplines whose classes and filters this program cannot restore.
const CLASSFUL: [&str; 11] =
    ["htb", "hfsc", "prio", "drr", "qfq", "ets", "cbq", "taprio", "mqprio", "multiq", "dualpi2"];

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
    /// changes of the record, which the lasting files keep.
    #[must_use]
    pub fn new(changes: &[Change], host: &impl Host, earlier: &[Entry]) -> Self {
        let mut plan = Plan::default();
        for change in changes {
            match Target::of(change) {
                Ok(Some((target, value))) => plan.add(host, target, value),
                Ok(None) => {
                    if let Change::Manual { command } = change
                        && !plan.manual.contains(command)
                    {
                        plan.manual.push(command.clone());
                    }
                }
                Err(why) => plan.notes.push(why),
            }
        }
        // Queueing disciplines first, then MTUs: the default discipline, a kernel parameter, is undone before
        // them.
        plan.steps.sort_by_key(|step| rank(&step.target));
        if !plan.steps.is_empty() {
            plan.last(host, earlier);
        }
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
        if let Value::Qdisc { kind, handle, .. } = &before
            && (CLASSFUL.contains(&kind.as_str()) || (kind == "mq" && *handle != 0))
        {
            self.notes.push(format!("{target} is not changed: classes of {kind} cannot be restored"));
            return;
        }
        self.steps.push(Step { target, before, after });
    }

    /// Adds the files that make the changes last.
    fn last(&mut self, host: &impl Host, earlier: &[Entry]) {
        let mut settings: Vec<(Target, Value)> = Vec::new();
        let earlier = earlier.iter().filter(|entry| entry.is_made());
        let now = self.steps.iter().map(|step| (&step.target, &step.after));
        for (target, value) in earlier.map(|entry| (&entry.target, &entry.after)).chain(now) {
            if matches!(target, Target::File(_)) {
                continue;
            }
            settings.retain(|(there, _)| there != target);
            settings.push((target.clone(), value.clone()));
        }
        settings.sort_by_key(|(target, _)| rank(target));
        let (files, notes) = persist::files(host, &settings);
        self.notes.extend(notes);
        for (target, after) in files {
            match host.get(&target) {
                Ok(before) => {
                    let before = before.unwrap_or(Value::Absent);
                    if before != after {
                        self.steps.push(Step { target, before, after });
                    }
                }
                Err(e) => self.notes.push(format!("{target} is not written: {e}")),
            }
        }
    }
}

fn rank(target: &Target) -> u8 {
    match target {
        Target::Qdisc(_) => 0,
        Target::Mtu(_) => 1,
        Target::Sysfs(_) => 2,
        Target::Sysctl(_) => 3,
        Target::File(_) => 4,
    }
}
