//! Addresses of daemons in settings and catalogues: NAME, HOST:PORT or NAME=HOST:PORT.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::timeout;

/// The port that daemons are expected at.
pub const PORT: u16 = 6980;

/// Whether an entry is that of a host.
pub(crate) fn is_of(peer: &str, host: Option<&str>) -> bool {
    peer.split_once('=').is_some_and(|(name, _)| Some(name) == host)
}

/// The address of a host by the settings.
pub(crate) fn place_of(peers: &[String], host: &str) -> String {
    let listed = peers.iter().filter_map(|peer| peer.split_once('='));
    listed.into_iter().find(|(name, _)| *name == host).map_or(host, |(_, place)| place).to_owned()
}

/// The addresses of HOST, HOST:PORT or several ADDR:PORT; none if it cannot be found.
pub(crate) async fn resolve(place: &str) -> Vec<SocketAddr> {
    if let Ok(all) = place.split(',').map(str::parse).collect() {
        return all;
    }
    let with_port = place.parse::<SocketAddr>().is_ok()
        || place.rsplit_once(':').is_some_and(|(_, p)| p.parse::<u16>().is_ok());
    let place = if with_port { place.to_owned() } else { format!("{place}:{PORT}") };
    let looked = timeout(Duration::from_secs(5), lookup_host(place)).await;
    looked.ok().and_then(Result::ok).map(Iterator::collect).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_where_the_settings_say_else_at_its_name() {
        let peers = ["node1=10.0.0.1:7", "10.0.0.2:7", "node3"].map(str::to_owned);
        assert_eq!(place_of(&peers, "node1"), "10.0.0.1:7");
        assert_eq!(place_of(&peers, "node3"), "node3");
        assert!(is_of("node1=10.0.0.1:7", Some("node1")) && !is_of("node1=10.0.0.1:7", Some("node2")));
        assert!(!is_of("node1", Some("node1")) && !is_of("node1=a", None));
    }

    #[tokio::test]
    async fn addresses_are_taken_as_they_are_and_have_a_usual_port() {
        let [a, b]: [SocketAddr; 2] = [([10, 0, 0, 1], 7).into(), ([10, 0, 0, 2], 8).into()];
        assert_eq!(resolve("10.0.0.1:7,10.0.0.2:8").await, [a, b]);
        assert_eq!(resolve("10.0.0.1").await, [SocketAddr::new(a.ip(), PORT)]);
        assert_eq!(resolve("a name of no host:1").await, []);
    }
}
