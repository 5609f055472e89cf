//! One run of one way.

use super::request::PlanError;
use super::{Plan, SimulatedMethod};
use crate::check::{Violation, Watch};
use crate::job::Job;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::world::World;
use crate::{baselines, startup_storm};

/// With more nodes than this, the checks that look at every step of every engine would take most of the time.
const CHECKED: usize = 256;

/// Why a run gave nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The request cannot be simulated.
    #[error("{0}")]
    Refused(String),
    /// A bug.
    #[error("an invariant was violated, which is a bug of this program: {0}")]
    Broken(Box<Violation>),
}

impl From<PlanError> for RunError {
    fn from(error: PlanError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl Plan {
    /// Runs the algorithm of that number, on this thread, until it is over or `progress` is told to stop.
    ///
    /// # Errors
    /// It cannot be simulated; a rule was broken.
    pub fn run(&self, way: usize, progress: &Progress) -> Result<Outcome, RunError> {
        let Some((name, how)) = self.ways.get(way) else {
            return Err(RunError::Refused("unknown run".into()));
        };
        let mut outcome = self.simulate(how, progress)?;
        outcome.algorithm.clone_from(name);
        Ok(outcome)
    }

    fn simulate(&self, how: &SimulatedMethod, progress: &Progress) -> Result<Outcome, RunError> {
        match *how {
            SimulatedMethod::Engine { policy, protocols, plan: knows } => {
                let run = |size: u64| run_job(&self.job(policy, protocols, knows, size)?, progress);
                match self.beginning(protocols) {
                    Some(begun) => Ok(baselines::extend(&run(begun / 2)?, run(begun)?, self.size)),
                    None => run(self.size),
                }
            }
            SimulatedMethod::Mount { plan: knows } => run_job(&self.mount(knows)?, progress),
            SimulatedMethod::Baseline { baseline, shuffled } => {
                let ran = baselines::run(baseline, shuffled, &self.broadcast(), progress);
                ran.map_err(|e| RunError::Refused(e.to_string()))
            }
            SimulatedMethod::Server(server) => Ok(startup_storm::run(&self.storm(server), progress)),
        }
    }
}

fn run_job(job: &Job, progress: &Progress) -> Result<Outcome, RunError> {
    let watch = if job.topology.nodes.len() > CHECKED { Watch::Light } else { Watch::Full };
    let mut world = World::watched(job, watch).map_err(|e| RunError::Refused(e.to_string()))?;
    world.run(progress).map_err(|what| RunError::Broken(Box::new(what)))
}
