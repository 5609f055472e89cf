//! `simulate`: a broadcast beside rival algorithms; `soak`: random clusters with random faults.

mod soak;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidecast_event::sim::{Bound, Done, Running, Started};
use tidecast_event::{Context as _, Error, Progress, Stage};
use tidecast_sim::outcome::Outcome;
use tidecast_sim::plan::{Plan, PlanError, RunError};
use tidecast_sim::report::{figures, run as run_of, seconds};
use tidecast_sim::{plan, plot, progress, table};

pub use self::soak::{Soak, SoakOptions, soak};
use crate::operation::{Operation, Work, start};
pub use tidecast_sim::baselines::Algorithm;
pub use tidecast_sim::fault::{Spec as Fault, help as faults};
pub use tidecast_sim::plan::PlanRequest as SimulateOptions;
pub use tidecast_sim::soak::Seeds;
pub use tidecast_sim::startup_storm::Server;

/// The interval of progress events of a run.
const TELLS: Duration = Duration::from_millis(100);

/// The operation of [`simulate`].
pub type Simulation = Operation<Started, Done>;

/// Runs the engine of this program for every node of a modelled cluster, and rival algorithms on the same
/// network: returns the times and the traffic of each link. A run is its seed: the same options give the same
/// figures on any machine. `plot`: draw completion curves and link use (SVG).
///
/// ```
/// use tidecast::sim::{SimulateOptions, simulate};
///
/// # fn main() -> Result<(), tidecast::Error> {
/// let options = SimulateOptions {
///     topology: "single:8@10gbit".into(),
///     size: 64 << 20,
///     algorithms: vec!["plan".into(), "chain".into()],
///     ..Default::default()
/// };
/// let done = simulate(options, false).wait_blocking()?;
/// assert_eq!(done.runs.len(), 2);
/// assert!(done.runs.iter().all(|run| run.figures.last >= Some(done.bound.seconds)));
/// println!("{}", done.table.join("\n"));
/// # Ok(())
/// # }
/// ```
pub fn simulate(options: SimulateOptions, plot: bool) -> Simulation {
    start(1, async move |work| {
        let topology = plan::topology(&options).map_err(refused)?;
        let plan = Arc::new(Plan::new(&options, topology).map_err(refused)?);
        work.started(started(&plan));
        let mut runs = Vec::new();
        for way in 0..plan.ways.len() {
            runs.push(watch(&plan, way, work).await?);
        }
        Ok(done(&plan, &runs, plot, work.seconds()))
    })
}

/// The cluster that is asked for, as a file has it.
///
/// # Errors
/// There is no such form or file.
pub fn topology(options: &SimulateOptions) -> Result<tidecast_event::sim::Topology, Error> {
    let topology = plan::topology(options).map_err(refused)?;
    Ok(tidecast_event::sim::Topology { nodes: topology.len(), topology: topology.to_text() })
}

fn refused(error: PlanError) -> Error {
    match error {
        PlanError::Refused(_) => Error::usage(error),
        other => Error::fault(other),
    }
}

fn started(plan: &Plan) -> Started {
    Started {
        command: "sim",
        topology: plan.form.clone(),
        nodes: plan.topology.len(),
        total: plan.size,
        piece_size: plan.piece,
        algorithms: plan.ways.iter().map(|(name, _)| name.clone()).collect(),
        faults: plan.faults.iter().map(ToString::to_string).collect(),
        seed: plan.seed,
        notes: plan.notes(),
    }
}

fn done(plan: &Plan, runs: &[Outcome], plot: bool, took: f64) -> Done {
    let bound = Some(plan.bound.time);
    let all: Vec<_> = runs.iter().map(|run| figures(run, bound, &plan.model)).collect();
    let table = table::lines(plan, runs, &all);
    Done {
        seconds: took,
        bound: Bound {
            seconds: seconds(plan.bound.time),
            limit: plan.bound.limit.clone(),
            simple_seconds: seconds(plan.bound.simple),
            cut_seconds: plan.bound.cut.map(seconds),
        },
        runs: runs.iter().zip(all).map(|(run, figures)| run_of(run, figures)).collect(),
        table,
        plot: plot.then(|| plot::svg(&plan.title(), &plan.subtitle(), runs, bound)),
    }
}

/// Runs the algorithm of that number on a thread of its own, and reports its progress.
async fn watch(plan: &Arc<Plan>, way: usize, work: &Work<Started, Done>) -> Result<Outcome, Error> {
    let progress = Arc::new(progress::Progress::new());
    let name = plan.ways.get(way).map(|(name, _)| name.clone()).unwrap_or_default();
    let (of_run, plan_of_run) = (progress.clone(), plan.clone());
    let mut task = tokio::task::spawn_blocking(move || plan_of_run.run(way, &of_run));
    let began = Instant::now();
    let outcome = loop {
        tokio::select! {
            done = &mut task => break done.context("a thread of Tidecast failed")?,
            () = tokio::time::sleep(TELLS) => {}
        }
        if work.stop.is_asked() {
            progress.stop();
        }
        let (now, done, of) = progress.get();
        let total = plan.size.saturating_mul(u64::from(plan.topology.len()).saturating_sub(1));
        let bytes = (u128::from(total) * u128::from(done)).checked_div(of.into()).unwrap_or(0) as u64;
        let run = Some(Running { run: name.clone(), simulated_seconds: Some(seconds(now)) });
        work.progress(Progress { stage: Stage::Sim, bytes, total, run, ..Progress::default() });
    };
    tracing::info!("{name}: {:.1} s of real time", began.elapsed().as_secs_f64());
    if work.stop.is_asked() {
        let at = seconds(progress.get().0);
        return Err(Error::interrupted(format!(
            "interrupted in {name} at {at:.3} s of simulated time; the same command starts from the beginning"
        )));
    }
    outcome.map_err(|error| match error {
        RunError::Refused(_) => Error::usage(error),
        other => Error::fault(other),
    })
}
