//! Limits of processes and users, and ports.

use tidecast_text::{Size, grouped};

use crate::facts::parse::Limit;
use crate::{Change, Facts, Finding, Goal, Purpose};

const LIMITS: &str = "limits.conf(5), systemd.exec(5)";
const SYSCTL: &str = "kernel: admin-guide/sysctl";
/// Descriptors of a daemon, as its unit sets them; of any other command.
const FILES: (u64, u64) = (65_536, 4096);
/// Without so many processes and threads commands fail to start; below the second, some may.
const PROCESSES: (u64, u64) = (256, 2048);
/// Bytes that may be kept from being swapped, for sends without copies.
const LOCKED: u64 = 8 << 20;
const BACKLOG: u64 = 1024;
/// Fewer ports than this are used up by a large broadcast and its retries.
const EPHEMERAL: u16 = 10_000;
const WATCHERS: u64 = 64;
/// Port of a daemon to other daemons; of a swarm, the first that is tried; of a tracker.
const DAEMON: u16 = 6980;
const SWARM: u16 = 6881;
const TRACKER: u16 = 6969;

pub(super) fn check(facts: &Facts, goal: &Goal) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(files(facts, goal));
    found.extend(processes(facts));
    found.extend(locked(facts, goal));
    found.extend(watchers(facts));
    found.extend(backlog(facts, goal));
    found.extend(ephemeral(facts));
    found.extend(ports(facts, goal));
    found
}

fn number(value: u64) -> String {
    if value == u64::MAX { "no limit".to_owned() } else { grouped(value) }
}

fn raise(what: &str, value: u64) -> Change {
    Change::Manual {
        command: format!("echo '* - {what} {value}' > /etc/security/limits.d/90-tidecast-{what}.conf"),
    }
}

fn files(facts: &Facts, goal: &Goal) -> Option<Finding> {
    let Limit { soft, hard } = facts.limits.files?;
    let wanted = if goal.is_for(Purpose::Daemon) { FILES.0 } else { FILES.1 };
    let read = format!("{} (hard {})", number(soft), number(hard));
    let finding = Finding::new("open-files", "", read, number(wanted), LIMITS);
    // Only what the limit can be raised to matters to a service, which has its own; a user's commands have the soft one.
    if soft >= wanted {
        return Some(finding);
    }
    let why = "each peer, stream and file takes a descriptor; where none is left, connections are refused";
    let finding = if soft < FILES.1 { finding.breaks() } else { finding.note() };
    Some(finding.because(why).mend([raise("nofile", wanted.max(hard.min(FILES.0)))]))
}

fn processes(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut judge = |check, most: u64, change: Option<Change>| {
        let finding = Finding::new(check, "", number(most), number(PROCESSES.1), LIMITS);
        if most >= PROCESSES.1 {
            return found.push(finding);
        }
        let finding = if most < PROCESSES.0 { finding.breaks() } else { finding.note() };
        let why = "threads count too: a command starts some for each core and stream";
        found.push(finding.because(why).mend(change));
    };
    if let Some(limit) = facts.limits.processes {
        judge("processes", limit.soft, Some(raise("nproc", PROCESSES.1 * 2)));
    }
    if let Some(most) = facts.limits.group_tasks {
        judge("control-group-tasks", most, None);
    }
    found
}

fn locked(facts: &Facts, goal: &Goal) -> Option<Finding> {
    let limit = facts.limits.locked?;
    if !(goal.is_for(Purpose::Copy) || goal.is_for(Purpose::Field)) {
        return None;
    }
    let read = if limit.soft == u64::MAX { "no limit".to_owned() } else { Size(limit.soft).to_string() };
    let finding = Finding::new("locked-memory", "", read, Size(LOCKED).to_string(), LIMITS);
    if limit.soft >= LOCKED {
        return Some(finding);
    }
    let why =
        "the kernel counts data that is sent without copies as locked memory; beyond the limit it copies";
    Some(finding.note().because(why).mend([raise("memlock", LOCKED >> 10)]))
}

fn watchers(facts: &Facts) -> Option<Finding> {
    let most = facts.limits.watchers?;
    let finding =
        Finding::new("inotify", "", format!("{} sets a user", number(most)), number(WATCHERS), SYSCTL);
    if most >= WATCHERS {
        return Some(finding);
    }
    let why = "programs that follow a delivered tree (viewers, editors, services) fail where none is left";
    let change = Change::sysctl("fs.inotify.max_user_instances", "128");
    Some(finding.note().because(why).mend([change]))
}

fn backlog(facts: &Facts, goal: &Goal) -> Option<Finding> {
    let most = facts.limits.backlog?;
    let refused = facts.sockets.listen_overflows.unwrap_or(0);
    if !(goal.is_for(Purpose::Bcast) || goal.is_for(Purpose::Daemon)) {
        return None;
    }
    let read = format!("{}, {} connections refused since boot", number(most), grouped(refused));
    let finding = Finding::new("listen-backlog", "", read, number(BACKLOG), SYSCTL);
    if most >= BACKLOG {
        return Some(finding);
    }
    let why =
        "hosts of a broadcast connect at once, and retry after a second where the queue of the port is full";
    let change = Change::sysctl("net.core.somaxconn", "4096");
    Some(finding.note().because(why).mend([change]))
}

fn ephemeral(facts: &Facts) -> Option<Finding> {
    let (first, last) = facts.ports.ephemeral?;
    let many = last.saturating_sub(first);
    let finding = Finding::new(
        "ephemeral-ports",
        "",
        format!("{first} to {last}"),
        format!("at least {EPHEMERAL}"),
        SYSCTL,
    );
    if many >= EPHEMERAL {
        return Some(finding);
    }
    let change = Change::sysctl("net.ipv4.ip_local_port_range", "32768 60999");
    Some(
        finding
            .note()
            .because(
                "each connection that this host opens takes one for as long as it lasts, and a minute more",
            )
            .mend([change]),
    )
}

fn ports(facts: &Facts, goal: &Goal) -> Vec<Finding> {
    let all = [
        (
            Purpose::Daemon,
            DAEMON,
            "a daemon listens there to other daemons: if one runs, this is right; else choose another by `listen`",
        ),
        (Purpose::Bcast, SWARM, "the next free port is taken then; a firewall has to let it pass"),
        (
            Purpose::Bcast,
            TRACKER,
            "a tracker listens there: if one runs, this is right; else choose another by --listen",
        ),
    ];
    let of = |(_, port, why): &(Purpose, u16, &'static str)| {
        let used = facts.ports.tcp.contains(port);
        let finding = Finding::new(
            "port",
            port.to_string(),
            if used { "in use" } else { "free" },
            "free",
            "docs/reference/configuration",
        );
        if used { finding.note().because(*why) } else { finding }
    };
    all.iter().filter(|(purpose, ..)| goal.is_for(*purpose)).map(of).collect()
}
