//! How workers come to life: on each host by `ssh` or a command of the user's, or all at once by a scheduler.
//!
//! The ticket, a secret, goes to a worker by standard input where the launcher passes that on, else in the
//! environment, which only the same user can read; never on a command line.

pub(crate) mod run;
mod template;

use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr;

pub use template::{Template, TemplateError};

use crate::hosts::Host;

/// The variable that carries the ticket where standard input does not.
pub const TICKET_VARIABLE: &str = "TIDECAST_GROUP";

/// What `ssh` is asked: no questions, no waiting for the dead, no terminal.
const SSH: &str =
    "ssh -T -x -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15 {address} \"{command}\"";

/// How to start workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Launch {
    /// `srun` within a Slurm job, else `ssh`; this host needs neither.
    #[default]
    Auto,
    /// `ssh`, without passwords.
    Ssh,
    /// One `srun` for all.
    Srun,
    /// One `mpirun` for all.
    Mpirun,
    /// A command for each host.
    Template(Template),
    /// Nobody is started: the workers run already, and are given the ticket.
    Themselves,
}

impl FromStr for Launch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            "ssh" => Ok(Self::Ssh),
            "srun" => Ok(Self::Srun),
            "mpirun" => Ok(Self::Mpirun),
            other if !other.contains(char::is_whitespace) => Err(format!(
                "{other:?} is no launcher: write auto, ssh, srun, mpirun, or a command with {{command}}"
            )),
            other => other.parse().map(Self::Template).map_err(|e| e.to_string()),
        }
    }
}

/// What of this machine matters to launching.
pub(crate) struct Here {
    /// Which of the hosts are this machine, by their place in the list.
    pub(crate) places: BTreeSet<usize>,
    /// This is a process of a Slurm job.
    pub(crate) in_slurm: bool,
}

/// One process to start, for one host or for several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// The hosts that it serves, by their place in the list.
    pub(crate) hosts: Vec<usize>,
    /// The ticket goes by standard input; else by environment.
    pub(crate) by_stdin: bool,
    /// Any host can start it; else only this one.
    pub(crate) anywhere: bool,
}

/// The processes that start a worker on every host. `program` is Tidecast's path there.
pub(crate) fn jobs(launch: &Launch, hosts: &[Host], program: &Path, here: &Here) -> Vec<Job> {
    let program = program.display().to_string();
    let all: Vec<usize> = (0..hosts.len()).collect();
    let names = || hosts.iter().map(|h| h.name.as_str()).collect::<Vec<_>>().join(",");
    let count = hosts.len().to_string();
    let together = |words: &[&str]| {
        let argv = words.iter().copied().chain([program.as_str(), "worker"]).map(str::to_owned).collect();
        vec![Job { argv, hosts: all.clone(), by_stdin: false, anywhere: false }]
    };
    match launch {
        Launch::Themselves => Vec::new(),
        Launch::Auto if here.in_slurm => jobs(&Launch::Srun, hosts, Path::new(&program), here),
        Launch::Auto | Launch::Ssh => {
            let ssh: Template = SSH.parse().unwrap_or_else(|_| unreachable!("a constant that a test parses"));
            let one = |(place, host): (usize, &Host)| {
                let command = worker(&program, host);
                let here = *launch == Launch::Auto && here.places.contains(&place);
                let argv = if here { command } else { ssh.fill(host, &command) };
                Job { argv, hosts: vec![place], by_stdin: true, anywhere: !here }
            };
            hosts.iter().enumerate().map(one).collect()
        }
        Launch::Srun => together(&[
            "srun",
            &format!("--nodelist={}", names()),
            &format!("--nodes={count}"),
            &format!("--ntasks={count}"),
            "--ntasks-per-node=1",
            "--overlap",
            // One that fails must not take the others along.
            "--kill-on-bad-exit=0",
            "--wait=0",
            "--input=none",
            "--label",
        ]),
        Launch::Mpirun => together(&["mpirun", "-host", &names(), "-np", &count, "-x", TICKET_VARIABLE]),
        Launch::Template(template) => {
            let one = |(place, host): (usize, &Host)| Job {
                argv: template.fill(host, &worker(&program, host)),
                hosts: vec![place],
                by_stdin: true,
                anywhere: true,
            };
            hosts.iter().enumerate().map(one).collect()
        }
    }
}

/// The worker's own command for one host.
fn worker(program: &str, host: &Host) -> Vec<String> {
    [program, "worker", "--host", &host.name].map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::hosts::parse;

    fn argvs(launch: &str, hosts: &str, in_slurm: bool) -> Vec<String> {
        let hosts = parse(hosts).unwrap();
        let here = Here { places: [1, 3].into(), in_slurm };
        let jobs = jobs(&launch.parse().unwrap(), &hosts, Path::new("/opt/tidecast"), &here);
        assert_eq!(
            jobs.iter().flat_map(|j| j.hosts.clone()).collect::<Vec<_>>(),
            (0..hosts.len()).collect::<Vec<_>>()
        );
        jobs.iter().map(|j| j.argv.join(" ")).collect()
    }

    #[test]
    fn this_host_needs_no_ssh() {
        let argvs = argvs("auto", "n1,head,head.other,b=10.0.0.1", false);
        assert!(argvs[0].starts_with("ssh ") && argvs[0].ends_with(" n1 /opt/tidecast worker --host n1"));
        assert!(argvs[2].starts_with("ssh "), "{argvs:?}");
        assert_eq!(
            [&argvs[1], &argvs[3]],
            ["/opt/tidecast worker --host head", "/opt/tidecast worker --host b"]
        );
    }

    #[test]
    fn in_a_slurm_job_srun_starts_all() {
        let argvs = argvs("auto", "n[1-3]", true);
        assert_eq!(argvs.len(), 1);
        assert!(argvs[0].starts_with("srun --nodelist=n1,n2,n3 --nodes=3 --ntasks=3"), "{argvs:?}");
    }

    #[test]
    fn a_template_starts_each() {
        let argvs = argvs("ip netns exec {host} {command}", "n[1-2]", true);
        assert_eq!(argvs[1], "ip netns exec n2 /opt/tidecast worker --host n2");
    }

    #[test]
    fn launchers_parse() {
        assert_eq!("srun".parse(), Ok(Launch::Srun));
        assert!("rsh".parse::<Launch>().unwrap_err().contains("rsh"));
        assert!("rsh {host}".parse::<Launch>().unwrap_err().contains("{command}"));
    }
}
