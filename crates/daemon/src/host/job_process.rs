//! Finds the process that a cache is kept for: one that lasts as long as the caller's job.
//!
//! The kernel tells the caller's process and its ancestors. Names of processes, and of jobs, are chosen by
//! the user: with them a caller can only choose among its own ancestors, and gains no more than space for a
//! cache that it may read anyway. It has one use per cache and process.

use tidecast_depot::{Process, Stat, command_line};

/// Programs of batch systems that last as long as one job, or one step of it.
const JOBS: [&str; 4] = ["condor_starter", "slurmstepd", "sge_shepherd", "flux-shell"];
/// Services that start jobs: their child leads a job.
const SERVICES: [&str; 2] = ["pbs_mom", "sbatchd"];
/// Programs that wait for the one that they run, and do nothing else.
const WRAPPERS: [&str; 11] =
    ["timeout", "time", "sudo", "su", "doas", "runuser", "flock", "strace", "unshare", "nsenter", "bwrap"];
const SHELLS: [&str; 14] = [
    "sh", "bash", "rbash", "dash", "ash", "ksh", "mksh", "zsh", "csh", "tcsh", "fish", "xonsh", "nu",
    "elvish",
];
/// Options of shells whose next word is not a script.
const WITH_WORD: [&[u8]; 2] = [b"--rcfile", b"--init-file"];
/// Ancestors that are checked, at most.
const DEPTH: usize = 64;
/// Forks of one program that are remembered.
const FORKS: usize = 16;

/// The process that the cache is kept for which process `pid` asks for. None if it is not seen from here.
pub(crate) fn of(pid: u32) -> Option<Process> {
    let family = ancestors(pid);
    let (holder, also, terminal) = choose(&family, command_line)?;
    let mut process = Process::running(holder.pid).filter(|process| process.start == holder.start)?;
    process.also = also.iter().map(|fork| (fork.pid, fork.start)).collect();
    process.terminal = terminal;
    Some(process)
}

/// A process, its parent and so on, without the first of all. Each existed, as the parent of the one before,
/// while all were read.
fn ancestors(pid: u32) -> Vec<Stat> {
    let mut family: Vec<Stat> = Vec::new();
    let mut next = pid;
    while next > 1 && family.len() < DEPTH {
        let Some(stat) = Stat::of(next) else { break };
        // A parent is older than its child: else its number was given again.
        if family.last().is_some_and(|child| child.start < stat.start) {
            break;
        }
        next = stat.parent;
        family.push(stat);
    }
    // Whose parent has ended has another one now.
    let still = |seen: &Stat| {
        Stat::of(seen.pid).is_some_and(|now| (now.start, now.parent) == (seen.start, seen.parent))
    };
    let proven = family.iter().take_while(|seen| still(seen)).count();
    family.truncate(proven);
    family
}

/// Of a caller and its ancestors the one that lasts as long as the job; its forks; whether it is a shell at a terminal.
fn choose(family: &[Stat], words: impl Fn(u32) -> Vec<Vec<u8>>) -> Option<(&Stat, &[Stat], bool)> {
    let named = |names: &[&str], stat: &Stat| names.contains(&stat.name.as_str());
    if let Some(first) = family.iter().skip(1).position(|stat| named(&JOBS, stat)).map(|n| n + 1) {
        // A starter forks for the transfer. Above it may be others, of the job in which a whole pool runs.
        let last = family[first..].iter().take_while(|stat| stat.name == family[first].name).count();
        return Some((&family[first + last - 1], &[], false));
    }
    if let Some(service) = family.iter().skip(1).position(|stat| named(&SERVICES, stat)) {
        return Some((&family[service], &[], false));
    }
    let is_wrapper = |stat: &Stat| named(&WRAPPERS, stat);
    let mut first = 1 + family.iter().skip(1).take_while(|stat| is_wrapper(stat)).count();
    loop {
        // A subshell is its script.
        let mut last = first;
        while family.get(last).is_some_and(|stat| stat.forked) && family.get(last + 1).is_some() {
            let (fork, above) = (&family[last], &family[last + 1]);
            if words(fork.pid) != words(above.pid) {
                break;
            }
            last += 1;
        }
        let wrappers = family.iter().skip(last).take_while(|stat| is_wrapper(stat)).count();
        if wrappers == 0 {
            let holder = family.get(last)?;
            let below = &family[last - 1];
            let is_shell = SHELLS.contains(&holder.name.as_str());
            let terminal = is_shell && is_at_terminal(holder, below, &words(holder.pid));
            return Some((holder, &family[first.max(last.saturating_sub(FORKS))..last], terminal));
        }
        first = last + wrappers;
    }
}

/// Whether this is an interactive shell: it outlasts the commands that it runs.
fn is_at_terminal(shell: &Stat, below: &Stat, words: &[Vec<u8>]) -> bool {
    let mut options = words.iter().skip(1);
    let mut interactive = false;
    let mut script = false;
    while let Some(word) = options.next() {
        match word.as_slice() {
            word if WITH_WORD.contains(&word) => drop(options.next()),
            [b'-', b'-', ..] | [b'+', ..] => {}
            [b'-', letters @ ..] => {
                interactive |= letters.contains(&b'i');
                script |= letters.iter().any(|letter| b"cs".contains(letter));
            }
            _ => script = true,
        }
    }
    // A script's children are in its group; `timeout` makes its own group, which is not in the foreground.
    let job = shell.terminal != 0
        && below.session == shell.session
        && below.group != shell.group
        && (below.name != "timeout" || u32::try_from(below.foreground) == Ok(below.group));
    !script && (interactive || shell.terminal != 0) || job && shell.pid == shell.session
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A family from the caller up; each is `name`, `name*` (forked, and the same program as its parent) or `name=words`.
    fn family(text: &str) -> (Vec<Stat>, impl Fn(u32) -> Vec<Vec<u8>>) {
        let mut lines: Vec<Vec<Vec<u8>>> = Vec::new();
        let mut all = Vec::new();
        let words: Vec<&str> = text.split(" < ").collect();
        for (number, word) in words.iter().enumerate() {
            let (name, line) = word.split_once('=').unwrap_or((word, word));
            let pid = 100 - number as u32;
            let forked = name.ends_with('*');
            let name = name.trim_end_matches('*').to_owned();
            let line = line.trim_end_matches('*').split(' ').map(|word| word.as_bytes().to_vec()).collect();
            lines.push(line);
            all.push(Stat { pid, name, parent: pid - 1, forked, group: 1, session: 1, ..Stat::default() });
        }
        (all, move |pid| lines[100 - pid as usize].clone())
    }

    fn chosen(text: &str) -> (usize, usize, bool) {
        let (family, words) = family(text);
        let (holder, also, terminal) = choose(&family, words).unwrap();
        ((100 - holder.pid) as usize, also.len(), terminal)
    }

    #[test]
    fn a_job_is_led_by_what_its_batch_system_started_for_it() {
        let pool = "condor_startd < condor_master < sh=sh glidein.sh < condor_starter < condor_startd";
        for (family, holder) in [
            (format!("tidecast_plugin < condor_starter < condor_starter < {pool}"), 2),
            (format!("tidecast < sh=sh wrap < condor_starter < condor_starter < {pool}"), 3),
            (format!("tidecast < bash=bash job.sh < condor_starter < {pool}"), 2),
            ("tidecast < bash*=bash j < bash=bash j < slurmstepd < slurmd".into(), 3),
            ("tidecast < bash=-bash < slurmstepd".into(), 2),
            ("tidecast < sh=sh j < sge_shepherd < sge_execd".into(), 2),
            ("tidecast < sh=sh a < csh=csh job < pbs_mom".into(), 2),
            ("tidecast < pbs_mom".into(), 0),
            ("tidecast < sh=sh a < sh=sh 7.shell < res < sbatchd < sbatchd".into(), 3),
        ] {
            assert_eq!(chosen(&family), (holder, 0, false), "{family}");
        }
    }

    #[test]
    fn a_script_is_what_its_subshells_and_wrappers_are() {
        for (family, holder, also) in [
            ("tidecast < bash=bash job.sh < sshd", 1, 0),
            ("tidecast < bash*=bash job.sh < bash*=bash job.sh < bash=bash job.sh < python3", 3, 2),
            ("tidecast < timeout=timeout 9 tidecast < bash*=bash job.sh < bash=bash job.sh < python3", 3, 1),
            ("tidecast < sudo < timeout < python3=python3 flow.py < bash=-bash", 3, 0),
            // Its parent has ended: another has taken it.
            ("tidecast < bash*=bash job.sh < systemd", 1, 0),
            ("tidecast < sshd*=sshd: a@notty < sshd", 1, 0),
        ] {
            assert_eq!(chosen(family), (holder, also, false), "{family}");
        }
        let (alone, words) = family("tidecast");
        assert_eq!(choose(&alone, words), None);
    }

    #[test]
    fn a_shell_is_at_a_terminal_if_somebody_types_there() {
        let shell = |words: &str, terminal: i32, group: u32| {
            let words: Vec<Vec<u8>> = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let stat = |pid, group| Stat {
                pid,
                group,
                session: 7,
                terminal,
                name: "bash".into(),
                ..Stat::default()
            };
            is_at_terminal(&stat(7, 7), &stat(9, group), &words)
        };
        for words in ["-bash", "bash", "bash -l", "bash --rcfile /x/rc -i", "bash --init-file /x"] {
            assert!(shell(words, 3, 7) && shell(words, 3, 9), "{words}");
        }
        assert!(shell("bash -i", 0, 7) && shell("bash script.sh", 3, 9));
        // A script at a terminal, a job that came over ssh, a login shell that runs one.
        for (words, terminal) in [
            ("bash script.sh", 3),
            ("bash -c x", 3),
            ("bash -lc x", 0),
            ("-bash", 0),
            ("bash -s", 3),
            ("bash -e s", 3),
        ] {
            assert!(!shell(words, terminal, 7), "{words}");
        }
    }

    #[test]
    fn the_kernel_names_our_ancestors() {
        let child = std::process::Command::new("sleep").arg("100").spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{error}"));
        let all = ancestors(child.id());
        assert_eq!(all.get(1).map(|stat| stat.pid), Some(std::process::id()));
        assert_eq!(all.first().map(|stat| stat.name.as_str()), Some("sleep"));
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!((ancestors(child.id()).len(), ancestors(0).len()), (0, 0));
    }
}
