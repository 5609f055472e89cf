//! Slurm's `topology.yaml`: several topologies with names, of which the cluster's default is taken.
//!
//! Anchors and aliases are rejected, so that a short text cannot stand for a long one.

use saphyr_parser::{Event, Parser};

use super::error::{TopologyError, Wrong};
use super::map::Map;
use super::slurm::Switches;

/// Deepest nesting; the format has six levels.
const MAX_DEPTH: usize = 16;

/// A value and the line on which it begins.
struct Item {
    line: usize,
    value: Value,
}

enum Value {
    Text(String),
    List(Vec<Item>),
    Table(Vec<(String, Item)>),
}

impl Item {
    fn wrong(&self, why: Wrong) -> TopologyError {
        TopologyError::Line { line: self.line, why }
    }

    fn list(&self) -> Result<&[Item], TopologyError> {
        match &self.value {
            Value::List(items) => Ok(items),
            Value::Text(text) if text.is_empty() => Ok(&[]),
            _ => Err(self.wrong(Wrong::Yaml)),
        }
    }

    fn table(&self) -> Result<&[(String, Item)], TopologyError> {
        match &self.value {
            Value::Table(entries) => Ok(entries),
            _ => Err(self.wrong(Wrong::Yaml)),
        }
    }

    fn get(&self, key: &str) -> Option<&Item> {
        match &self.value {
            Value::Table(entries) => {
                entries.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, item)| item)
            }
            _ => None,
        }
    }

    fn text(&self) -> Result<&str, TopologyError> {
        match &self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.wrong(Wrong::Yaml)),
        }
    }

    /// A list of hosts or switches: as text, or as a list of such.
    fn texts(&self) -> Result<Vec<&str>, TopologyError> {
        match &self.value {
            Value::List(items) => items.iter().map(Item::text).collect(),
            _ => self.text().map(|text| if text.is_empty() { Vec::new() } else { vec![text] }),
        }
    }
}

pub(super) fn read(text: &str) -> Result<Map, TopologyError> {
    let mut switches = Switches::new(text)?;
    let whole = load(text)?;
    let chosen = match &whole.value {
        Value::List(topologies) => {
            let default = |item: &&Item| {
                item.get("cluster_default")
                    .and_then(|set| set.text().ok())
                    .is_some_and(|set| matches!(set.to_ascii_lowercase().as_str(), "true" | "yes" | "on"))
            };
            topologies.iter().find(default).or(topologies.first()).ok_or_else(|| whole.wrong(Wrong::Yaml))?
        }
        // One topology, without a name.
        _ => &whole,
    };
    let kinds = [("tree", "switches", "switch"), ("block", "blocks", "block"), ("ring", "rings", "ring")];
    let found = kinds.into_iter().find_map(|(kind, all, one)| Some((chosen.get(kind)?, all, one)));
    let Some((table, all, one)) = found else {
        let flat = chosen.get("flat").is_some();
        return Err(chosen.wrong(if flat { Wrong::Flat } else { Wrong::Yaml }));
    };
    let list = table.get(all).ok_or_else(|| table.wrong(Wrong::Yaml))?;
    for item in list.list()? {
        add(&mut switches, item, one)?;
    }
    switches.finish()
}

/// A switch, block or ring.
fn add(switches: &mut Switches, item: &Item, one: &str) -> Result<(), TopologyError> {
    let known = [one, "nodes", "children", "switches", "link_speed", "linkspeed"];
    if let Some((_, item)) =
        item.table()?.iter().find(|(key, _)| !known.iter().any(|known| key.eq_ignore_ascii_case(known)))
    {
        return Err(item.wrong(Wrong::Yaml));
    }
    let texts = |keys: &[&str]| -> Result<Vec<&str>, TopologyError> {
        let lists = keys.iter().filter_map(|key| item.get(key)).map(Item::texts);
        Ok(lists.collect::<Result<Vec<_>, _>>()?.concat())
    };
    let name = item.get(one).ok_or_else(|| item.wrong(Wrong::Yaml))?.text()?;
    let (nodes, below) = (texts(&["nodes"])?, texts(&["children", "switches"])?);
    switches.add(item.line, name, &nodes, &below).map_err(|why| item.wrong(why))
}

/// The open node while events come: a list, or a table with the key whose value is awaited.
enum Open {
    List(usize, Vec<Item>),
    Table(usize, Vec<(String, Item)>, Option<String>),
}

/// The first document.
fn load(text: &str) -> Result<Item, TopologyError> {
    let mut open: Vec<Open> = Vec::new();
    let mut last = 1;
    for event in Parser::new_from_str(text) {
        let (event, span) = event
            .map_err(|error| TopologyError::Line { line: error.marker().line().max(1), why: Wrong::Yaml })?;
        let line = span.start.line().max(1);
        last = line;
        let wrong = || TopologyError::Line { line, why: Wrong::Yaml };
        let done = match event {
            Event::Scalar(text, ..) => Item { line, value: Value::Text(scalar(&text).to_owned()) },
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() >= MAX_DEPTH => {
                return Err(wrong());
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(line, Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Table(line, Vec::new(), None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(line, items)) => Item { line, value: Value::List(items) },
                Some(Open::Table(line, entries, None)) => Item { line, value: Value::Table(entries) },
                _ => return Err(wrong()),
            },
            Event::Alias(_) => return Err(wrong()),
            _ => continue,
        };
        match open.last_mut() {
            None => return Ok(done),
            Some(Open::List(_, items)) => items.push(done),
            Some(Open::Table(_, entries, key)) => match (key.take(), done.value) {
                (Some(key), value) => entries.push((key, Item { line: done.line, value })),
                (None, Value::Text(text)) => *key = Some(text),
                (None, _) => return Err(wrong()),
            },
        }
    }
    Err(TopologyError::Line { line: last, why: Wrong::Yaml })
}

/// A value that is not there is written so, too.
fn scalar(text: &str) -> &str {
    if matches!(text, "~" | "null") { "" } else { text }
}
