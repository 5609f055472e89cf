//! Starts workers: on each host by `ssh` or a user's command, or all together by a scheduler.
//!
//! The ticket, a secret, is passed to a worker on standard input if the launcher forwards that, else in the environment,
//! which only the same user can read; never on a command line.

pub(crate) mod run;
pub(crate) mod slurm;
mod template;
mod ticket_input;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use tempfile::NamedTempFile;
pub use template::{Template, TemplateError};
pub use ticket_input::{Handed, NoTicketReceived, worker_ticket};
use tidecast_text::hostlist;

use self::slurm::Allocation;
use crate::error::{Error, system};
use crate::hosts::Host;
use crate::temporary;

/// Longer lists of names on a command line are written with brackets, and still longer ones to a file (bytes): the kernel
/// rejects arguments of 128 KiB.
const PLAIN: usize = 1 << 10;
const ARGUMENT: usize = 64 << 10;

/// The environment variable of the ticket, if standard input is not forwarded.
pub const TICKET_VARIABLE: &str = "TIDECAST_GROUP";

/// The ssh command: no prompts, no long wait for dead hosts, no terminal.
const SSH: &str =
    "ssh -T -x -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15 {address} \"{command}\"";

/// How to start workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Launch {
    /// `srun` in a Slurm job, else `ssh`; the worker on this host needs neither.
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
    /// No launcher: the caller starts the workers, and gives them the ticket.
    ByCaller,
}

impl FromStr for Launch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            "ssh" => Ok(Self::Ssh),
            "srun" => Ok(Self::Srun),
            "mpirun" => Ok(Self::Mpirun),
            other if !other.contains(|c: char| c.is_whitespace() || c == '{') => Err(format!(
                "unknown launcher {other:?}: use auto, ssh, srun, mpirun, or a command with {{command}}"
            )),
            other => other.parse().map(Self::Template).map_err(|e| e.to_string()),
        }
    }
}

/// Facts about this machine for launching.
pub(crate) struct Here {
    /// The hosts that are this machine, by their place in the list.
    pub(crate) places: BTreeSet<usize>,
    /// The Slurm job of this process.
    pub(crate) slurm: Option<Allocation>,
}

/// A file with host names for a launcher; removed with the last job that needs it.
#[derive(Clone, Debug)]
pub(crate) struct List(#[allow(dead_code, reason = "kept until it is dropped")] Arc<NamedTempFile>);

/// Equal if it is the same file.
impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for List {}

/// One process to start, for one host or for several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// The hosts that it starts, by their place in the list.
    pub(crate) hosts: Vec<usize>,
    /// The ticket is passed on standard input; else in the environment.
    pub(crate) by_stdin: bool,
    /// Any host can start it; else only this one.
    pub(crate) anywhere: bool,
    /// The file with hosts that its command line names.
    pub(crate) list: Option<List>,
}

/// The processes that start a worker on every host. `program` is Tidecast's path there. With `srun`, hosts outside of this
/// process's Slurm job have none.
pub(crate) fn jobs(launch: &Launch, hosts: &[Host], program: &Path, here: &Here) -> Result<Vec<Job>, Error> {
    let program = program.display().to_string();
    let all = || (0..hosts.len()).collect::<Vec<usize>>();
    match launch {
        Launch::ByCaller => Ok(Vec::new()),
        Launch::Auto if here.slurm.is_some() => jobs(&Launch::Srun, hosts, Path::new(&program), here),
        Launch::Auto | Launch::Ssh => {
            let ssh: Template = SSH.parse().unwrap_or_else(|_| unreachable!("a constant that a test parses"));
            let one = |(place, host): (usize, &Host)| {
                let command = worker(&program, host);
                let here = *launch == Launch::Auto && here.places.contains(&place);
                let mut argv = if here { command } else { ssh.fill(host, &command) };
                if let Some(port) = host.port.filter(|_| !here) {
                    argv.splice(1..1, ["-p".to_owned(), port.to_string()]);
                }
                Job { argv, hosts: vec![place], by_stdin: true, anywhere: !here, list: None }
            };
            Ok(hosts.iter().enumerate().map(one).collect())
        }
        Launch::Srun => srun(hosts, &program, here.slurm.as_ref()),
        Launch::Mpirun => mpirun(hosts, all(), &program).map(|job| vec![job]),
        Launch::Template(template) => {
            let one = |(place, host): (usize, &Host)| Job {
                argv: template.fill(host, &worker(&program, host)),
                hosts: vec![place],
                by_stdin: true,
                anywhere: true,
                list: None,
            };
            Ok(hosts.iter().enumerate().map(one).collect())
        }
    }
}

/// One process that starts the workers of several hosts, which find out themselves on which host they run.
fn together(words: Vec<String>, program: &str, hosts: Vec<usize>, list: Option<List>) -> Job {
    let argv = words.into_iter().chain([program.to_owned(), "worker".to_owned()]).collect();
    Job { argv, hosts, by_stdin: false, anywhere: false, list }
}

/// One `srun` for each component of the job.
fn srun(hosts: &[Host], program: &str, slurm: Option<&Allocation>) -> Result<Vec<Job>, Error> {
    let group = |host: &Host| slurm.map_or(Some(0), |slurm| slurm.group(&host.name));
    let groups = slurm.map_or(1, |slurm| slurm.groups.len().max(1));
    let mut jobs = Vec::new();
    for number in 0..groups {
        let inside: Vec<(usize, &Host)> =
            hosts.iter().enumerate().filter(|(_, host)| group(host) == Some(number)).collect();
        if inside.is_empty() {
            continue;
        }
        let names: Vec<&str> = inside.iter().map(|(_, host)| host.name.as_str()).collect();
        let (nodes, list) = match brief(&names) {
            Some(nodes) => (nodes, None),
            // srun reads an argument with a slash as a file.
            None => file(&names, "").map(|(path, list)| (path, Some(list)))?,
        };
        let count = names.len();
        let component = slurm.filter(|slurm| slurm.mixed()).map(|_| format!("--het-group={number}"));
        let words = ["srun".to_owned()].into_iter().chain(component).chain([
            format!("--nodelist={nodes}"),
            format!("--nodes={count}"),
            format!("--ntasks={count}"),
            "--ntasks-per-node=1".to_owned(),
            "--overlap".to_owned(),
            // A worker that fails must not end the others.
            "--kill-on-bad-exit=0".to_owned(),
            "--wait=0".to_owned(),
            "--input=none".to_owned(),
            "--label".to_owned(),
        ]);
        let places = inside.iter().map(|(place, _)| *place).collect();
        jobs.push(together(words.collect(), program, places, list));
    }
    Ok(jobs)
}

/// One `mpirun` of Open MPI for all hosts; it does not support brackets.
fn mpirun(hosts: &[Host], places: Vec<usize>, program: &str) -> Result<Job, Error> {
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    let plain = names.join(",");
    let (option, value, list) = match plain.len() <= ARGUMENT {
        true => ("-host", plain, None),
        false => file(&names, " slots=1").map(|(path, list)| ("--hostfile", path, Some(list)))?,
    };
    let count = names.len().to_string();
    let words = ["mpirun", option, &value, "-np", &count, "-x", TICKET_VARIABLE].map(str::to_owned);
    Ok(together(words.into(), program, places, list))
}

/// The names as one argument, if they fit into one.
fn brief(names: &[&str]) -> Option<String> {
    let plain = names.join(",");
    let list = if plain.len() <= PLAIN { plain } else { hostlist::fold(names.iter().copied()) };
    (list.len() <= ARGUMENT).then_some(list)
}

/// Writes the names to a file, one per line, with `more` after each.
fn file(names: &[&str], more: &str) -> Result<(String, List), Error> {
    let write = || {
        let mut file = temporary::file("tidecast-hosts-")?;
        let lines: String = names.iter().flat_map(|name| [*name, more, "\n"]).collect();
        file.write_all(lines.as_bytes()).map(|()| file)
    };
    let file = write().map_err(system("write the list of hosts for the launcher"))?;
    let path = std::path::absolute(file.path()).map_err(system("find the directory of temporary files"))?;
    Ok((path.display().to_string(), List(Arc::new(file))))
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

    fn argvs(launch: &str, hosts: &str, slurm: Option<&[&str]>) -> Vec<String> {
        let hosts = parse(hosts).unwrap();
        let nodes = |list: &&str| hostlist::names(list, 100_000).unwrap().into_iter().collect();
        let allocation =
            |groups: &[&str]| Allocation { job: "7".into(), groups: groups.iter().map(nodes).collect() };
        let here = Here { places: [1, 3].into(), slurm: slurm.map(allocation) };
        let jobs = jobs(&launch.parse().unwrap(), &hosts, Path::new("/opt/tidecast"), &here).unwrap();
        let mut places = jobs.iter().flat_map(|j| j.hosts.clone()).collect::<Vec<_>>();
        places.sort_unstable();
        assert!(slurm.is_some() || places.iter().copied().eq(0..hosts.len()));
        jobs.iter().map(|j| j.argv.join(" ")).collect()
    }

    #[test]
    fn this_host_needs_no_ssh() {
        let argvs = argvs("auto", "n1,head,head.other,b=10.0.0.1", None);
        assert!(argvs[0].starts_with("ssh ") && argvs[0].ends_with(" n1 /opt/tidecast worker --host n1"));
        assert!(argvs[2].starts_with("ssh "), "{argvs:?}");
        assert_eq!(
            [&argvs[1], &argvs[3]],
            ["/opt/tidecast worker --host head", "/opt/tidecast worker --host b"]
        );
    }

    #[test]
    fn ssh_gets_user_port_and_address() {
        let argvs = argvs("ssh", "me@n1:2222,[fd00::1],[fd00::2]:2222,x=you@10.0.0.1:23", None);
        for (argv, port, to) in [
            (&argvs[0], "-p 2222 ", " me@n1 /opt/tidecast worker --host n1"),
            (&argvs[1], "-T ", " fd00::1 /opt/tidecast worker --host fd00::1"),
            (&argvs[2], "-p 2222 ", " fd00::2 /opt/tidecast worker --host fd00::2"),
            (&argvs[3], "-p 23 ", " you@10.0.0.1 /opt/tidecast worker --host x"),
        ] {
            assert!(argv.starts_with(&format!("ssh {port}")) && argv.ends_with(to), "{argv}");
        }
    }

    #[test]
    fn in_a_slurm_job_srun_starts_all() {
        let argvs = argvs("auto", "n[1-3]", Some(&["n[1-4]"]));
        assert_eq!(argvs.len(), 1);
        assert!(argvs[0].starts_with("srun --nodelist=n1,n2,n3 --nodes=3 --ntasks=3"), "{argvs:?}");
    }

    #[test]
    fn hosts_outside_the_job_are_not_asked_for() {
        let argvs = argvs("srun", "n[1-3],x", Some(&["n[2-9]"]));
        assert!(argvs.len() == 1 && argvs[0].starts_with("srun --nodelist=n2,n3 --nodes=2 "), "{argvs:?}");
    }

    #[test]
    fn each_component_of_a_heterogeneous_job_has_its_srun() {
        let argvs = argvs("auto", "n[1-2],g1", Some(&["n[1-2]", "m1", "g[1-4]"]));
        assert_eq!(argvs.len(), 2);
        assert!(argvs[0].starts_with("srun --het-group=0 --nodelist=n1,n2 --nodes=2 "), "{argvs:?}");
        assert!(argvs[1].starts_with("srun --het-group=2 --nodelist=g1 --nodes=1 "), "{argvs:?}");
    }

    #[test]
    fn thousands_of_hosts_fit_on_a_command_line() {
        let here = Here { places: BTreeSet::new(), slurm: None };
        let start = |launch: &str, list: &str| {
            let hosts = parse(list).unwrap();
            let jobs = jobs(&launch.parse().unwrap(), &hosts, Path::new("/t"), &here).unwrap();
            assert!(jobs[0].argv.iter().all(|word| word.len() < 128 << 10));
            jobs
        };
        let folded = start("srun", "frontier[00001-09408]");
        assert_eq!(folded[0].argv[1], "--nodelist=frontier[00001-09408]");
        // Names that end with a domain do not fold: Slurm has no brackets within names.
        let names = "a-node-of-a-long-name[00001-09408].cluster.example";
        for (launch, at, line) in [("srun", 1, ".example"), ("mpirun", 2, ".example slots=1")] {
            let jobs = start(launch, names);
            let path = jobs[0].argv[at].trim_start_matches("--nodelist=").to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.lines().count() == 9408 && text.lines().all(|l| l.ends_with(line)), "{path}");
            drop(jobs);
            assert!(!Path::new(&path).exists(), "it goes with the launch");
        }
    }

    #[test]
    fn a_template_starts_each() {
        let argvs = argvs("ip netns exec {host} {command}", "n[1-2]", None);
        assert_eq!(argvs[1], "ip netns exec n2 /opt/tidecast worker --host n2");
        let argvs = super::tests::argvs("my-ssh -p {port} {address} {command}", "me@a:2200,b", None);
        assert_eq!(argvs[0], "my-ssh -p 2200 me@a /opt/tidecast worker --host a");
        assert_eq!(argvs[1], "my-ssh -p 22 b /opt/tidecast worker --host b");
    }

    #[test]
    fn launchers_parse() {
        assert_eq!("srun".parse(), Ok(Launch::Srun));
        assert!("rsh".parse::<Launch>().unwrap_err().contains("rsh"));
        assert!(matches!("{command}".parse(), Ok(Launch::Template(_))));
        assert!("rsh {host}".parse::<Launch>().unwrap_err().contains("{command}"));
    }
}
