//! One run on a thread of its own, with progress and Ctrl-C.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use tidecast_sim::check::Watch;
use tidecast_sim::job::Job;
use tidecast_sim::outcome::Outcome;
use tidecast_sim::progress::Progress;
use tidecast_sim::report::seconds;
use tidecast_sim::rivals;
use tidecast_sim::storm;
use tidecast_sim::world::World;

use super::plan::{How, Plan};
use crate::failure::Failure;
use crate::report::{Reporter, Snapshot};
use crate::stop::Stop;

/// With more nodes than this, the checks that look at every step of every engine would take most of the time.
const CHECKED: usize = 256;

/// Runs the way of that number.
///
/// # Errors
/// What cannot be simulated is a usage error, a broken rule a fault of this program; Ctrl-C cuts it off.
pub(super) async fn watch(
    plan: &Arc<Plan>,
    way: usize,
    reporter: &mut Reporter,
    stop: &Stop,
) -> Result<Outcome, Failure> {
    let progress = Arc::new(Progress::new());
    let (name, work) = plan.ways.get(way).cloned().context("there is no such way")?;
    let (of_run, plan_of_run) = (progress.clone(), plan.clone());
    let mut task = tokio::task::spawn_blocking(move || simulate(&work, &plan_of_run, &of_run));
    let began = Instant::now();
    let mut outcome = loop {
        tokio::select! {
            done = &mut task => break done.context("a thread of Tidecast failed"),
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
        if stop.is_asked() {
            progress.stop();
        }
        let (now, done, of) = progress.get();
        let total = plan.size.saturating_mul(u64::from(plan.topology.len()).saturating_sub(1));
        let bytes = (u128::from(total) * u128::from(done)).checked_div(of.into()).unwrap_or(0) as u64;
        let run = Some((name.clone(), Some(seconds(now))));
        reporter.progress(&Snapshot { stage: "sim", bytes, total, run, ..Snapshot::default() });
    };
    tracing::info!("{name}: {:.1} s of real time", began.elapsed().as_secs_f64());
    if stop.is_asked() {
        let at = seconds(progress.get().0);
        let error =
            anyhow!("interrupted in {name} at {at:.3} s of simulated time; the same command begins anew");
        return Err(Failure { error, ..Failure::cut("") });
    }
    if let Ok(Ok(outcome)) = &mut outcome {
        outcome.algorithm = name;
    }
    outcome?
}

fn simulate(how: &How, plan: &Plan, progress: &Progress) -> Result<Outcome, Failure> {
    match *how {
        How::Engine { policy, speech, plan: knows } => {
            let run = |size: u64| run_job(&plan.job(policy, speech, knows, size)?, progress);
            match plan.beginning(speech) {
                Some(begun) => Ok(rivals::extend(&run(begun / 2)?, run(begun)?, plan.size)),
                None => run(plan.size),
            }
        }
        How::Mount { plan: knows } => run_job(&plan.mount(knows)?, progress),
        How::Rival { rival, shuffled } => {
            rivals::run(rival, shuffled, &plan.broadcast(), progress).map_err(Failure::usage)
        }
        How::Server(server) => Ok(storm::run(&plan.storm(server), progress)),
    }
}

fn run_job(job: &Job, progress: &Progress) -> Result<Outcome, Failure> {
    let watch = if job.topology.nodes.len() > CHECKED { Watch::Light } else { Watch::Full };
    let mut world = World::watched(job, watch).map_err(Failure::usage)?;
    let broken = |what| anyhow!("a rule was broken, which is a bug of this program: {what}");
    Ok(world.run(progress).map_err(broken)?)
}
