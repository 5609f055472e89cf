//! A worker that cannot connect to its coordinator can report that only on standard error, which its launcher forwards to
//! the coordinator. The line is written and parsed here, so that programs get it as fields.

use std::net::SocketAddr;

use tidecast_event::bcast::Unreached;

const WORDS: &str = "cannot reach the coordinator at ";
const MORE: &str = " more addresses";
/// Maximum number of addresses in the line: a host may have many, and lines of a launcher are truncated.
const NAMED: usize = 4;

/// Writes the line.
pub(crate) fn line(of: &Unreached) -> String {
    let named: Vec<String> = of.coordinator_addresses.iter().take(NAMED).map(ToString::to_string).collect();
    let more = of.coordinator_addresses.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more}{MORE}") } else { String::new() };
    format!("{WORDS}{}{more}: {}", named.join(", "), of.coordinator_error)
}

/// Parses the line: the addresses in it, and the error.
pub(crate) fn find(line: &str) -> Option<Unreached> {
    let rest = line.split_once(WORDS)?.1;
    let (addresses, why) = rest.split_once(": ")?;
    let named = match addresses.strip_suffix(MORE) {
        Some(more) => more.rsplit_once(" and ")?.0,
        None => addresses,
    };
    let addresses: Result<Vec<SocketAddr>, _> = named.split(", ").map(str::parse).collect();
    Some(Unreached { coordinator_addresses: addresses.ok()?, coordinator_error: why.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_says_is_found_in_what_its_launcher_says() {
        let addresses: Vec<SocketAddr> =
            (1..=6).map(|n| SocketAddr::new([n, 0, 0, 1].into(), 7000)).collect();
        let v6 = SocketAddr::new([0xfd00, 0, 0, 0, 0, 0, 0, 1].into(), 7001);
        for (all, named) in [(&addresses[..1], 1), (&addresses[..4], 4), (&addresses[..], 4), (&[v6][..], 1)]
        {
            let why = "Connection refused (os error 111): ask: somebody";
            let of = Unreached { coordinator_addresses: all.to_vec(), coordinator_error: why.to_owned() };
            let said = format!("n7: tidecast: error: {}", line(&of));
            let found = Unreached { coordinator_addresses: all[..named].to_vec(), ..of };
            assert_eq!(find(&said), Some(found), "{said}");
        }
        for other in
            ["", "cannot reach the coordinator at ", "cannot reach the coordinator at x: y", "error: no: z"]
        {
            assert_eq!(find(other), None, "{other}");
        }
    }
}
