//! `--measure`: what a setting is worth, measured with only that setting changed.
//!
//! Two network namespaces of our own are joined by a line of the goal's rate and round-trip time
//! ([`tidecast_wan`]). The settings of this host that a network namespace has are copied to both; then one flow
//! is measured, once as they are and once for each finding with its setting changed. Nothing outside of the two
//! namespaces changes. Directories are measured where they are, with a file that has no name.

mod disk;
mod flow;
mod line;
mod namespace;
mod settings;

use crate::facts::Directory;
use crate::{Finding, Goal, check};

pub use flow::Rate;
pub use line::Line;
pub use settings::{Error, Settings};

/// Measures each finding whose remedy a network namespace has, and writes the rates into [`Finding::measured`];
/// what cannot be measured has its reason behind its model. As many flows are measured together as the model has;
/// `mtu` is that of the host's interface. The file systems of `directories` are written and read, which the finding
/// `disk-speed` then says. Takes at most about 3 seconds a finding and 2 a directory.
///
/// # Errors
/// No namespaces or no line between them can be made.
pub fn measure(
    findings: &mut Vec<Finding>,
    goal: &Goal,
    mtu: u32,
    directories: &[Directory],
) -> Result<(), Error> {
    disk::measure(findings, directories, goal);
    if findings.iter().all(|finding| finding.changes.is_empty()) {
        return Ok(());
    }
    let (rtt, streams) = check::path(goal);
    let now = Settings { streams, ..Settings::of_this_host(mtu) };
    let wanted: Vec<Option<Settings>> = findings.iter().map(|finding| wanted(finding, &now)).collect();
    for (finding, wanted) in findings.iter_mut().zip(&wanted) {
        if wanted.is_none() && !finding.changes.is_empty() {
            finding.not_measured("the setting is that of the whole host or of its hardware");
        }
    }
    if wanted.iter().all(Option::is_none) {
        return Ok(());
    }
    let line = Line::new(goal.link, rtt)?;
    let before = line.rate(&now)?.bits_per_second;
    let mut known: Vec<(Settings, f64)> = Vec::new();
    for (finding, wanted) in findings.iter_mut().zip(wanted) {
        let Some(wanted) = wanted else { continue };
        let after = match known.iter().find(|(settings, _)| *settings == wanted) {
            Some((_, rate)) => *rate,
            None => {
                let rate = line.rate(&wanted)?.bits_per_second;
                known.push((wanted, rate));
                rate
            }
        };
        finding.measured = Some((before, after));
    }
    Ok(())
}

/// The settings with all changes of a finding; `None` if one of them is not a network namespace's or there are
/// none.
fn wanted(finding: &Finding, now: &Settings) -> Option<Settings> {
    let mut settings = now.clone();
    for change in &finding.changes {
        settings = settings.with(change)?;
    }
    (settings != *now).then_some(settings)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::settings::times;
    use super::*;
    use crate::Change;

    fn settings() -> Settings {
        Settings { sysctls: BTreeMap::new(), mtu: 1500, streams: 1 }
    }

    #[test]
    fn only_what_a_namespace_has_is_measured() {
        let rmem = Change::Sysctl { name: "net.ipv4.tcp_rmem".into(), value: "1 2 3".into() };
        let global = Change::Sysctl { name: "net.core.rmem_max".into(), value: "1".into() };
        let mtu = Change::Mtu { interface: "e".into(), bytes: 9000 };
        assert_eq!(settings().with(&rmem).unwrap().sysctls["net.ipv4.tcp_rmem"], "1 2 3");
        assert_eq!(settings().with(&mtu).unwrap().mtu, 9000);
        assert!(settings().with(&global).is_none());
        assert!(settings().with(&Change::Manual { command: "x".into() }).is_none());
    }

    #[test]
    fn a_measurement_takes_at_most_three_seconds() {
        for ms in [0, 1, 50, 100, 100_000] {
            let (warm, measured) = times(Duration::from_millis(ms));
            assert!(warm + measured <= Duration::from_secs(3));
        }
    }

    #[test]
    fn a_larger_buffer_is_measured_to_be_faster() {
        let Ok(line) = Line::new(200_000_000, Duration::from_millis(20)) else {
            eprintln!("skipped: no network namespaces here");
            return;
        };
        let with = |maximum: u32| {
            let value = format!("4096 131072 {maximum}");
            settings().with(&Change::Sysctl { name: "net.ipv4.tcp_rmem".into(), value }).unwrap()
        };
        let small = line.rate(&with(131_072)).unwrap().bits_per_second;
        let large = line.rate(&with(16 << 20)).unwrap().bits_per_second;
        // 131072 bytes in 20 ms are 52 Mbit/s at most, whatever else this machine does.
        assert!(small < 60e6, "{small}");
        assert!(large > small, "{large} after {small}");
    }
}
