//! Power settings that a BIOS or the kernel has chosen, and whether there are cores enough.

use tidecast_text::{Rate, count};

use super::load::Load;
use super::words::ranges;
use crate::model;
use crate::{Change, Facts, Finding, Goal};

const BIOS: &str = "100 Gbit/s paper, section 6.4; fasterdata.es.net/host-tuning/linux";
const KERNEL: &str = "kernel: admin-guide/pm/cpuidle.rst";
/// A slower wake-up is worth knowing, microseconds.
const SLOW_WAKE: u64 = 100;
/// From this rate on two threads of a core matter.
const SMT_MATTERS: u64 = 40_000_000_000;

pub(super) fn check(facts: &Facts, goal: &Goal) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(cores(facts, goal));
    found.extend(governor(facts, goal));
    found.extend(turbo(facts, goal));
    found.extend(smt(facts, goal));
    found.extend(sleep(facts));
    if facts.cpus.governors.is_empty() {
        let why = "the kernel or the hypervisor does not show how frequencies are chosen; look on the host or in the BIOS";
        found.push(Finding::new("cpu-governor", "", "", "performance", BIOS).unknown().because(why));
    }
    found
}

fn load(facts: &Facts) -> Option<Load> {
    let most = facts.carriers().max_by_key(|of| (of.speed, of.receive_queues.len()))?;
    Some(Load::of(facts, most))
}

/// Whether all cores together carry the link.
fn cores(facts: &Facts, goal: &Goal) -> Option<Finding> {
    let cpus = u32::try_from(facts.cpus.online.len()).ok().filter(|cpus| *cpus > 0)?;
    let each = load(facts)?.packet.core_rate();
    let (all, needed) = (each * f64::from(cpus), (goal.link as f64 / each).ceil());
    let model = format!(
        "{} x {} = {} of {}",
        count(cpus.into(), "CPU"),
        Rate(each as u64),
        Rate(all as u64),
        Rate(goal.link)
    );
    let finding =
        Finding::new("cpu-capacity", "", count(cpus.into(), "CPU"), format!("at least {needed:.0}"), BIOS)
            .because("each byte is copied between the kernel and a program once")
            .costs(model::share_lost(all, goal.link as f64), model);
    Some(finding)
}

fn governor(facts: &Facts, goal: &Goal) -> Option<Finding> {
    let slow: Vec<_> = facts.cpus.governors.iter().filter(|(_, name)| name != "performance").collect();
    let (_, name) = facts.cpus.governors.first()?;
    let read = slow.first().map_or(name, |(_, name)| name).clone();
    let finding = Finding::new("cpu-governor", "", read, "performance", BIOS);
    let Some((_, worst)) = slow.first() else { return Some(finding) };
    let numbers: Vec<u32> = slow.iter().map(|(cpu, _)| *cpu).collect();
    let read = format!("{worst} on CPUs {}", ranges(&numbers));
    // These two drivers raise the frequency within microseconds, under the governor powersave too.
    let adapts = facts
        .cpus
        .frequency_driver
        .as_deref()
        .is_some_and(|of| of.starts_with("intel_pstate") || of.starts_with("amd"));
    let stuck = worst == "powersave" && !adapts;
    let ratio = facts
        .cpus
        .frequency
        .filter(|(_, most)| stuck && *most > 0)
        .map_or(1.0, |(now, most)| now as f64 / most as f64);
    let carries = load(facts).map_or(f64::INFINITY, |load| load.capacity(load.packet));
    let lost = model::lost_between(carries * ratio, carries, goal.link);
    let model = format!(
        "{:.0}% of the frequency: {} instead of {}",
        ratio * 100.0,
        Rate((carries * ratio) as u64),
        Rate(carries as u64)
    );
    let finding = Finding { read, ..finding }
        .because("a core that runs slowly, or has to speed up first, carries less");
    let finding = if lost > 0.0 { finding.costs(lost, model) } else { finding.note() };
    let change = |cpu: &u32| Change::Sysfs {
        path: format!("devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"),
        value: "performance".into(),
    };
    Some(finding.mend(numbers.iter().map(change)))
}

fn turbo(facts: &Facts, goal: &Goal) -> Option<Finding> {
    let on = facts.cpus.turbo?;
    let finding = Finding::new("cpu-turbo", "", if on { "on" } else { "off" }, "on", BIOS);
    if on || goal.link < SMT_MATTERS {
        return Some(finding);
    }
    Some(
        finding
            .note()
            .because("one stream is limited by one core, which turbo makes a quarter faster or more"),
    )
}

fn smt(facts: &Facts, goal: &Goal) -> Option<Finding> {
    let on = facts.cpus.smt?;
    let finding = Finding::new("cpu-smt", "", if on { "on" } else { "off" }, "measure both", BIOS);
    if !on || goal.link < SMT_MATTERS {
        return Some(finding);
    }
    let why = "sources disagree: the paper and fasterdata turn it off, OSG leaves it on; two threads of a core share its cache";
    Some(finding.note().because(why))
}

fn sleep(facts: &Facts) -> Option<Finding> {
    let (name, wakes, _) =
        facts.cpus.sleeps.iter().filter(|(.., enabled)| *enabled).max_by_key(|(_, wakes, _)| *wakes)?;
    let finding = Finding::new(
        "cpu-sleep",
        "",
        format!("{name}: {wakes} us to wake up"),
        format!("at most {SLOW_WAKE} us"),
        KERNEL,
    );
    if *wakes <= SLOW_WAKE {
        return Some(finding);
    }
    let why =
        "the first packets after a pause wait until the core is awake, and a short ring overflows meanwhile";
    let command = "tuned-adm profile network-latency".to_owned();
    Some(finding.note().because(why).mend([Change::Manual { command }]))
}
