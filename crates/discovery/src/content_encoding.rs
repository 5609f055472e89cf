//! `Content-Encoding` of a tracker's answer: gzip and deflate, with a limit on the decompressed size.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

/// The accepted encodings; some trackers compress in any case.
pub(crate) const ACCEPTED: &str = "gzip, deflate";

/// Why a body has no content that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The content is longer than the limit.
    TooLong,
    /// It does not match its encoding.
    Damaged,
    /// An encoding that was not asked for.
    Unknown,
}

/// The content of `body`, at most `limit` bytes of it. `encodings` is the value of the header, the last applied last.
pub(crate) fn decode<'b>(body: &'b [u8], encodings: &str, limit: usize) -> Result<Cow<'b, [u8]>, Fault> {
    let mut names = encodings.split(',').map(str::trim).filter(|name| !name.is_empty());
    let name = names.next().unwrap_or("identity").to_ascii_lowercase();
    // Nested encodings are not used in practice, and multiply the size of the result.
    if names.next().is_some() {
        return Err(Fault::Unknown);
    }
    match name.as_str() {
        "identity" => Ok(Cow::Borrowed(body)),
        // Some servers name the encoding and send plain text all the same.
        "gzip" | "x-gzip" | "deflate" if body.first() == Some(&b'd') => Ok(Cow::Borrowed(body)),
        "gzip" | "x-gzip" => inflate(MultiGzDecoder::new(body), limit),
        // RFC 9110 requires zlib; some servers send the bare stream.
        "deflate" => inflate(ZlibDecoder::new(body), limit).or_else(|fault| match fault {
            Fault::Damaged => inflate(DeflateDecoder::new(body), limit),
            other => Err(other),
        }),
        _ => Err(Fault::Unknown),
    }
}

fn inflate(reader: impl Read, limit: usize) -> Result<Cow<'static, [u8]>, Fault> {
    let mut content = Vec::new();
    reader.take(limit as u64 + 1).read_to_end(&mut content).map_err(|_| Fault::Damaged)?;
    if content.len() > limit {
        return Err(Fault::TooLong);
    }
    Ok(content.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_form_in_use_is_read() {
        let content = b"d8:intervali60e5:peers0:e";
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(content).unwrap();
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::fast());
        bare.write_all(content).unwrap();
        let (zlib, bare) = (zlib.finish().unwrap(), bare.finish().unwrap());
        // Two members make one content.
        let two = [gzip(&content[..10]), gzip(&content[10..])].concat();
        for (encoding, body) in [
            ("", content.to_vec()),
            ("identity", content.to_vec()),
            ("gzip", content.to_vec()),
            ("gzip", gzip(content)),
            (" X-GZip ", gzip(content)),
            ("gzip", two),
            ("deflate", zlib),
            ("deflate", bare),
        ] {
            assert_eq!(decode(&body, encoding, 1000).unwrap().as_ref(), content, "{encoding}");
        }
        for encoding in ["br", "gzip, gzip", "identity, gzip"] {
            assert_eq!(decode(&gzip(content), encoding, 1000), Err(Fault::Unknown), "{encoding}");
        }
        let cut = gzip(content);
        assert_eq!(decode(&cut[..cut.len() - 4], "gzip", 1000), Err(Fault::Damaged));
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit() {
        let bomb = gzip(&vec![b'd'; 64 << 20]);
        assert_eq!(decode(&bomb, "gzip", 1 << 10), Err(Fault::TooLong));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(body: Vec<u8>, encoding in "gzip|deflate|identity|[a-z, ]{0,20}") {
            let content = decode(&body, &encoding, 4096);
            prop_assert!(encoding == "identity" || content.is_err() || content.is_ok_and(|c| c.len() <= 4096 || c.len() == body.len()));
        }
    }
}
