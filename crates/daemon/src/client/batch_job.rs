//! The batch job of this process, by its environment.

use std::env::var;
use std::io::Read as _;

use tidecast_classad::{Ad, Expr, Value};

/// Bytes of a job's ad.
const MAX_AD: u64 = 4 << 20;
/// Batch systems, the variable that has the job's number, and one that tells which part of the job this is.
const SYSTEMS: [(&str, &str, &str); 6] = [
    ("Slurm", "SLURM_JOB_ID", "SLURM_STEP_ID"),
    ("PBS", "PBS_JOBID", "PBS_ARRAY_INDEX"),
    ("LSF", "LSB_JOBID", "LSB_JOBINDEX"),
    ("Flux", "FLUX_JOB_ID", ""),
    ("OAR", "OAR_JOB_ID", "OAR_ARRAY_INDEX"),
    // Other programs may use this variable too: it is checked last, and only beside another one of the same
    // system.
    ("Grid Engine", "JOB_ID", "SGE_TASK_ID"),
];

/// The job's name for people: its batch system and number. None outside of a job.
pub(super) fn job() -> Option<String> {
    let condor = condor_ad().and_then(|ad| {
        let number = |name| literal(&ad, name).and_then(Value::as_int);
        Some(format!("HTCondor job {}.{}", number("ClusterId")?, number("ProcId")?))
    });
    condor.or_else(|| named(|name| var(name).ok().filter(|value| !value.is_empty())))
}

fn named(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    SYSTEMS.iter().find_map(|(system, number, part)| {
        let number = variable(number)?;
        let part = variable(part);
        if *system == "Grid Engine" && variable("SGE_ROOT").or_else(|| part.clone()).is_none() {
            return None;
        }
        let part = part.filter(|part| part != "undefined").map_or(String::new(), |part| format!(".{part}"));
        Some(format!("{system} job {number}{part}"))
    })
}

/// The ad of the HTCondor job for which this process transfers files, or in which it runs.
pub(super) fn condor_ad() -> Option<Ad> {
    let mut text = Vec::new();
    let file = std::fs::File::open(var("_CONDOR_JOB_AD").ok()?).ok()?;
    file.take(MAX_AD).read_to_end(&mut text).ok()?;
    Ad::parse_all(&text).ok()?.into_iter().next()
}

/// Whether a job runs in a container, which sees its scratch directory but not the targets of links there.
pub(super) fn is_contained(ad: &Ad) -> bool {
    let value = |name| tidecast_classad::Context::at(0).attribute(name, ad, None).ok();
    let wanted =
        |name| value(name).is_some_and(|value| value.as_bool() == Some(true) || value == Value::Int(1));
    let image = |name| value(name).is_some_and(|value| value.as_str().is_some_and(|image| !image.is_empty()));
    ["WantContainer", "WantDocker", "WantDockerImage", "WantSIF"].into_iter().any(wanted)
        || ["ContainerImage", "DockerImage", "SingularityImage"].into_iter().any(image)
}

fn literal<'a>(ad: &'a Ad, name: &str) -> Option<&'a Value> {
    match ad.get(name)? {
        Expr::Literal(value) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_job_is_called_by_its_system_and_number() {
        for (variables, job) in [
            (&[("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0")][..], Some("Slurm job 7.0")),
            (&[("SLURM_JOB_ID", "7")], Some("Slurm job 7")),
            (&[("PBS_JOBID", "7.server")], Some("PBS job 7.server")),
            (&[("LSB_JOBID", "7"), ("LSB_JOBINDEX", "3")], Some("LSF job 7.3")),
            (&[("JOB_ID", "7"), ("SGE_TASK_ID", "undefined")], Some("Grid Engine job 7")),
            (&[("OAR_JOB_ID", "7")], Some("OAR job 7")),
            (&[("JOB_ID", "7")], None),
            (&[], None),
        ] {
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(named(variable).as_deref(), job);
        }
    }

    #[test]
    fn a_job_in_a_container_is_told_by_its_ad() {
        let contained = |text: &[u8]| is_contained(&Ad::parse_all(text).unwrap().remove(0));
        assert!(contained(b"WantContainer = true\n") && contained(b"DockerImage = \"debian\"\n"));
        assert!(!contained(b"WantContainer = false\n") && !contained(b"ContainerImage = \"\"\n"));
    }
}
