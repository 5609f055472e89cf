//! Errors in responses to clients.

use axum::http::StatusCode;

/// The kind of an error, for programs. The words are a part of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// No such cache, or the caller may not know of it.
    Absent,
    /// Other hosts have copies.
    Copies,
    /// There is no room for it.
    Denied,
    /// More came than was declared.
    Exceeded,
    /// It is another's.
    Forbidden,
    /// The disk is full.
    Full,
    /// It is in use.
    InUse,
    /// The daemon failed.
    Internal,
    /// The request ended before all of it was there.
    Interrupted,
    /// It is damaged.
    Invalid,
    /// Leases need more room.
    Leased,
    /// The request makes no sense.
    Malformed,
    /// The daemon takes nothing new.
    Paused,
    /// The two ads, or the administrator's settings, do not allow it.
    Rejected,
    /// It is in another state than the request needs.
    State,
    /// The daemon is being stopped.
    Stopping,
    /// The name is another owner's.
    Taken,
    /// No daemon that has it is reachable, or sends it.
    Unreachable,
    /// Later.
    Wait,
    /// The bytes do not match the manifest.
    Wrong,
}

impl ErrorKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Copies => "copies",
            Self::Denied => "denied",
            Self::Exceeded => "exceeded",
            Self::Forbidden => "forbidden",
            Self::Full => "full",
            Self::InUse => "in_use",
            Self::Internal => "internal",
            Self::Interrupted => "interrupted",
            Self::Invalid => "invalid",
            Self::Leased => "leased",
            Self::Malformed => "malformed",
            Self::Paused => "paused",
            Self::Rejected => "rejected",
            Self::State => "state",
            Self::Stopping => "stopping",
            Self::Taken => "taken",
            Self::Unreachable => "unreachable",
            Self::Wait => "wait",
            Self::Wrong => "wrong",
        }
    }
}

/// A refusal: HTTP's code, one word for programs, and a sentence for people.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) kind: ErrorKind,
    pub(crate) why: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, kind: ErrorKind, why: impl Into<String>) -> Self {
        Self { status, kind, why: why.into() }
    }

    /// The request makes no sense.
    pub(crate) fn malformed(why: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, ErrorKind::Malformed, why.to_string())
    }

    /// The request ended before all of it was there.
    pub(crate) fn interrupted(why: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, ErrorKind::Interrupted, why.to_string())
    }

    /// No such cache, or the caller may not know of it.
    pub(crate) fn absent(name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, ErrorKind::Absent, format!("no cache {name} that you may read"))
    }

    /// It is another's.
    pub(crate) fn forbidden(why: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, ErrorKind::Forbidden, why)
    }

    /// The daemon failed.
    pub(crate) fn internal(why: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorKind::Internal, why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_api_are_these() {
        let words = [
            (ErrorKind::Absent, "absent"),
            (ErrorKind::InUse, "in_use"),
            (ErrorKind::Unreachable, "unreachable"),
            (ErrorKind::Denied, "denied"),
        ];
        for (kind, word) in words {
            assert_eq!(kind.word(), word);
        }
        let absent = ApiError::absent("head/nt");
        assert_eq!((absent.status.as_u16(), absent.kind), (404, ErrorKind::Absent));
        assert_eq!(absent.why, "no cache head/nt that you may read");
    }
}
