//! Bytes as one word of text: a prefix, base32, and four bytes of checksum. Tickets and invitations are such words.

use data_encoding::{BASE32_NOPAD, BASE32_NOPAD_NOCASE, DecodeKind};

use crate::TicketError;

/// The word for `body`.
pub(crate) fn write(prefix: &str, mut body: Vec<u8>) -> String {
    let sum = checksum(&body);
    body.extend_from_slice(&sum);
    format!("{prefix}{}", BASE32_NOPAD.encode(&body).to_ascii_lowercase())
}

/// The bytes of a word of at most `most` characters. White space and case do not matter: a word that was pasted from a mail
/// may be broken over lines.
pub(crate) fn read(prefix: &'static str, text: &str, most: usize) -> Result<Vec<u8>, TicketError> {
    let word: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).take(most + 1).collect();
    let (start, body) = word.split_at_checked(prefix.len()).ok_or(TicketError::Prefix(prefix))?;
    if !start.eq_ignore_ascii_case(prefix.as_bytes()) {
        return Err(TicketError::Prefix(prefix));
    }
    if word.len() > most {
        return Err(TicketError::TooLong(text.len()));
    }
    let mut bytes = BASE32_NOPAD_NOCASE.decode(body).map_err(|e| match e.kind {
        DecodeKind::Symbol => TicketError::Character(e.position + prefix.len() + 1),
        _ => TicketError::Checksum,
    })?;
    let (body, sum) = bytes.split_last_chunk::<4>().ok_or(TicketError::Checksum)?;
    if checksum(body) != *sum {
        return Err(TicketError::Checksum);
    }
    bytes.truncate(bytes.len() - 4);
    Ok(bytes)
}

fn checksum(body: &[u8]) -> [u8; 4] {
    let digest = ring::digest::digest(&ring::digest::SHA256, body);
    let mut sum = [0; 4];
    sum.iter_mut().zip(digest.as_ref()).for_each(|(s, d)| *s = *d);
    sum
}
