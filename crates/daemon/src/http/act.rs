//! The audit of what users ask for: one line for each act, also for those that are refused.

use std::fmt::Write;

use crate::assembly::Daemon;
use crate::host::caller::Caller;
use crate::model::api_error::ApiError;
use crate::model::types::Limit;

/// Letters of a name that are written down: one that is no name can be of any length.
const LETTERS: usize = 256;

/// Somebody wants something.
pub(super) struct Act<'a> {
    daemon: &'a Daemon,
    who: &'a str,
    what: String,
    cache: String,
}

impl<'a> Act<'a> {
    pub(super) fn on(
        daemon: &'a Daemon,
        caller: &'a Caller,
        what: impl Into<String>,
        cache: impl Into<String>,
    ) -> Self {
        let short = |text: String| text.chars().take(LETTERS).collect();
        Self { daemon, who: &caller.name, what: short(what.into()), cache: short(cache.into()) }
    }

    /// It has ended.
    pub(super) fn ended<T>(self, done: Result<T, ApiError>) -> Result<T, ApiError> {
        self.ended_with(done, |_| "ok".into())
    }

    /// It has ended, in other words.
    pub(super) fn ended_with<T>(
        self,
        done: Result<T, ApiError>,
        words: impl FnOnce(&T) -> String,
    ) -> Result<T, ApiError> {
        let outcome = match &done {
            Ok(done) => words(done),
            Err(error) => error.why.clone(),
        };
        self.daemon.note(self.who, &self.what, &self.cache, &outcome);
        done
    }

    /// It was this cache, as is known only now.
    pub(super) fn to(self, cache: &str) -> Self {
        Self { cache: cache.into(), ..self }
    }
}

impl Daemon {
    /// What the log calls a cache that somebody names by its id: what he may not read stays an id, for he reads the log too.
    pub(super) fn noted(&self, caller: &Caller, id: &str) -> String {
        let record = id.parse().ok().and_then(|id| self.readable(caller, id).ok());
        record.map_or_else(|| id.into(), |record| record.full_name())
    }
}

/// An administrator's wish, with its numbers.
pub(crate) fn wish(what: &str, limit: &Limit) -> String {
    let mut text = what.to_owned();
    if what != "limit" {
        return text;
    }
    let whole = [
        ("capacity", limit.capacity),
        ("transfers", limit.transfers.map(u64::from)),
        ("upload", limit.upload),
        ("download", limit.download),
        ("disk_rate", limit.disk_rate),
    ];
    for (name, value) in whole {
        if let Some(value) = value {
            let _ = write!(text, " {name}={value}");
        }
    }
    for (name, value) in [("cores", limit.cores), ("busy", limit.busy)] {
        if let Some(value) = value {
            let _ = write!(text, " {name}={value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_told_with_its_numbers() {
        let limit = Limit { capacity: Some(5), busy: Some(0.5), ..Limit::default() };
        assert_eq!(wish("limit", &limit), "limit capacity=5 busy=0.5");
        assert_eq!(wish("drain", &limit), "drain");
    }
}
