//! Memory: huge pages, shared memory, and what all sockets may have.

use tidecast_text::{Rate, Size};

use super::words::ms;
use crate::facts::Directory;
use crate::{Change, Facts, Finding, Goal, Purpose, model};

const KERNEL: &str = "kernel: filesystems/tmpfs.rst, admin-guide/mm/transhuge.rst";
const SYSCTL: &str = "kernel: networking/ip-sysctl.rst; fasterdata.es.net/host-tuning/linux";
/// Bits per second of one core that receives a field into huge pages; into small ones half of it.
const FIELD_CORE: f64 = 24e9;
/// Cores that receive a field: one a stream.
const FIELD_STREAMS: u32 = 4;
/// A time step of 512 x 512 x 512 floats has half a gigabyte, and a receiver keeps several.
const SHARED: u64 = 1 << 30;
/// Most streams of a copy.
const STREAMS: u64 = 64;
/// Sockets may have no more than this part of the memory.
const PART: u64 = 2;

pub(super) fn check(facts: &Facts, goal: &Goal) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(sockets(facts, goal));
    if goal.is_for(Purpose::Field) || goal.is_for(Purpose::Bcast) {
        found.extend(shared(facts, goal));
    }
    found.extend(group(facts));
    found
}

/// What all TCP sockets may have together.
fn sockets(facts: &Facts, goal: &Goal) -> Option<Finding> {
    let worst = goal.purposes().filter(|of| *of != Purpose::Field).max_by_key(|of| goal.rtt_for(*of))?;
    let rtt = goal.rtt_for(worst);
    let needed = (model::bandwidth_delay(goal.link, rtt) as f64 / model::WINDOW_OF_BUFFER) as u64;
    let [low, _, most] = facts.sockets.tcp_mem?;
    let bytes = most.saturating_mul(facts.memory.page);
    let rate = model::window_rate(bytes as f64 * model::WINDOW_OF_BUFFER, 1, rtt);
    let model = format!(
        "{} / {} = {} of {}",
        Size((bytes as f64 * model::WINDOW_OF_BUFFER) as u64),
        ms(rtt),
        Rate(rate as u64),
        Rate(goal.link)
    );
    let read = format!("net.ipv4.tcp_mem: at most {}", Size(bytes));
    let finding = Finding::new("tcp-memory", "", read, Size(needed).to_string(), SYSCTL)
        .because(format!(
            "all TCP buffers of the host share it, up to {STREAMS} streams of a copy among them"
        ))
        .costs(model::share_lost(rate, goal.link as f64), model);
    let room = facts.memory.total.map_or(u64::MAX, |total| total / PART);
    let pages = needed.saturating_mul(2).min(room) / facts.memory.page.max(1);
    let change = if pages > most {
        Change::sysctl("net.ipv4.tcp_mem", format!("{} {} {pages}", low.min(pages), pages / 4 * 3))
    } else {
        Change::Manual { command: "# more would take over half of the memory of this host".into() }
    };
    Some(finding.mend([change]))
}

fn shared(facts: &Facts, goal: &Goal) -> Vec<Finding> {
    let Some(dir) = &facts.storage.shared_memory else {
        let why = "/dev/shm does not exist; fields and broadcasts to ranks of one host need it";
        return vec![
            Finding::new("shm-size", "/dev/shm", "none", Size(SHARED).to_string(), KERNEL)
                .breaks()
                .because(why),
        ];
    };
    let mut found = Vec::new();
    found.extend(size(dir));
    found.extend(huge(facts, dir, goal));
    found
}

fn size(dir: &Directory) -> Option<Finding> {
    let (all, free) = dir.bytes?;
    let read = format!("{}, {} free", Size(all), Size(free));
    let finding =
        Finding::new("shm-size", "/dev/shm", read, format!("at least {} free", Size(SHARED)), KERNEL);
    if free >= SHARED {
        return Some(finding);
    }
    let why = "a field's time steps lie here; where they do not fit, the receiver ends";
    let command = format!("mount -o remount,size={}G /dev/shm", (all >> 30) + 4);
    let finding = if all < SHARED { finding.breaks() } else { finding.note() };
    Some(finding.because(why).mend((all < SHARED).then_some(Change::Manual { command })))
}

/// Huge pages of shared memory.
fn huge(facts: &Facts, dir: &Directory, goal: &Goal) -> Option<Finding> {
    let mount = dir.mount.as_ref().filter(|mount| mount.kind == "tmpfs")?;
    let option = mount.options.iter().find_map(|word| word.strip_prefix("huge="));
    let read = match (facts.memory.shared.as_deref()?, option) {
        ("deny", _) => "denied by shmem_enabled".to_owned(),
        ("force", _) => "forced by shmem_enabled".to_owned(),
        (_, option) => format!("huge={}", option.unwrap_or("never")),
    };
    let finding = Finding::new("shm-huge-pages", "/dev/shm", &read, "huge=within_size", KERNEL);
    if matches!(read.as_str(), "huge=within_size" | "huge=always" | "forced by shmem_enabled") {
        return Some(finding);
    }
    let cores = u32::try_from(facts.cpus.online.len()).unwrap_or(u32::MAX).clamp(1, FIELD_STREAMS);
    let then = FIELD_CORE * f64::from(cores);
    let model =
        format!("{cores} x {} instead of {}", Rate((FIELD_CORE / 2.0) as u64), Rate(FIELD_CORE as u64));
    let lost =
        if goal.is_for(Purpose::Field) { model::lost_between(then / 2.0, then, goal.link) } else { 0.0 };
    let why = "pages of 4 KiB are cleared and mapped one by one: a receiver of fields, or of a broadcast into memory, needs twice the CPU";
    let finding = finding.because(why).costs(lost, model);
    let finding = if lost > 0.0 { finding } else { finding.note() };
    Some(finding.mend([Change::Manual { command: "mount -o remount,huge=within_size /dev/shm".into() }]))
}

/// The limit of the control group.
fn group(facts: &Facts) -> Option<Finding> {
    let limit = facts.memory.group_limit?;
    let finding = Finding::new(
        "memory-limit",
        "",
        format!("this control group may have {}", Size(limit)),
        format!("at least {}", Size(SHARED)),
        "kernel: admin-guide/cgroup-v2.rst",
    );
    if limit >= SHARED {
        return Some(finding);
    }
    Some(
        finding
            .note()
            .because("pages that are read and written count, and beyond the limit programs are ended"),
    )
}
