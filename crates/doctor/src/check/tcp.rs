//! How TCP sends: windows, congestion control, pacing, the MTU of a path; and what it had to send again.

use tidecast_text::{Rate, grouped};

use super::words::{FAR, STREAMS_FAR, ms};
use crate::{Change, Facts, Finding, Goal, Purpose, model};

const PAGE: &str = "fasterdata.es.net/host-tuning/linux";
const SYSCTL: &str = "kernel: networking/ip-sysctl.rst";
/// The largest packet that every path carries.
const USUAL_MTU: u32 = 1500;
/// A window that no option enlarges.
const SMALL_WINDOW: f64 = 65_535.0;
/// A share of segments sent again that is worth knowing.
const AGAIN: f64 = 1e-3;
/// Fewer segments tell nothing.
const ENOUGH: u64 = 100_000;

pub(super) fn check(facts: &Facts, goal: &Goal) -> Vec<Finding> {
    let uses_tcp = goal.purposes().any(|purpose| purpose != Purpose::Field);
    let mut found = Vec::new();
    if uses_tcp {
        found.extend(scaling(facts, goal));
        found.extend(switch(
            facts.sockets.sack,
            "tcp-sack",
            "net.ipv4.tcp_sack",
            "1",
            "without it one lost segment has a whole window sent again",
        ));
        found.extend(switch(
            facts.sockets.timestamps,
            "tcp-timestamps",
            "net.ipv4.tcp_timestamps",
            "1",
            "without them sequence numbers of a fast stream wrap unseen, and round trips are measured seldom",
        ));
        found.extend(metrics(facts));
        found.extend(congestion(facts, goal));
        found.extend(probing(facts));
        found.extend(again(facts, goal));
    }
    found.extend(queueing(facts));
    found.extend(dropped(facts, goal));
    found
}

fn scaling(facts: &Facts, goal: &Goal) -> Option<Finding> {
    let on = facts.sockets.window_scaling?;
    let finding = Finding::new("tcp-window-scaling", "", if on { "on" } else { "off" }, "on", SYSCTL);
    if on {
        return Some(finding);
    }
    let rtt = goal.longest_rtt();
    let rate = model::window_rate(SMALL_WINDOW, STREAMS_FAR, rtt);
    let model = format!("{STREAMS_FAR} streams x 64 KiB / {} = {}", ms(rtt), Rate(rate as u64));
    let finding = finding.because("without it no window is larger than 64 KiB");
    let finding = finding.costs(model::share_lost(rate, goal.link as f64), model);
    Some(finding.mend([Change::sysctl("net.ipv4.tcp_window_scaling", "1")]))
}

/// A parameter that should be on.
fn switch(read: Option<bool>, check: &'static str, name: &str, value: &str, why: &str) -> Option<Finding> {
    let on = read?;
    let finding = Finding::new(check, "", if on { "on" } else { "off" }, "on", SYSCTL);
    Some(if on { finding } else { finding.note().because(why).mend([Change::sysctl(name, value)]) })
}

fn metrics(facts: &Facts) -> Option<Finding> {
    let forgets = facts.sockets.no_metrics_save?;
    let finding =
        Finding::new("tcp-metrics", "", if forgets { "forgotten" } else { "kept" }, "forgotten", PAGE);
    if forgets {
        return Some(finding);
    }
    let why = "a new connection starts as slowly as the last one to that host ended, one that met a crowded path too";
    Some(finding.note().because(why).mend([Change::sysctl("net.ipv4.tcp_no_metrics_save", "1")]))
}

/// What `copy` asks for on a long path.
fn congestion(facts: &Facts, goal: &Goal) -> Option<Finding> {
    let now = facts.sockets.congestion.clone()?;
    let all = facts.sockets.available.join(", ");
    let finding =
        Finding::new("congestion-control", "", format!("{now} (available: {all})"), "bbr available", PAGE);
    let rtt = goal.rtt_for(Purpose::Copy);
    if !goal.is_for(Purpose::Copy)
        || rtt <= FAR
        || now == "bbr"
        || facts.sockets.available.iter().any(|of| of == "bbr")
    {
        return Some(finding);
    }
    let mtu = facts.carriers().filter_map(|of| of.mtu).max().unwrap_or(USUAL_MTU);
    let rate = model::mathis_rate(mtu, rtt, 1e-6);
    let model = format!("one loss in a million over {}: {} a stream (Mathis)", ms(rtt), Rate(rate as u64));
    let why = format!(
        "on paths above {} `copy` asks for bbr, which keeps its rate after a loss; without it {now} is used",
        ms(FAR)
    );
    let finding = Finding { model, ..finding.note() }.because(why);
    Some(finding.mend([Change::Manual { command: "modprobe tcp_bbr".into() }]))
}

/// Whether a path that drops large packets silently is noticed.
fn probing(facts: &Facts) -> Option<Finding> {
    let level = facts.sockets.mtu_probing?;
    let jumbo = facts.carriers().find(|of| of.mtu.is_some_and(|mtu| mtu > USUAL_MTU));
    let finding = Finding::new(
        "tcp-mtu-probing",
        "",
        level.to_string(),
        if jumbo.is_some() { "1" } else { "0 or 1" },
        PAGE,
    );
    let Some(jumbo) = jumbo.filter(|_| level == 0) else { return Some(finding) };
    let why = format!(
        "{} sends packets above {USUAL_MTU} bytes; a router that drops them without an ICMP message stalls a connection for ever",
        jumbo.name
    );
    Some(finding.note().because(why).mend([Change::sysctl("net.ipv4.tcp_mtu_probing", "1")]))
}

fn again(facts: &Facts, goal: &Goal) -> Option<Finding> {
    let (sent, again) = facts.sockets.tcp_sent.zip(facts.sockets.tcp_again)?;
    let share = again as f64 / sent.max(1) as f64;
    let read = format!("{} of {} segments since boot", grouped(again), grouped(sent));
    let finding = Finding::new("tcp-retransmissions", "", read, format!("below {:.1}%", AGAIN * 100.0), PAGE);
    if sent < ENOUGH || share < AGAIN {
        return Some(finding);
    }
    let rtt = goal.longest_rtt();
    let rate = model::mathis_rate(USUAL_MTU, rtt, share);
    let model =
        format!("a loss of {:.2}% over {}: {} a stream (Mathis)", share * 100.0, ms(rtt), Rate(rate as u64));
    let why = "some path of this host loses packets; `--peers` finds which one";
    Some(Finding { model, ..finding.note() }.because(why))
}

/// Whether packets leave evenly.
fn queueing(facts: &Facts) -> Vec<Finding> {
    let of = |of: &crate::facts::Interface| {
        let kinds = of.qdiscs.clone()?;
        let finding = Finding::new("qdisc", &of.name, kinds.join(", "), "fq", PAGE);
        let shapes = ["tbf", "netem", "htb", "hfsc", "cbq", "ets"];
        if kinds.iter().any(|kind| shapes.contains(&kind.as_str())) {
            return Some(finding.note().because(
                "it limits or delays packets that leave by this interface: `tc -s qdisc` shows the rate",
            ));
        }
        if kinds.iter().all(|kind| kind == "fq") {
            return Some(finding);
        }
        let why = "fq paces each stream in the card's queue; without it TCP paces by timers of its own, and a rate limit of UDP comes in bursts";
        let mut changes = vec![Change::Qdisc { interface: of.name.clone(), kind: "fq".into() }];
        if facts.sockets.default_qdisc.as_deref() != Some("fq") {
            changes.push(Change::sysctl("net.core.default_qdisc", "fq"));
        }
        Some(finding.note().because(why).mend(changes))
    };
    facts.carriers().filter_map(of).collect()
}

/// Datagrams that no buffer had room for.
fn dropped(facts: &Facts, goal: &Goal) -> Option<Finding> {
    let (all, lost) = facts.sockets.udp_received.zip(facts.sockets.udp_dropped)?;
    if !goal.is_for(Purpose::Field) {
        return None;
    }
    let read = format!("{} of {} datagrams since boot", grouped(lost), grouped(all.saturating_add(lost)));
    let finding = Finding::new(
        "udp-drops",
        "",
        read,
        format!("below {:.1}%", AGAIN * 100.0),
        "100 Gbit/s paper, section 6.1",
    );
    let share = lost as f64 / all.saturating_add(lost).max(1) as f64;
    if share < AGAIN {
        return Some(finding);
    }
    Some(
        finding
            .note()
            .because("a receiver of this host was too slow, or its buffer too small: see udp-receive-buffer"),
    )
}
