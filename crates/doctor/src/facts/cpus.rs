//! Processors: how fast they may run, and which memory is near them.

use super::parse;
use crate::System;

const CPU: &str = "/sys/devices/system/cpu";
/// Most CPUs that are looked at one by one.
const MOST: usize = 1024;

/// The processors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cpus {
    /// Numbers of those that run.
    pub online: Vec<u32>,
    /// Those that this process may use.
    pub allowed: Vec<u32>,
    /// How the frequency is chosen, for each of [`Cpus::online`] that says so: `performance`, `powersave`, `schedutil`.
    pub governors: Vec<(u32, String)>,
    /// The driver of the frequency: `intel_pstate`, `acpi-cpufreq`.
    pub frequency_driver: Option<String>,
    /// Frequency now and at most, kHz, of the first CPU that shows it.
    pub frequency: Option<(u64, u64)>,
    /// Whether frequencies above the nominal one are allowed.
    pub turbo: Option<bool>,
    /// Whether a core runs two threads.
    pub smt: Option<bool>,
    /// Sleep states of the first CPU: name, microseconds to wake up, whether it is enabled.
    pub sleeps: Vec<(String, u64, bool)>,
    /// Nodes whose memory this process may have.
    pub memories: Vec<u32>,
    /// Nodes of memory, each with its CPUs.
    pub nodes: Vec<(u32, Vec<u32>)>,
    /// Model, where the kernel says it.
    pub model: Option<String>,
}

impl Cpus {
    pub(super) fn read(system: &System, cpuinfo: &str) -> Self {
        let text = |path: &str| system.text(&format!("{CPU}/{path}"));
        let online = text("online").and_then(|cpus| parse::list(&cpus)).unwrap_or_default();
        let first = online.first().copied().unwrap_or(0);
        let governor = |cpu: &u32| Some((*cpu, text(&format!("cpu{cpu}/cpufreq/scaling_governor"))?));
        let frequency = |name: &str| system.number(&format!("{CPU}/cpu{first}/cpufreq/{name}"));
        let sleeps = system.names(&format!("{CPU}/cpu{first}/cpuidle"));
        let sleep = |name: String| {
            let at = format!("cpu{first}/cpuidle/{name}");
            let wakes = text(&format!("{at}/latency"))?.parse().ok()?;
            Some((
                text(&format!("{at}/name"))?,
                wakes,
                text(&format!("{at}/disable")).as_deref() != Some("1"),
            ))
        };
        let boost = text("cpufreq/boost").map(|value| value == "1");
        let turbo = boost.or_else(|| text("intel_pstate/no_turbo").map(|value| value == "0"));
        let status = system.text("/proc/self/status").unwrap_or_default();
        let allowed = |name| status.lines().find_map(|line| line.strip_prefix(name)).and_then(parse::list);
        let model = cpuinfo
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == "model name");
        Self {
            allowed: allowed("Cpus_allowed_list:").unwrap_or_default(),
            memories: allowed("Mems_allowed_list:").unwrap_or_default(),
            governors: online.iter().take(MOST).filter_map(governor).collect(),
            frequency_driver: text(&format!("cpu{first}/cpufreq/scaling_driver")),
            frequency: frequency("scaling_cur_freq").zip(frequency("cpuinfo_max_freq")),
            turbo,
            smt: text("smt/active").map(|value| value == "1"),
            sleeps: sleeps.into_iter().filter_map(sleep).collect(),
            nodes: nodes(system),
            model: model.map(|(_, name)| name.trim().to_owned()),
            online,
        }
    }

    /// The node of a CPU.
    #[must_use]
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        self.nodes.iter().find(|(_, cpus)| cpus.contains(&cpu)).map(|(node, _)| *node)
    }
}

fn nodes(system: &System) -> Vec<(u32, Vec<u32>)> {
    let names = system.names("/sys/devices/system/node");
    let of = |name: &String| {
        let number = name.strip_prefix("node")?.parse().ok()?;
        let cpus = system.text(&format!("/sys/devices/system/node/{name}/cpulist"))?;
        Some((number, parse::list(&cpus)?))
    };
    names.iter().filter_map(of).collect()
}
