//! The Slurm job of this process, as `srun` sees it.

use std::collections::BTreeSet;

use tidecast_text::hostlist;

use crate::hosts::MAX_HOSTS;
use crate::hosts::job::components;

/// A job, and the nodes that one `srun` starts together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// Its number.
    pub(crate) job: String,
    /// The nodes of each component; one unless the job is heterogeneous, none if Slurm does not report them.
    pub(crate) groups: Vec<BTreeSet<String>>,
}

impl Allocation {
    /// The job in the environment.
    pub(crate) fn find(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let job = variable("SLURM_JOB_ID")?;
        let nodes =
            |list: String| hostlist::names(&list, MAX_HOSTS).ok().map(|all| all.into_iter().collect());
        let groups = match components(&variable) {
            Some(lists) => lists.into_iter().filter_map(nodes).collect(),
            None => {
                let list = variable("SLURM_JOB_NODELIST").or_else(|| variable("SLURM_NODELIST"));
                list.and_then(nodes).into_iter().collect()
            }
        };
        Some(Self { job, groups })
    }

    /// The component of a node; `None` if it is outside the job.
    pub(crate) fn group(&self, name: &str) -> Option<usize> {
        if self.groups.is_empty() {
            return Some(0);
        }
        self.groups.iter().position(|nodes| nodes.contains(name))
    }

    /// Whether the job is heterogeneous.
    pub(crate) fn mixed(&self) -> bool {
        self.groups.len() > 1
    }

    /// The error for a host outside the job.
    pub(crate) fn outside(&self, name: &str) -> String {
        let nodes = hostlist::fold(self.groups.iter().flatten().map(String::as_str));
        let nodes = if nodes.len() > 200 { String::new() } else { format!(" ({nodes})") };
        format!(
            "{name} is not a node of Slurm job {}{nodes}; leave it out by --exclude, or use --launch ssh",
            self.job
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn found(set: &[(&str, &str)]) -> Option<Allocation> {
        Allocation::find(|name| set.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn a_job_and_its_components() {
        assert_eq!(found(&[]), None);
        let plain = found(&[("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "n[1-3]")]).unwrap();
        assert_eq!((plain.group("n2"), plain.group("n4"), plain.mixed()), (Some(0), None, false));
        assert!(plain.outside("n4").starts_with("n4 is not a node of Slurm job 7 (n[1-3]);"));
        let mixed = found(&[
            ("SLURM_JOB_ID", "7"),
            ("SLURM_JOB_NODELIST", "a"),
            ("SLURM_HET_SIZE", "2"),
            ("SLURM_JOB_NODELIST_HET_GROUP_0", "a"),
            ("SLURM_JOB_NODELIST_HET_GROUP_1", "g[1-2]"),
        ])
        .unwrap();
        assert_eq!((mixed.group("a"), mixed.group("g2"), mixed.mixed()), (Some(0), Some(1), true));
        let silent = found(&[("SLURM_JOB_ID", "7")]).unwrap();
        assert_eq!(silent.group("x"), Some(0), "srun decides");
    }
}
