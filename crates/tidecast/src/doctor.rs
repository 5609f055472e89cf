//! `doctor`: whether this host is fit for its network.

mod fix;

use std::path::PathBuf;
use std::time::Duration;

use tidecast_doctor::measure::measure;
use tidecast_doctor::{Change, Facts, Finding, Goal, System, Verdict, check};
use tidecast_event::doctor::{self as said, Done, Measured, Started};
use tidecast_event::{Context as _, Error, PartialResult};
use tidecast_text::{Rate, count};

pub use tidecast_doctor::Purpose as DoctorPurpose;

use crate::operation::{Operation, Work, start};

/// What [`doctor()`] runs as.
pub type Doctor = Operation<Started, Done>;

/// The link that is assumed where no interface says its speed, bits per second.
const USUAL_LINK: u64 = 10_000_000_000;
/// The MTU that is measured with where no interface is up, bytes.
const USUAL_MTU: u32 = 1500;

/// What the host is checked for.
#[derive(Debug, Clone, Default)]
pub struct DoctorOptions {
    /// The purposes to check for. Empty: all.
    pub purposes: Vec<DoctorPurpose>,
    /// Rate of the link, bits per second. Default: that of the fastest interface that is up.
    pub link: Option<u64>,
    /// Round-trip time of the path. Default: 50 ms for copies and fields, else 1 ms.
    pub rtt: Option<Duration>,
    /// Directories of stores and caches to look at.
    pub dirs: Vec<PathBuf>,
    /// Read `proc`, `sys` and `dev` below this directory, as of another host. Default: `/`.
    pub root: Option<PathBuf>,
    /// Measure each finding whose setting a network namespace has, alone, and the file systems of [`DoctorOptions::dirs`];
    /// at most about 3 s a finding and 2 s a directory.
    pub measure: bool,
    /// What to do. Default: only read.
    pub work: DoctorWork,
}

/// What is done with the settings of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DoctorWork {
    /// Reads them and predicts what they cost.
    #[default]
    Check,
    /// Plans the changes that mend the findings, and makes none: [`Done::fix`] has them.
    Plan,
    /// Makes the changes, which needs root. They can be undone, after a crash at any point too.
    Fix {
        /// The commands as [`DoctorWork::Plan`] gave them: if others are due now, nothing is changed.
        shown: Vec<String>,
    },
    /// Takes back all changes that were ever made, which needs root.
    Undo,
}

/// Checks whether this host is fit for its network: reads its settings, changes none, and predicts what each costs.
///
/// If a setting costs more than 5% of the link's rate it fails, and the error has the findings:
///
/// ```
/// use tidecast::{DoctorOptions, PartialResult, doctor};
///
/// let options = DoctorOptions { link: Some(10_000_000_000), ..Default::default() };
/// let findings = match doctor(options).wait_blocking() {
///     Ok(done) => done.findings,
///     Err(error) => match error.partial_result() {
///         Some(PartialResult::Doctor(done)) => done.findings.clone(),
///         _ => panic!("{error}"),
///     },
/// };
/// assert!(findings.iter().any(|finding| finding.check == "tcp-receive-buffer"));
/// ```
pub fn doctor(options: DoctorOptions) -> Doctor {
    start(1, async move |work| match options.work {
        DoctorWork::Check => fit(check_host(&options, work)?),
        DoctorWork::Plan => check_host(&options, work),
        DoctorWork::Fix { .. } => fix::ended(check_host(&options, work)?),
        DoctorWork::Undo => fix::take_back(work),
    })
}

fn check_host(options: &DoctorOptions, work: &Work<Started, Done>) -> Result<Done, Error> {
    let system = match &options.root {
        Some(root) => System::below(root).with_context(|| format!("cannot open {}", root.display()))?,
        None => System::host().context("cannot open /")?,
    };
    let facts = Facts::read(&system, &options.dirs);
    let (goal, started) = goal(options, &facts)?;
    work.started(started);
    let mut findings = check::all(&facts, &goal);
    let mut measured = Ok(());
    if options.measure {
        let mtu = facts.carriers().find_map(|interface| interface.mtu).unwrap_or(USUAL_MTU);
        measured = measure(&mut findings, &goal, mtu, &facts.storage.directories);
    }
    let fix = match &options.work {
        _ if measured.is_err() => None,
        DoctorWork::Plan => Some(fix::fix(&findings, None)?),
        DoctorWork::Fix { shown } => Some(fix::fix(&findings, Some(shown))?),
        DoctorWork::Check | DoctorWork::Undo => None,
    };
    let serious = findings.iter().filter(|finding| finding.is_serious()).count();
    let findings = findings.into_iter().map(of_finding).collect();
    let done = Done { seconds: work.seconds(), link: goal.link, serious, findings, fix, undone: None };
    match measured.context("cannot measure") {
        Ok(()) => Ok(done),
        Err(error) => Err(error.with(PartialResult::Doctor(Box::new(done)))),
    }
}

/// Fails if a setting costs more than 5%.
fn fit(done: Done) -> Result<Done, Error> {
    if done.serious == 0 {
        return Ok(done);
    }
    let (link, serious) = (Rate(done.link), done.serious);
    let error = format!("this host is not fit for {link}: {} of more than 5%", count(serious as u64, "loss"));
    Err(Error::fault(error).with(PartialResult::Doctor(Box::new(done))))
}

/// The checks of this host whose settings cost a command more than 5%; none where the host cannot be read. `link`: bits
/// per second; default: of the fastest interface.
pub(crate) fn host_limits(purpose: DoctorPurpose, link: Option<u64>) -> Vec<String> {
    let Ok(system) = System::host() else { return Vec::new() };
    let facts = Facts::read(&system, &[]);
    let Some(link) = link.or_else(|| facts.fastest_link()).filter(|link| *link > 0) else {
        return Vec::new();
    };
    let goal = Goal { purposes: vec![purpose], link, rtt: None };
    let findings = check::all(&facts, &goal);
    let mut names: Vec<String> =
        findings.iter().filter(|of| of.is_serious()).map(|of| of.check.to_owned()).collect();
    names.dedup();
    names
}

/// What settings are judged against, and what of it was assumed.
fn goal(options: &DoctorOptions, facts: &Facts) -> Result<(Goal, Started), Error> {
    let mut assumed = Vec::new();
    if options.link == Some(0) {
        return Err(Error::usage("the rate of the link must be positive"));
    }
    let link = options.link.unwrap_or_else(|| match facts.fastest_link() {
        Some(link) => {
            assumed.push(format!("a link of {}, as the fastest interface has", Rate(link)));
            link
        }
        None => {
            assumed.push(format!("a link of {}, as no interface reports its speed", Rate(USUAL_LINK)));
            USUAL_LINK
        }
    });
    let goal = Goal { purposes: options.purposes.clone(), link, rtt: options.rtt };
    let purposes: Vec<DoctorPurpose> = goal.purposes().collect();
    if goal.rtt.is_none() {
        let mut times: Vec<Duration> = purposes.iter().map(|of| of.usual_rtt()).collect();
        times.sort_unstable();
        times.dedup();
        let of = |time: &Duration| {
            let names = purposes.iter().filter(|of| of.usual_rtt() == *time).map(|of| of.name());
            format!(
                "a round trip of {} ms for {}",
                time.as_secs_f64() * 1e3,
                names.collect::<Vec<_>>().join(", ")
            )
        };
        assumed.extend(times.iter().map(of));
    }
    let started = Started {
        command: "doctor",
        purposes: purposes.iter().map(|of| of.name()).collect(),
        link,
        round_trips: purposes.iter().map(|of| goal.rtt_for(*of).as_secs_f64()).collect(),
        assumed,
    };
    Ok((goal, started))
}

fn of_finding(finding: Finding) -> said::Finding {
    said::Finding {
        check: finding.check,
        object: finding.object,
        verdict: match finding.verdict {
            Verdict::Fit => "fit",
            Verdict::Costs => "costs",
            Verdict::Note => "note",
            Verdict::Unknown => "unknown",
        },
        read: finding.read,
        wanted: finding.wanted,
        why: finding.why,
        source: finding.source,
        cost: finding.cost,
        model: finding.model,
        measured: finding.measured.map(|(before, after)| Measured { before, after }),
        commands: finding.changes.iter().map(Change::command).collect(),
    }
}
