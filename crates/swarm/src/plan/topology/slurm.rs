//! Slurm's `topology.conf`, and the parts in common with `topology.yaml`.

use super::super::epoch::{MAX_PLACES, Place};
use super::error::{TopologyError, Wrong};
use super::hostlist;
use super::map::Map;

/// A switch and the names of those that hang on it, until all are known.
type Hanging = Vec<(u32, usize, Vec<String>)>;

/// Switches and blocks, as they are named one after the other.
pub(super) struct Switches {
    map: Map,
    hanging: Hanging,
}

impl Switches {
    pub(super) fn new(text: &str) -> Result<Self, TopologyError> {
        Ok(Self { map: Map::empty(text)?, hanging: Hanging::new() })
    }

    /// A switch with the nodes and the switches that hang on it.
    pub(super) fn add(
        &mut self,
        line: usize,
        name: &str,
        nodes: &[&str],
        below: &[&str],
    ) -> Result<(), Wrong> {
        if name.is_empty() {
            return Err(Wrong::Form);
        }
        let place = self.map.add_place(name, Place { above: Some(0), rate: 0 })?;
        for list in nodes {
            for host in hostlist::expand(list)? {
                match self.map.host(&host) {
                    Some(before) if before != place => self.map.repeat(&host),
                    Some(_) => {}
                    None => self.map.add_host(host, place)?,
                }
            }
        }
        for list in below {
            let below = hostlist::expand(list)?;
            // More than places cannot be right, even if some hang on several.
            if self.hanging.iter().map(|(_, _, names)| names.len()).sum::<usize>() + below.len() > MAX_PLACES
            {
                return Err(Wrong::Many);
            }
            self.hanging.push((place, line, below));
        }
        Ok(())
    }

    /// The whole, when every switch is known.
    pub(super) fn finish(mut self) -> Result<Map, TopologyError> {
        for (above, line, below) in self.hanging {
            for name in below {
                let Some(switch) = self.map.named(&name) else {
                    return Err(TopologyError::Line { line, why: Wrong::Unknown });
                };
                if switch == above {
                    return Err(TopologyError::Ring(name));
                }
                match self.map.places().get(switch as usize).and_then(|place| place.above) {
                    Some(0) => self.map.hang(switch, above),
                    // Leaves of a fat tree are linked to every spine. One will do: only the sharing of a
                    // switch matters.
                    _ => self.map.repeat(&name),
                }
            }
        }
        self.map.checked()
    }
}

pub(super) fn read(text: &str) -> Result<Map, TopologyError> {
    let mut switches = Switches::new(text)?;
    for (line, text) in whole_lines(text) {
        let pairs = pairs(&text).ok_or(Wrong::Form);
        pairs
            .and_then(|pairs| read_line(&mut switches, line, &pairs))
            .map_err(|why| TopologyError::Line { line, why })?;
    }
    switches.finish()
}

/// Lines without their remarks, those that end with a backslash joined to the next; each with its first line's number.
fn whole_lines(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        let (at, first) = lines.next()?;
        let mut whole = String::new();
        let mut line = first;
        loop {
            let line_only = line.split('#').next().unwrap_or_default();
            match line_only.trim_end().strip_suffix('\\') {
                Some(begun) => {
                    whole.push_str(begun);
                    whole.push(' ');
                }
                None => {
                    whole.push_str(line_only);
                    break;
                }
            }
            let Some((_, next)) = lines.next() else { break };
            line = next;
        }
        Some((at + 1, whole))
    })
    .filter(|(_, line)| !line.trim().is_empty())
}

/// `KEY=VALUE` with white space around the sign and quotes around the value, as Slurm reads it.
fn pairs(line: &str) -> Option<Vec<(&str, &str)>> {
    let mut pairs = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        let key = key.trim_end();
        let after = after.trim_start();
        let (value, tail) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
        };
        if key.is_empty() || value.is_empty() || key.contains(char::is_whitespace) {
            return None;
        }
        pairs.push((key, value));
        rest = tail.trim_start();
    }
    Some(pairs)
}

fn read_line(switches: &mut Switches, line: usize, pairs: &[(&str, &str)]) -> Result<(), Wrong> {
    let is = |key: &str, wanted: &[&str]| wanted.iter().any(|wanted| key.eq_ignore_ascii_case(wanted));
    let Some(((key, name), rest)) = pairs.split_first() else { return Ok(()) };
    if is(key, &["BlockSizes", "AllowEmptySwitch"]) && rest.is_empty() {
        return Ok(());
    }
    let known = ["Nodes", "Switches", "Children", "LinkSpeed", "BlockSizes"];
    let named = is(key, &["SwitchName", "BlockName", "RingName"]);
    if !named || rest.iter().any(|(key, _)| !is(key, &known)) {
        return Err(Wrong::Form);
    }
    let values = |keys: &[&str]| -> Vec<&str> {
        rest.iter().filter(|(key, _)| is(key, keys)).map(|(_, value)| *value).collect()
    };
    switches.add(line, name, &values(&["Nodes"]), &values(&["Switches", "Children"]))
}
