//! Texts of `doctor`: the costliest finding first, each with its reason, its price and its remedy, in 80 columns.

use tidecast_text::{Rate, count};

use super::plain;
use crate::doctor::{Done, Finding, Fix, Setting};

/// Columns of a line.
const WIDTH: usize = 79;
/// Where the text of a row begins.
const INDENT: usize = 10;

impl Done {
    /// Lines for people. Settings that fit are only counted, unless `all`.
    #[must_use]
    pub fn lines(&self, all: bool) -> Vec<String> {
        let fit = self.findings.iter().filter(|of| of.verdict == "fit").count();
        let shown = self.findings.iter().filter(|of| all || of.verdict != "fit");
        let mut lines: Vec<String> = shown.flat_map(|of| block(of, self.link)).collect();
        let number = |verdict: &str| self.findings.iter().filter(|of| of.verdict == verdict).count() as u64;
        let cost = number("costs");
        let mut parts = vec![match cost {
            1 => "1 setting costs throughput".to_owned(),
            cost => format!("{cost} settings cost throughput"),
        }];
        parts.extend(some(number("note"), "note"));
        parts.extend(
            (number("unknown") > 0).then(|| format!("{} cannot be seen from here", number("unknown"))),
        );
        parts.push(format!("{} fit", count(fit as u64, "setting")));
        lines.push(parts.join(", "));
        lines
    }
}

impl Fix {
    /// Lines for people before a change is made: each command, and what is left.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.commands.iter().flat_map(|command| command.lines().map(plain)).collect();
        lines.extend(self.by_hand.iter().map(|command| format!("by hand: {}", plain(command))));
        lines.extend(self.left_out.iter().map(|why| format!("left out: {}", plain(why))));
        lines
    }
}

impl Setting {
    /// A line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let (setting, before, now) = (plain(&self.setting), plain(&self.before), plain(&self.now));
        match (self.outcome, &self.error) {
            ("changed", _) => format!("changed {setting} from {before} to {now}"),
            ("restored", _) => format!("restored {setting} to {now}"),
            ("changed by others", _) => {
                format!("left {setting} at {now}: it was changed since tidecast set {before}")
            }
            ("gone", _) => format!("{setting} no longer exists"),
            (_, Some(error)) => format!("cannot change {setting}: {}", plain(error)),
            (outcome, None) => format!("{setting}: {outcome}"),
        }
    }
}

fn some(number: u64, noun: &str) -> Option<String> {
    (number > 0).then(|| count(number, noun))
}

/// A finding as rustc writes an error: what, why, what it costs, how to mend it.
fn block(of: &Finding, link: u64) -> Vec<String> {
    let word = if of.verdict == "unknown" { "unseen" } else { of.verdict };
    let object = if of.object.is_empty() { String::new() } else { format!(" {}", plain(&of.object)) };
    let price = match of.cost {
        Some(share) if share > 0.0 => {
            format!(": {} of {} lost", percent(share), Rate(link))
        }
        _ => String::new(),
    };
    let mut lines = wrapped(&format!("{word}[{}]{object}{price}", of.check), 0);
    let mut row = |name: &str, text: &str| {
        if !text.is_empty() {
            let mut rows = wrapped(&plain(text), INDENT);
            if let Some(first) = rows.first_mut() {
                *first = format!("  {name:<7} {}", first.trim_start());
            }
            lines.append(&mut rows);
        }
    };
    row("read", &of.read);
    row("wanted", &of.wanted);
    row("why", &of.why);
    row("model", &of.model);
    if let Some(measured) = of.measured {
        let text =
            format!("{} as it is, {} as wanted", Rate(measured.before as u64), Rate(measured.after as u64));
        row("measured", &text);
    }
    row("source", of.source);
    // Whole, so that it can be pasted.
    lines.extend(of.commands.iter().map(|command| format!("  {:<7} {}", "fix", plain(command))));
    lines.push(String::new());
    lines
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 1.0 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

/// The words in lines, all but the first indented; a word that is too long for a line stays whole, so that it can be copied.
fn wrapped(text: &str, indent: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = " ".repeat(indent);
    for word in text.split(' ') {
        if line.trim().is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= WIDTH {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(std::mem::replace(&mut line, format!("{}{word}", " ".repeat(indent.max(2)))));
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_why_its_price_and_the_remedy_in_80_columns() {
        let finding = Finding {
            check: "tcp-receive-buffer",
            verdict: "costs",
            read: "net.ipv4.tcp_rmem: at most 6.29 MB".into(),
            wanted: "134 MB".into(),
            why: "a stream of `copy` sends at most one window a round trip, and half of the buffer is window"
                .into(),
            source: "100 Gbit/s paper, section 6.1",
            cost: Some(0.9),
            model: "1 stream x 3.15 MB of window / 50 ms = 503 Mbit/s of 10.0 Gbit/s".into(),
            commands: vec!["sysctl -w net.ipv4.tcp_rmem='4096 131072 134217728'".into()],
            ..Finding::default()
        };
        let fit = Finding { check: "x", verdict: "fit", ..Finding::default() };
        let done = Done { link: 10_000_000_000, serious: 1, findings: vec![finding, fit], ..Done::default() };
        let lines = done.lines(false);
        assert_eq!(lines[0], "costs[tcp-receive-buffer]: 90% of 10.0 Gbit/s lost");
        assert_eq!(
            lines[3],
            "  why     a stream of `copy` sends at most one window a round trip, and half of"
        );
        assert_eq!(lines[4], "          the buffer is window");
        assert!(lines.iter().all(|line| line.chars().count() < 80), "{lines:#?}");
        assert_eq!(lines.last().map(String::as_str), Some("1 setting costs throughput, 1 setting fit"));
        let escape = Finding { object: "\x1b[2J".into(), ..Finding::default() };
        assert!(!block(&escape, 1)[0].contains('\x1b'));
    }
}
