//! One line of a host list: as people write it, or a line of a machine file of MPI libraries and schedulers.
//!
//! ```text
//! node[001-064],me@login:2222!node007    a list
//! a slots=4 max_slots=8                  hostfile of Open MPI
//! a:4 binding=user:0,1 user=me           machine file of MPICH, Hydra and Intel MPI
//! a 16                                   LSF, and older MPI libraries
//! a 4 all.q@a UNDEFINED                  Grid Engine
//! ```

use tidecast_text::hostlist::{self, Budget, ListError, Operator};

use super::{Host, HostError, MAX_HOSTS, host};

/// Options after a host in machine files, before a `=`. Only `user` and `port` matter for connecting.
const OPTIONS: &[&str] = &[
    "slots",
    "max_slots",
    "max-slots",
    "slots_max",
    "slots-max",
    "cpu",
    "cpus",
    "count",
    "np",
    "ncpus",
    "binding",
    "bind",
    "user",
    "username",
    "port",
    "ifname",
    "sockets",
    "cores",
    "gpus",
    "mem",
    "boards",
    "pin",
    "pe",
];

/// Applies a line to the hosts of the lines before it.
pub(super) fn read(line: &str, hosts: &mut Vec<Host>, budget: &mut Budget) -> Result<(), HostError> {
    let words = words(line);
    if let Some((first, options)) = machine(&words) {
        let mut named = list(first, budget)?;
        for option in options {
            set(&mut named, option).map_err(|()| HostError::Option((*option).into()))?;
        }
        hosts.extend(named);
        return Ok(());
    }
    if let Some(names) = counted(&words) {
        for name in names {
            hosts.extend(list(name, budget)?);
        }
        return Ok(());
    }
    let began = !hosts.is_empty();
    let items = hostlist::split(line)?;
    for (at, (operator, item)) in items.into_iter().enumerate() {
        if at == 0 && operator != Operator::Join && !began {
            let sign = line.trim_start().chars().next().unwrap_or('!');
            return Err(ListError::Operator(line.into(), sign).into());
        }
        budget.apply(operator, hosts, item_hosts(item)?, |host| host.name.clone())?;
        if hosts.len() > 2 * MAX_HOSTS {
            return Err(ListError::TooMany(MAX_HOSTS).into());
        }
    }
    Ok(())
}

/// The words of a line; white space around a `=` is part of a word, as Open MPI reads it.
fn words(line: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut joins = false;
    for word in line.split_whitespace() {
        match all.last_mut().filter(|_| joins || word.starts_with('=')) {
            Some(last) => last.push_str(word),
            None => all.push(word.to_owned()),
        }
        joins = word.ends_with('=');
    }
    all
}

/// The host of a line of a machine file, and its options.
fn machine(words: &[String]) -> Option<(&str, Vec<&str>)> {
    let (first, rest) = words.split_first()?;
    let option = |word: &String| word.split_once('=').is_some_and(|(key, _)| is_option(key));
    let rest = match rest {
        [count, queue, processors] if is_count(count) && is_queue(queue, processors) => &[],
        [count, rest @ ..] if is_count(count) && rest.iter().any(option) => rest,
        rest if rest.iter().any(option) => rest,
        _ => return None,
    };
    Some((first, rest.iter().map(String::as_str).collect()))
}

/// The hosts of a line in LSF's form, with the number of processes after each host.
fn counted(words: &[String]) -> Option<Vec<&str>> {
    let pair = |pair: &[String]| match pair {
        [name, count] if is_count(count) && !is_count(name) && !name.contains(',') => Some(()),
        _ => None,
    };
    words.chunks(2).map(pair).collect::<Option<()>>()?;
    (!words.is_empty()).then(|| words.iter().step_by(2).map(String::as_str).collect())
}

fn is_count(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

/// Whether this is the end of a line of Grid Engine.
fn is_queue(queue: &str, processors: &str) -> bool {
    queue.contains(['@', '.'])
        && (processors.chars().all(|c| c.is_ascii_uppercase()) || processors == "<NULL>")
}

fn is_option(key: &str) -> bool {
    OPTIONS.iter().any(|known| key.eq_ignore_ascii_case(known))
}

/// Applies an option that affects how to connect to the host.
fn set(hosts: &mut [Host], option: &str) -> Result<(), ()> {
    let (key, value) = option.split_once('=').ok_or(())?;
    let value = value.trim_matches('"');
    match key.to_ascii_lowercase().as_str() {
        "user" | "username" => {
            for one in hosts {
                let named = format!("{}={value}@{}", one.name, bracketed(one.login().1));
                let port = one.port;
                *one = item_hosts(&named).ok().and_then(|hosts| hosts.into_iter().next()).ok_or(())?;
                one.port = port;
            }
        }
        "port" => {
            let port = value.parse::<u16>().ok().filter(|port| *port > 0).ok_or(())?;
            hosts.iter_mut().for_each(|host| host.port = Some(port));
        }
        key if !is_option(key) => return Err(()),
        _ => {}
    }
    Ok(())
}

fn bracketed(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { name.to_owned() }
}

fn list(text: &str, budget: &mut Budget) -> Result<Vec<Host>, HostError> {
    let mut hosts = Vec::new();
    for (operator, item) in hostlist::split(text)? {
        budget.apply(operator, &mut hosts, item_hosts(item)?, |host| host.name.clone())?;
    }
    Ok(hosts)
}

/// `NAMES` or `NAMES=ADDRESSES`.
fn item_hosts(item: &str) -> Result<Vec<Host>, HostError> {
    let (names, addresses) = match item.split_once('=') {
        Some((names, addresses)) => (names, Some(addresses)),
        None => (item, None),
    };
    let names = hostlist::expand(names, MAX_HOSTS)?;
    let addresses = match addresses {
        Some(text) => hostlist::expand(text, MAX_HOSTS)?.into_iter().map(Some).collect(),
        None => vec![None; names.len()],
    };
    if names.len() != addresses.len() {
        let (names, addresses) = (names.len(), addresses.len());
        return Err(HostError::Uneven { item: item.into(), names, addresses });
    }
    names.iter().zip(addresses).map(|(name, address)| host(name, address.as_deref())).collect()
}
