//! The hosts of the current batch job, as reported by its scheduler.

use std::io;
use std::path::Path;

use tidecast_text::hostlist;

use super::{Host, HostError, MAX_HOSTS, parse};

/// A job's hosts, and its scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The scheduler, e.g. "Slurm".
    pub scheduler: &'static str,
    /// Its hosts.
    pub hosts: Vec<Host>,
}

/// Why the hosts of a job could not be found.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A variable or file of the scheduler is malformed.
    #[error("invalid host list of {scheduler} ({from}): {source}")]
    List {
        /// Which scheduler.
        scheduler: &'static str,
        /// The variable or file.
        from: String,
        /// The error.
        source: HostError,
    },
    /// A scheduler's program failed, or its output has no hosts.
    #[error(
        "cannot get the hosts of the {scheduler} job ({from}): {source}; use --hosts LIST or --hosts @FILE"
    )]
    Program {
        /// Which scheduler.
        scheduler: &'static str,
        /// The command.
        from: String,
        /// The error of the program.
        source: io::Error,
    },
    /// A scheduler's file cannot be read.
    #[error("cannot read the host file of {scheduler} ({from}): {source}")]
    File {
        /// Which scheduler.
        scheduler: &'static str,
        /// The file.
        from: String,
        /// The system's error.
        source: io::Error,
    },
}

/// Maximum number of components of a heterogeneous Slurm job.
const MAX_GROUPS: usize = 128;

/// The form of a scheduler's list.
#[derive(Clone, Copy)]
enum Form {
    /// The variable is the list.
    List,
    /// The variable is the list, each host followed by its number of slots.
    Counted,
    /// The variable names a file whose lines begin with a host.
    File,
    /// The variable is set in a job; the first of these programs that runs prints the list.
    Programs(&'static [&'static [&'static str]]),
}

/// The variables, in order of precedence.
const KNOWN: &[(&str, &str, Form)] = &[
    ("Slurm", "SLURM_JOB_NODELIST", Form::List),
    ("Slurm", "SLURM_NODELIST", Form::List),
    ("PBS", "PBS_NODEFILE", Form::File),
    ("LSF", "LSB_DJOB_HOSTFILE", Form::File),
    ("LSF", "LSB_MCPU_HOSTS", Form::Counted),
    ("LSF", "LSB_HOSTS", Form::List),
    ("Grid Engine", "PE_HOSTFILE", Form::File),
    ("OAR", "OAR_NODEFILE", Form::File),
    ("OAR", "OAR_NODE_FILE", Form::File),
    ("OAR", "OAR_FILE_NODES", Form::File),
    ("Cobalt", "COBALT_NODEFILE", Form::File),
    // For a job, and for the instance of a batch job, whose first program is not in a job.
    (
        "Flux",
        "FLUX_JOB_ID",
        Form::Programs(&[&["flux", "hostlist", "local"], &["flux", "job", "info", "{}", "R"]]),
    ),
    (
        "Flux",
        "FLUX_ENCLOSING_ID",
        Form::Programs(&[&["flux", "hostlist", "local"], &["flux", "getattr", "hostlist"]]),
    ),
    ("Open MPI", "PRTE_MCA_prte_default_hostfile", Form::File),
    ("Open MPI", "OMPI_MCA_orte_default_hostfile", Form::File),
    ("Intel MPI", "I_MPI_HYDRA_HOST_FILE", Form::File),
    ("MPICH", "HYDRA_HOST_FILE", Form::File),
];

/// The environment of a search.
pub struct Ask<V, F, P> {
    /// Reads the environment.
    pub variable: V,
    /// Reads a file.
    pub file: F,
    /// Runs a program and returns its output.
    pub program: P,
}

/// Finds the hosts of the current job.
///
/// # Errors
/// There is a list, but it cannot be read.
pub fn find<V, F, P>(ask: &Ask<V, F, P>) -> Result<Option<Job>, JobError>
where
    V: Fn(&str) -> Option<String>,
    F: Fn(&Path) -> io::Result<String>,
    P: Fn(&[String]) -> io::Result<String>,
{
    if let Some(lists) = components(&ask.variable) {
        let hosts = parse(&lists.join("\n"));
        let from = "SLURM_JOB_NODELIST_HET_GROUP_*".to_owned();
        let hosts = hosts.map_err(|source| JobError::List { scheduler: "Slurm", from, source })?;
        return Ok(Some(Job { scheduler: "Slurm", hosts }));
    }
    for (scheduler, name, form) in KNOWN {
        let Some(value) = (ask.variable)(name).filter(|v| !v.trim().is_empty()) else { continue };
        let hosts = match form {
            Form::List => parse(&value),
            Form::Counted => parse(&value.split_whitespace().step_by(2).collect::<Vec<_>>().join(",")),
            Form::File => {
                let text = (ask.file)(Path::new(&value));
                let text =
                    text.map_err(|source| JobError::File { scheduler, from: value.clone(), source })?;
                parse(&text)
            }
            Form::Programs(programs) => parse(&from_programs(ask, scheduler, programs, &value)?),
        };
        let hosts = hosts.map_err(|source| JobError::List { scheduler, from: (*name).to_owned(), source })?;
        return Ok(Some(Job { scheduler, hosts }));
    }
    Ok(None)
}

/// The node lists of a heterogeneous job's components.
pub(crate) fn components(variable: impl Fn(&str) -> Option<String>) -> Option<Vec<String>> {
    let size: usize = variable("SLURM_HET_SIZE")?.trim().parse().ok()?;
    let list = |at: usize| variable(&format!("SLURM_JOB_NODELIST_HET_GROUP_{at}"));
    (0..size.min(MAX_GROUPS)).map(list).collect::<Option<Vec<_>>>().filter(|lists| !lists.is_empty())
}

/// The list that a scheduler's programs print: bare, or in the `R` of Flux, which is JSON.
fn from_programs<V, F, P>(
    ask: &Ask<V, F, P>,
    scheduler: &'static str,
    programs: &[&[&str]],
    id: &str,
) -> Result<String, JobError>
where
    P: Fn(&[String]) -> io::Result<String>,
{
    let mut failed = None;
    for program in programs {
        let words: Vec<String> = program.iter().map(|word| word.replace("{}", id)).collect();
        let found = (ask.program)(&words).and_then(|text| {
            let list = nodelist(&text).unwrap_or(text);
            let any = hostlist::names(list.trim(), MAX_HOSTS).is_ok_and(|names| !names.is_empty());
            any.then_some(list).ok_or_else(|| io::Error::other("its output has no hosts"))
        });
        match found {
            Ok(list) => return Ok(list),
            Err(source) => {
                failed.get_or_insert(JobError::Program { scheduler, from: words.join(" "), source });
            }
        }
    }
    let none = || JobError::Program { scheduler, from: id.into(), source: io::ErrorKind::NotFound.into() };
    Err(failed.unwrap_or_else(none))
}

/// `"nodelist": ["n[1-3]", "m1"]` of a set of resources as Flux writes it (RFC 20).
fn nodelist(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("\"nodelist\"")?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('[')?;
    // Lists contain brackets, so the quotes determine where each ends.
    let mut lists = Vec::new();
    let mut rest = rest.trim_start();
    while let Some(after) = rest.strip_prefix('"') {
        let (list, after) = after.split_once('"')?;
        lists.push(list);
        rest = after.trim_start().trim_start_matches(',').trim_start();
    }
    Some(lists.join(","))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    type Found = Result<Option<Job>, JobError>;

    fn ask(set: &[(&str, &str)], file: io::Result<&str>, programs: &[(&str, &str)]) -> Found {
        let set = |name: &str| set.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).to_owned());
        let text = file.map(str::to_owned).map_err(|error| error.kind());
        let from_programs = |words: &[String]| {
            let line = words.join(" ");
            let known = programs.iter().find(|(program, _)| *program == line);
            known.map(|(_, out)| (*out).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        find(&Ask {
            variable: set,
            file: |_: &Path| text.clone().map_err(Into::into),
            program: from_programs,
        })
    }

    fn found(set: &[(&str, &str)], text: &str) -> Option<Vec<String>> {
        let job = ask(set, Ok(text), &[]).unwrap()?;
        Some(job.hosts.into_iter().map(|h| h.name).collect())
    }

    #[test]
    fn each_scheduler() {
        let all = Some(vec!["a1".to_owned(), "a2".to_owned()]);
        assert_eq!(found(&[], ""), None);
        assert_eq!(found(&[("SLURM_JOB_NODELIST", "a[1-2]")], ""), all);
        assert_eq!(found(&[("PBS_NODEFILE", "f")], "a1\na1\na2\n"), all);
        assert_eq!(found(&[("LSB_DJOB_HOSTFILE", "f")], "a1\na1\na2\na2\n"), all);
        assert_eq!(found(&[("LSB_MCPU_HOSTS", "a1 16 a2 16")], ""), all);
        assert_eq!(found(&[("LSB_HOSTS", "a1 a1 a2")], ""), all);
        assert_eq!(found(&[("PE_HOSTFILE", "f")], "a1 4 all.q UNDEFINED\na2 4 all.q UNDEFINED\n"), all);
        assert_eq!(found(&[("OMPI_MCA_orte_default_hostfile", "f")], "a1 slots=4\n# x\na2\n"), all);
        assert_eq!(found(&[("I_MPI_HYDRA_HOST_FILE", "f")], "a1:48\na2:48\n"), all);
        assert_eq!(found(&[("OAR_NODEFILE", "f")], "a1\na1\na2\n"), all);
    }

    #[test]
    fn a_heterogeneous_job_has_the_hosts_of_all_components() {
        let job = [
            ("SLURM_JOB_NODELIST", "a1"),
            ("SLURM_HET_SIZE", "2"),
            ("SLURM_JOB_NODELIST_HET_GROUP_0", "a1"),
            ("SLURM_JOB_NODELIST_HET_GROUP_1", "g[1-2]"),
        ];
        assert_eq!(found(&job, ""), Some(["a1", "g1", "g2"].map(str::to_owned).into()));
        assert_eq!(found(&job[..3], ""), Some(vec!["a1".to_owned()]), "a component is missing");
    }

    #[test]
    fn flux_is_asked() {
        let job = [("FLUX_JOB_ID", "f123")];
        let names = |from_programs: &[(&str, &str)]| {
            let hosts = ask(&job, Ok(""), from_programs).unwrap().unwrap().hosts;
            hosts.into_iter().map(|h| h.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[("flux hostlist local", "a[1-2]\n")]), ["a1", "a2"]);
        let r = r#"{"version": 1, "execution": {"R_lite": [], "nodelist": ["a[1-2]", "b"], "starttime": 0}}"#;
        assert_eq!(names(&[("flux job info f123 R", r)]), ["a1", "a2", "b"]);
        let error = ask(&job, Ok(""), &[]).unwrap_err().to_string();
        assert!(error.contains("flux hostlist local") && error.contains("--hosts"), "{error}");
    }

    #[test]
    fn what_is_there_and_wrong_is_told() {
        let broken = ask(&[("SLURM_JOB_NODELIST", "a[1")], Ok(""), &[]);
        assert!(broken.unwrap_err().to_string().contains("SLURM_JOB_NODELIST"));
        let gone = ask(&[("PBS_NODEFILE", "/x")], Err(io::ErrorKind::NotFound.into()), &[]);
        assert!(gone.unwrap_err().to_string().contains("/x"));
    }

    proptest::proptest! {
        #[test]
        fn no_resources_make_it_panic(text in "\\PC{0,30}", list in "[\"\\[\\], :a-c0-9]{0,30}") {
            let _ = (nodelist(&text), nodelist(&format!("\"nodelist\": [{list}")));
        }
    }
}
