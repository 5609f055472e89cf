//! Changes of settings: planned, made and taken back.

use tidecast_doctor::change::{
    Applied, Error as ChangeError, Live, Places, Plan, Record, Restored, Undone, apply, undo,
};
use tidecast_doctor::{Change, Finding, Verdict};
use tidecast_event::doctor::{Done, Fix, Setting, Started};
use tidecast_event::{Error, PartialResult};
use tidecast_text::count;

use crate::operation::Work;

/// Plans the changes that mend the findings; with `shown`, makes them if they are those.
pub(super) fn fix(findings: &[Finding], shown: Option<&[String]>) -> Result<Fix, Error> {
    let places = Places::default();
    let live = Live::new(places.clone());
    // A note is no loss: its remedy is shown beside it and left to a person.
    let costly = findings.iter().filter(|finding| finding.verdict == Verdict::Costs);
    let changes: Vec<Change> = costly.flat_map(|finding| finding.changes.clone()).collect();
    let Some(shown) = shown else {
        let earlier = Record::look(&places.record).map_err(failed)?;
        return Ok(planned(&Plan::new(&changes, &live, earlier.as_deref())));
    };
    let mut record = Record::open(&places.record).map_err(failed)?;
    let plan = Plan::new(&changes, &live, Some(record.entries()));
    if plan.commands() != shown {
        return Err(Error::fault(
            "the settings of this host have changed since the commands were shown; run it again",
        ));
    }
    let applied = apply(&plan, &live, &mut record, &mut |_| Ok(())).map_err(failed)?;
    Ok(Fix { changed: applied.into_iter().map(changed).collect(), ..planned(&plan) })
}

/// Takes all recorded changes back.
pub(super) fn take_back(work: &Work<Started, Done>) -> Result<Done, Error> {
    work.started(Started { command: "doctor", ..Started::default() });
    let places = Places::default();
    let undone = if Record::look(&places.record).is_ok_and(|found| found.is_some_and(|all| all.is_empty()))
        && !places.record.exists()
    {
        Vec::new()
    } else {
        let record = Record::open(&places.record).map_err(failed)?;
        undo(&Live::new(places), record, &mut |_| Ok(())).map_err(failed)?
    };
    let undone: Vec<Setting> = undone.into_iter().map(restored).collect();
    ended(Done { seconds: work.seconds(), undone: Some(undone), ..Done::default() })
}

/// Fails if the system refused a change.
pub(super) fn ended(done: Done) -> Result<Done, Error> {
    let all = done.fix.iter().flat_map(|fix| &fix.changed).chain(done.undone.iter().flatten());
    let refused = all.filter(|setting| setting.outcome == "refused").count();
    if refused == 0 {
        return Ok(done);
    }
    let error = format!("{} could not be changed", count(refused as u64, "setting"));
    Err(Error::fault(error).with(PartialResult::Doctor(Box::new(done))))
}

fn failed(error: ChangeError) -> Error {
    Error::fault(error)
}

fn planned(plan: &Plan) -> Fix {
    Fix {
        commands: plan.commands(),
        by_hand: plan.manual.clone(),
        left_out: plan.notes.clone(),
        script: plan.script(),
        changed: Vec::new(),
    }
}

fn changed(one: Applied) -> Setting {
    let (outcome, now, error) = match one.now {
        Ok(now) => ("changed", now.to_string(), None),
        Err(error) => ("refused", one.before.to_string(), Some(error)),
    };
    Setting { setting: one.target.to_string(), before: one.before.to_string(), now, outcome, error }
}

fn restored(one: Undone) -> Setting {
    let setting = one.target.to_string();
    let of = |outcome, before: String, now: String, error| Setting { setting, before, now, outcome, error };
    match one.restored {
        Restored::Now(now) => of("restored", String::new(), now.to_string(), None),
        Restored::Already => of("already restored", String::new(), String::new(), None),
        Restored::Foreign { ours, now } => of("changed by others", ours.to_string(), now.to_string(), None),
        Restored::Gone => of("gone", String::new(), String::new(), None),
        Restored::Refused(error) => of("refused", String::new(), String::new(), Some(error)),
    }
}
