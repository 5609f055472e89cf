//! Slurm's `topology.conf`.

use super::super::epoch::{MAX_PLACES, Place};
use super::{Map, TopologyError, Wrong, hostlist, lines};

/// A switch and the names of those that hang on it, until all are known.
type Hanging = Vec<(u32, usize, Vec<String>)>;

pub(super) fn read(text: &str) -> Result<Map, TopologyError> {
    let mut map = Map::empty(text)?;
    let mut hanging = Hanging::new();
    let joined = text.replace("\\\n", " ");
    for (line, words) in lines(&joined) {
        read_line(&mut map, &mut hanging, line, &words).map_err(|why| TopologyError::Line { line, why })?;
    }
    for (above, line, below) in hanging {
        for name in below {
            let Some(switch) = map.named(&name) else {
                return Err(TopologyError::Line { line, why: Wrong::Unknown });
            };
            let place = &mut map.places[switch as usize];
            if place.above != Some(0) || switch == above {
                return Err(TopologyError::Ring(name));
            }
            place.above = Some(above);
        }
    }
    map.checked()
}

fn read_line(map: &mut Map, hanging: &mut Hanging, line: usize, words: &[&str]) -> Result<(), Wrong> {
    let mut pairs = words.iter().map(|word| word.split_once('=').ok_or(Wrong::Form));
    let (key, name) = pairs.next().ok_or(Wrong::Form)??;
    let is = |key: &str, wanted: &str| key.eq_ignore_ascii_case(wanted);
    if is(key, "BlockSizes") {
        return Ok(());
    }
    if !(is(key, "SwitchName") || is(key, "BlockName")) || name.is_empty() {
        return Err(Wrong::Form);
    }
    let place = map.add_place(name, Place { above: Some(0), rate: 0 })?;
    for pair in pairs {
        let (key, value) = pair?;
        if is(key, "Nodes") {
            for host in hostlist::expand(value)? {
                map.add_host(host, place)?;
            }
        } else if is(key, "Switches") {
            let below = hostlist::expand(value)?;
            // Each may hang on one only, so that more cannot be right.
            if hanging.iter().map(|(_, _, names)| names.len()).sum::<usize>() + below.len() > MAX_PLACES {
                return Err(Wrong::Many);
            }
            hanging.push((place, line, below));
        } else if !is(key, "LinkSpeed") {
            return Err(Wrong::Form);
        }
    }
    Ok(())
}
