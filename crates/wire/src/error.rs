//! Errors in the bytes of a peer, or in a message handed to the encoder.

/// The reason why the received bytes violate the peer protocol. Whatever it is, the sender broke a rule or
/// the stream is out of step: close the connection, nothing after the error can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The stream does not begin with the BitTorrent handshake.
    #[error(
        "not a BitTorrent handshake: byte {at} is {found:#04x} (BEP 3: byte 19, then \"BitTorrent protocol\")"
    )]
    Protocol {
        /// Offset of the first byte that differs.
        at: usize,
        /// That byte.
        found: u8,
    },
    /// A length prefix that this message cannot have, found before anything of the message was buffered.
    #[error("{message} message of {len} bytes ({rule})")]
    Length {
        /// The message.
        message: &'static str,
        /// Its length prefix, or the bytes left for a field that needs more.
        len: u64,
        /// The rule broken, with its source.
        rule: &'static str,
    },
    /// A field with a value that it must not have.
    #[error("{message} message with {field} {value} ({rule})")]
    Value {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The rule broken, with its source.
        rule: &'static str,
    },
    /// A required field that is missing, or has another type.
    #[error("{message} message without {field} ({rule})")]
    Missing {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// The rule broken, with its source.
        rule: &'static str,
    },
    /// The dictionary of an extension message is not well-formed.
    #[error("{message} message: {source} (BEP 3)")]
    Bencode {
        /// The message.
        message: &'static str,
        /// The defect.
        source: tidecast_metainfo::bencode::Error,
    },
    /// An extension message holds something other than a dictionary.
    #[error("{message} message without a dictionary (BEP 10)")]
    NotDict {
        /// The message.
        message: &'static str,
    },
    /// A message of an extension that the two sides have not agreed on.
    #[error("{message} message without agreement ({rule})")]
    NotAgreed {
        /// The message.
        message: &'static str,
        /// The rule broken, with its source.
        rule: &'static str,
    },
}

/// Why a message was not encoded. Nothing was appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The peer's extension handshake names no id for this extension: do without it.
    #[error("the peer does not support {0}")]
    NotSpoken(&'static str),
    /// A list or a byte field above its bound: send it in parts.
    #[error("{message} message with {len} in {field}, more than {max}; send it in parts")]
    TooLarge {
        /// The message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// Its length.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// `Message::Unknown` stands for something received and cannot be sent.
    #[error("an unknown message cannot be sent")]
    Unknown,
}
