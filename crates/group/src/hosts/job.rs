//! The hosts of the batch job that this runs in, as its scheduler names them.

use std::io;
use std::path::Path;

use super::{Host, HostError, parse, parse_file};

/// A job's hosts, and where they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What runs the job: "Slurm".
    pub scheduler: &'static str,
    /// Its hosts.
    pub hosts: Vec<Host>,
}

/// Why the hosts of a job could not be found.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A variable or file of the scheduler does not parse.
    #[error("the host list of {scheduler} ({from}): {source}")]
    List {
        /// Which scheduler.
        scheduler: &'static str,
        /// The variable or file.
        from: String,
        /// What is wrong with it.
        source: HostError,
    },
    /// A scheduler's file cannot be read.
    #[error("cannot read the host file of {scheduler} ({from}): {source}")]
    File {
        /// Which scheduler.
        scheduler: &'static str,
        /// The file.
        from: String,
        /// What the system said.
        source: io::Error,
    },
}

/// How a scheduler writes its list.
#[derive(Clone, Copy)]
enum Form {
    /// The variable is the list.
    List,
    /// The variable is the list, each host followed by its number of slots.
    Counted,
    /// The variable names a file whose lines begin with a host.
    File,
}

/// The variables that are looked at, first come first served.
const KNOWN: &[(&str, &str, Form)] = &[
    ("Slurm", "SLURM_JOB_NODELIST", Form::List),
    ("PBS", "PBS_NODEFILE", Form::File),
    ("LSF", "LSB_DJOB_HOSTFILE", Form::File),
    ("LSF", "LSB_MCPU_HOSTS", Form::Counted),
    ("LSF", "LSB_HOSTS", Form::List),
    ("Grid Engine", "PE_HOSTFILE", Form::File),
    ("Open MPI", "PRTE_MCA_prte_default_hostfile", Form::File),
    ("Open MPI", "OMPI_MCA_orte_default_hostfile", Form::File),
];

/// Finds them. `variable` reads the environment, `file` a file.
///
/// # Errors
/// There is such a list, and it cannot be read.
pub fn find(
    variable: impl Fn(&str) -> Option<String>,
    file: impl Fn(&Path) -> io::Result<String>,
) -> Result<Option<Job>, JobError> {
    for (scheduler, name, form) in KNOWN {
        let Some(value) = variable(name).filter(|v| !v.trim().is_empty()) else { continue };
        let hosts = match form {
            Form::List => parse(&value),
            Form::Counted => parse(&value.split_whitespace().step_by(2).collect::<Vec<_>>().join(",")),
            Form::File => {
                let text = file(Path::new(&value));
                let text =
                    text.map_err(|source| JobError::File { scheduler, from: value.clone(), source })?;
                parse_file(&first_words(&text))
            }
        };
        let hosts = hosts.map_err(|source| JobError::List { scheduler, from: (*name).to_owned(), source })?;
        return Ok(Some(Job { scheduler, hosts }));
    }
    Ok(None)
}

/// `host slots=4`, `host 4 all.q`: only the host counts.
fn first_words(text: &str) -> String {
    let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    text.lines().map(|line| first(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn found(set: &[(&str, &str)], text: &str) -> Option<Vec<String>> {
        let variable = |name: &str| set.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_owned());
        let job = find(variable, |_| Ok(text.to_owned())).unwrap()?;
        Some(job.hosts.into_iter().map(|h| h.name).collect())
    }

    #[test]
    fn each_scheduler() {
        let all = Some(vec!["a1".to_owned(), "a2".to_owned()]);
        assert_eq!(found(&[], ""), None);
        assert_eq!(found(&[("SLURM_JOB_NODELIST", "a[1-2]")], ""), all);
        assert_eq!(found(&[("PBS_NODEFILE", "f")], "a1\na1\na2\n"), all);
        assert_eq!(found(&[("LSB_MCPU_HOSTS", "a1 16 a2 16")], ""), all);
        assert_eq!(found(&[("LSB_HOSTS", "a1 a1 a2")], ""), all);
        assert_eq!(found(&[("PE_HOSTFILE", "f")], "a1 4 all.q UNDEFINED\na2 4 all.q UNDEFINED\n"), all);
        assert_eq!(found(&[("OMPI_MCA_orte_default_hostfile", "f")], "a1 slots=4\n# x\na2\n"), all);
    }

    #[test]
    fn what_is_there_and_wrong_is_told() {
        let broken = find(|name| (name == "SLURM_JOB_NODELIST").then(|| "a[1".into()), |_| Ok(String::new()));
        assert!(broken.unwrap_err().to_string().contains("SLURM_JOB_NODELIST"));
        let gone = find(
            |name| (name == "PBS_NODEFILE").then(|| "/x".into()),
            |_| Err(io::ErrorKind::NotFound.into()),
        );
        assert!(gone.unwrap_err().to_string().contains("/x"));
    }
}
