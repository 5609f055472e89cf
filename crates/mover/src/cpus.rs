//! CPU affinity. Memory is allocated on the NUMA node of the thread that first writes to it, so pinned
//! threads keep their blocks on their node.

use std::path::PathBuf;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::error::Error;

/// Cores by number, of a NUMA node, or of the node to which a network card belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cpus {
    /// `0-3,8`: by number.
    List(Vec<usize>),
    /// `node:N`: of a NUMA node.
    Node(u32),
    /// `card:NAME`: next to a network card.
    Card(String),
}

impl FromStr for Cpus {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            None => Ok(Self::List(list(text)?)),
            Some(("node", number)) => {
                let number = number.parse().map_err(|e| usage(format!("invalid NUMA node number: {e}")))?;
                Ok(Self::Node(number))
            }
            Some(("card", name)) if !name.is_empty() && !name.contains(['/', '.']) => {
                Ok(Self::Card(name.into()))
            }
            Some(_) => {
                Err(usage(format!("invalid core list {text}; write for example 0-3,8, node:N or card:NAME")))
            }
        }
    }
}

impl Cpus {
    /// The core numbers; empty for all cores.
    ///
    /// # Errors
    /// This host has no such node or card.
    pub fn numbers(&self) -> Result<Vec<usize>, Error> {
        match self {
            Self::List(cpus) => Ok(cpus.clone()),
            Self::Node(node) => {
                of(format!("/sys/devices/system/node/node{node}/cpulist").into(), "NUMA node")
            }
            Self::Card(name) => {
                // A card that is not on a bus is equally near to all cores.
                let near = PathBuf::from(format!("/sys/class/net/{name}"));
                if near.is_dir() && !near.join("device/local_cpulist").exists() {
                    return Ok(Vec::new());
                }
                of(near.join("device/local_cpulist"), "network card")
            }
        }
    }

    /// Keeps this thread, and those that it starts, on them.
    ///
    /// # Errors
    /// As [`Cpus::numbers`]; the system refuses it.
    pub fn keep_to(&self) -> Result<(), Error> {
        let cpus = self.numbers()?;
        if cpus.is_empty() {
            return Ok(());
        }
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        sched_setaffinity(None, &set)
            .map_err(|e| usage(format!("cannot pin this process to cores {cpus:?}: {e}")))
    }
}

fn usage(why: String) -> Error {
    Error::Usage(why)
}

fn of(path: PathBuf, what: &str) -> Result<Vec<usize>, Error> {
    let text =
        std::fs::read_to_string(&path).map_err(|e| usage(format!("this host has no such {what}: {e}")))?;
    list(text.trim())
}

/// Numbers and ranges, as the kernel writes them.
fn list(text: &str) -> Result<Vec<usize>, Error> {
    let number = |text: &str| match text.trim().parse::<usize>() {
        Ok(n) if n < CpuSet::MAX_CPU => Ok(n),
        _ => Err(usage(format!("{text:?} is not a core number"))),
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            None => cpus.push(number(part)?),
            Some((first, last)) if number(first)? <= number(last)? => {
                cpus.extend(number(first)?..=number(last)?)
            }
            Some(_) => return Err(usage(format!("range {part} ends before it begins"))),
        }
    }
    Ok(cpus)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_as_the_kernel_writes_them() {
        assert_eq!("0-2,5".parse::<Cpus>().unwrap(), Cpus::List(vec![0, 1, 2, 5]));
        assert_eq!("node:1".parse::<Cpus>().unwrap(), Cpus::Node(1));
        assert_eq!("card:eth0".parse::<Cpus>().unwrap(), Cpus::Card("eth0".into()));
        for wrong in ["", "3-1", "a", "0,", "99999", "node:x", "card:../x", "socket:1"] {
            assert!(wrong.parse::<Cpus>().is_err(), "{wrong}");
        }
    }
}
