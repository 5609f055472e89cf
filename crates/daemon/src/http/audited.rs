//! Audit of users' requests: one line for each, also for rejected ones.

use crate::host::caller::Caller;
use crate::model::api_error::ApiError;
use crate::storage::audit::Audit;

/// Letters of a name that are logged: a malformed name can be of any length.
const LETTERS: usize = 256;

/// Requests that a user can make at any rate.
const CHEAP: [&str; 5] = ["get", "read", "extend", "pin", "unpin"];

/// A request of a user.
pub(super) struct Audited<'a> {
    audit: &'a Audit,
    who: &'a str,
    what: String,
    cache: String,
}

impl<'a> Audited<'a> {
    pub(super) fn on(
        audit: &'a Audit,
        caller: &'a Caller,
        what: impl Into<String>,
        cache: impl Into<String>,
    ) -> Self {
        let short = |text: String| text.chars().take(LETTERS).collect();
        Self { audit, who: &caller.name, what: short(what.into()), cache: short(cache.into()) }
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
        if done.is_err() || CHEAP.contains(&self.what.as_str()) {
            self.audit.note_shared(self.who, &self.what, &self.cache, &outcome);
        } else {
            self.audit.note(self.who, &self.what, &self.cache, &outcome);
        }
        done
    }

    /// It was this cache, as is known only now.
    pub(super) fn to(self, cache: &str) -> Self {
        Self { cache: cache.into(), ..self }
    }
}
