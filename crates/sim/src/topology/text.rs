//! The file of a topology: `switch`, `nodes` and `link` lines, as specified in `lab/README.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Link, Topology, TopologyError, room, units};

/// Reads the lines. Counts are bounded at once, validity of the whole is the caller's.
pub(super) fn read(text: &str) -> Result<Topology, TopologyError> {
    let mut topology = Topology::default();
    let mut names = BTreeMap::new();
    for (i, line) in text.split('\n').enumerate() {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        read_line(&mut topology, &mut names, &words).map_err(|why| TopologyError::Line {
            number: i + 1,
            line: units::cut(line.trim()),
            why: Box::new(why),
        })?;
    }
    Ok(topology)
}

fn read_line(
    topology: &mut Topology,
    names: &mut BTreeMap<String, u32>,
    words: &[&str],
) -> Result<(), TopologyError> {
    match *words {
        [] => Ok(()),
        ["switch", name] if is_name(name) && !names.contains_key(name) => {
            room(1, topology.switches.len() as u64 + 1, 0)?;
            names.insert(name.to_owned(), topology.add_switch(name.to_owned()));
            Ok(())
        }
        ["nodes", count, at, rate] => {
            let (Some(count), Some(at)) = (units::count(count), names.get(at)) else {
                return Err(TopologyError::Words);
            };
            topology.add_nodes(count, *at, units::rate(rate)?)
        }
        ["link", a, b, rate, ref options @ ..] => {
            let (Some(a), Some(b)) = (names.get(a), names.get(b).filter(|_| a != b)) else {
                return Err(TopologyError::Words);
            };
            room(1, topology.switches.len() as u64, topology.links.len() as u64 + 1)?;
            let mut link = Link { a: *a, b: *b, rate: units::rate(rate)?, ..Link::default() };
            for option in options {
                let (key, value) = option.split_once('=').unwrap_or((option, ""));
                if *option == "nat" {
                    link.nat = true;
                } else if !set(&mut link, key, value)? {
                    return Err(TopologyError::LinkOption(units::cut(option)));
                }
            }
            topology.links.push(link);
            Ok(())
        }
        _ => Err(TopologyError::Words),
    }
}

/// The options of a link, in the order in which they are written.
pub(super) const LINK_OPTIONS: [&str; 5] = ["delay", "loss", "dup", "reorder", "queue"];

/// Sets one of `LINK_OPTIONS`; false for an unknown name.
pub(super) fn set(link: &mut Link, key: &str, value: &str) -> Result<bool, TopologyError> {
    match key {
        "delay" => link.delay = units::delay(value)?,
        "loss" => link.loss = units::chance(value)?,
        "dup" => link.dup = units::chance(value)?,
        "reorder" => link.reorder = units::chance(value)?,
        "queue" => link.queue = units::queue(value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// A letter, then letters and digits, at most 16.
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.len() <= 16
        && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// Writes the lines, with adjacent equal nodes joined.
pub(super) fn write(topology: &Topology) -> String {
    let mut text: String = topology.switches.iter().map(|name| format!("switch {name}\n")).collect();
    for run in topology.nodes.chunk_by(|a, b| a == b) {
        let name = &topology.switches[run[0].switch as usize];
        // Writing to a String cannot fail.
        let _ = writeln!(text, "nodes {} {name} {}", run.len(), units::format_rate(run[0].rate));
    }
    for link in &topology.links {
        let [a, b] = [link.a, link.b].map(|s| &topology.switches[s as usize]);
        let _ = write!(text, "link {a} {b} {}", units::format_rate(link.rate));
        if link.delay > 0 {
            let _ = write!(text, " delay={}us", link.delay / 1_000);
        }
        for (key, ppm) in [("loss", link.loss), ("dup", link.dup), ("reorder", link.reorder)] {
            if ppm > 0 {
                let _ = write!(text, " {key}={}", units::format_chance(ppm));
            }
        }
        if link.queue > 0 {
            let _ = write!(text, " queue={}", link.queue);
        }
        text.push_str(if link.nat { " nat\n" } else { "\n" });
    }
    text
}
