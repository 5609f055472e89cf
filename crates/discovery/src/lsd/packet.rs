//! The text packet of BEP 14, written and read within limits.

use std::fmt::Write as _;

use crate::InfoHash;

/// Most swarms in one packet, so that it fits one frame.
pub(super) const MAX_HASHES: usize = 20;
/// Largest packet read.
pub(super) const MAX_PACKET: usize = 1500;
/// Longest cookie read.
const MAX_COOKIE: usize = 64;

const START: &str = "BT-SEARCH * HTTP/1.1";

/// Content of a packet: its sender is in these swarms and listens on `port`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Search {
    pub(super) port: u16,
    pub(super) hashes: Vec<InfoHash>,
    pub(super) cookie: Option<String>,
}

/// Writes a packet for the multicast group `host`. At most 20 hashes go in.
pub(super) fn write(host: &str, port: u16, hashes: &[InfoHash], cookie: &str) -> String {
    let mut out = format!("{START}\r\nHost: {host}\r\nPort: {port}\r\n");
    for hash in hashes.iter().take(MAX_HASHES) {
        out.push_str("Infohash: ");
        for byte in hash {
            // Writing to a String cannot fail.
            let _ = write!(out, "{byte:02x}");
        }
        out.push_str("\r\n");
    }
    let _ = write!(out, "cookie: {cookie}\r\n\r\n\r\n");
    debug_assert!(out.len() < MAX_PACKET);
    out
}

/// Parses a packet; `None` if it is malformed. Unknown headers are skipped, hashes beyond the twentieth ignored.
pub(super) fn read(packet: &[u8]) -> Option<Search> {
    let text = str::from_utf8(packet.get(..packet.len().min(MAX_PACKET))?).ok()?;
    let mut lines = text.split("\r\n");
    if lines.next()? != START {
        return None;
    }
    let (mut port, mut hashes, mut cookie) = (None, Vec::new(), None);
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("port") {
            port = Some(value.parse().ok().filter(|&p: &u16| p != 0)?);
        } else if name.eq_ignore_ascii_case("infohash") {
            if hashes.len() < MAX_HASHES {
                hashes.push(hash(value.as_bytes())?);
            }
        } else if name.eq_ignore_ascii_case("cookie") && value.len() <= MAX_COOKIE {
            cookie = Some(value.to_owned());
        }
    }
    let port = port?;
    (!hashes.is_empty()).then_some(Search { port, hashes, cookie })
}

fn hash(hex: &[u8]) -> Option<InfoHash> {
    let (pairs, rest) = hex.as_chunks::<2>();
    if pairs.len() != 20 || !rest.is_empty() {
        return None;
    }
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let mut out = [0; 20];
    for (byte, &[high, low]) in out.iter_mut().zip(pairs) {
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_others_write() {
        let packet = b"BT-SEARCH * HTTP/1.1\r\nHost: 239.192.152.143:6771\r\nPort: 51413\r\n\
            Infohash: 0123456789ABCDEFabcdef0123456789abcdef01\r\n\r\n\r\n";
        let got = read(packet).unwrap();
        assert_eq!((got.port, got.hashes.len(), got.cookie), (51413, 1, None));
        assert_eq!(got.hashes[0][..8], [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
    }

    #[test]
    fn refuses_the_rest() {
        let good = "BT-SEARCH * HTTP/1.1\r\nPort: 1\r\nInfohash: 0123456789abcdefabcdef0123456789abcdef01\r\n\r\n\r\n";
        assert!(read(good.as_bytes()).is_some());
        for (from, to) in [
            ("SEARCH", "FIND"),
            ("Port: 1", "Port: 0"),
            ("Port: 1", "Port: 65536"),
            ("Port: 1", "X: 1"),
            ("ef01\r", "ef0\r"),
            ("ef01\r", "ef0g\r"),
            ("ef01\r", "ef0101\r"),
            ("Infohash", "Hash"),
            ("Port:", "Port"),
        ] {
            assert!(read(good.replace(from, to).as_bytes()).is_none(), "{from} -> {to}");
        }
        assert!(read(&[0xff; 2000]).is_none());
    }

    #[test]
    fn takes_no_more_than_it_says() {
        let one = "Infohash: 0123456789abcdefabcdef0123456789abcdef01\r\n";
        let packet = format!("{START}\r\nPort: 1\r\n{}\r\n", one.repeat(25));
        assert_eq!(read(packet.as_bytes()).unwrap().hashes.len(), MAX_HASHES);
    }

    proptest! {
        #[test]
        fn round_trip(port in 1u16.., hashes in proptest::collection::vec(any::<InfoHash>(), 1..=MAX_HASHES), n: u64) {
            let cookie = format!("{n:x}");
            let packet = write("[ff15::efc0:988f]:6771", port, &hashes, &cookie);
            prop_assert!(packet.len() <= 1400);
            prop_assert_eq!(read(packet.as_bytes()), Some(Search { port, hashes, cookie: Some(cookie) }));
        }

        #[test]
        fn garbage_is_read_or_refused(packet: Vec<u8>, text in "\\PC{0,100}") {
            let _ = read(&packet);
            let _ = read(format!("{START}\r\n{text}").as_bytes());
            let _ = read(format!("{START}\r\nPort: 1\r\nInfohash: {text}\r\n").as_bytes());
        }
    }
}
