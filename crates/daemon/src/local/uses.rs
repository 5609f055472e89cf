//! Users of caches: recorded when a cache is handed out, and reported to the users who may see them.

use std::sync::Arc;

use tidecast_depot::{CacheId, CacheRecord, Depot, Process, Reader, Stat, Use};

use crate::host::caller::Caller;
use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::types::CacheUse;
use crate::storage::store::Store;

/// Uses that a status tells of.
const TOLD: usize = 100;
/// Users that an error names.
const NAMED: usize = 3;

/// Notes a use. A process that uses the cache already has one use of it, however often it asks.
pub(crate) fn begin(
    depot: &Depot,
    id: CacheId,
    user: Use,
    reader: &Reader,
) -> Result<(), tidecast_depot::Error> {
    let now = crate::clock::now();
    let same: Vec<_> = depot.uses(id, now).into_iter().filter(|(_, other)| other.is_same(&user)).collect();
    depot.begin_use(id, user, reader, now)?;
    // The new one knows more: its forks, and when a terminal was at work last.
    same.into_iter().try_for_each(|(old, _)| depot.end_use(old))
}

/// The uses of caches.
pub(crate) struct Uses {
    store: Arc<Store>,
}

impl Uses {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    /// The users of a cache, as far as the caller may know.
    pub(crate) fn uses_of(&self, caller: &Caller, record: &CacheRecord) -> Vec<CacheUse> {
        let all = self.store.depot.uses(record.id, crate::clock::now()).into_iter();
        let told = all.filter(|(_, what)| caller.may_know(&record.owner, user_of(what)));
        told.map(|(_, what)| told_of(record.full_name(), what)).collect()
    }

    /// The users of all caches for which `of` is true, by the cache's owner and the user.
    pub(crate) fn all_uses(&self, of: impl Fn(&str, Option<&str>) -> bool) -> Vec<CacheUse> {
        let all = self.store.depot.all_uses(crate::clock::now()).into_iter();
        let told = all.filter_map(|(id, what)| {
            let record = self.store.depot.cache(id.cache)?;
            of(&record.owner, user_of(&what)).then(|| told_of(record.full_name(), what))
        });
        told.take(TOLD).collect()
    }

    /// Ends the uses of the caller's own shells: the later request to remove the cache is the same user's.
    pub(crate) async fn end_terminals(&self, caller: &Caller, id: CacheId) -> Result<(), ApiError> {
        let user = caller.name.clone();
        self.store
            .on_disk(move |depot| {
                let uses = depot.uses(id, crate::clock::now()).into_iter();
                let mine = uses.filter(|(_, what)| match what {
                    Use::Process(process) => process.terminal && process.user.as_ref() == Some(&user),
                    Use::Until(_) => false,
                });
                mine.map(|(id, _)| id).try_for_each(|id| depot.end_use(id))
            })
            .await
    }

    /// The error that a cache is in use or pinned, with its name and its users.
    pub(crate) fn by_whom(&self, error: ApiError, caller: &Caller, record: &CacheRecord) -> ApiError {
        if error.kind != ErrorKind::InUse {
            return error;
        }
        let name = record.full_name();
        if record.pinned {
            return ApiError { why: format!("{name} is pinned: unpin it first"), ..error };
        }
        let uses = self.uses_of(caller, record);
        if uses.is_empty() {
            return ApiError { why: format!("{name} is in use"), ..error };
        }
        let mut who: Vec<String> = uses.iter().take(NAMED).map(CacheUse::in_words).collect();
        if uses.len() > NAMED {
            who.push(format!("{} more", uses.len() - NAMED));
        }
        let why = format!("{name} is in use by {}", who.join(", "));
        ApiError { why, ..error }
    }
}

fn user_of(what: &Use) -> Option<&str> {
    match what {
        Use::Process(process) => process.user.as_deref(),
        Use::Until(_) => None,
    }
}

fn told_of(cache: String, what: Use) -> CacheUse {
    match what {
        Use::Process(process) => {
            let now = Process::running(process.pid).filter(|now| now.start == process.start);
            let command = now.and_then(|now| Stat::of(now.pid)).map(|stat| stat.name);
            CacheUse {
                cache,
                pid: Some(process.pid),
                command,
                user: process.user,
                job: process.job,
                since: Some(process.since).filter(|since| *since > 0),
                until: None,
                terminal: process.terminal,
            }
        }
        Use::Until(end) => CacheUse { cache, until: Some(end), ..CacheUse::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_told_with_process_user_and_job() {
        let process = Process::running(std::process::id()).unwrap_or_default();
        let process =
            Process { user: Some("alice".into()), job: Some("Slurm job 7".into()), since: 5, ..process };
        let told = told_of("head/nt@1".into(), Use::Process(process.clone()));
        let words = format!(
            "process {} ({}) of alice, Slurm job 7",
            process.pid,
            told.command.clone().unwrap_or_default()
        );
        assert_eq!((told.in_words(), told.since, told.until), (words, Some(5), None));
        // Its number belongs to another process by now.
        let gone = told_of(String::new(), Use::Process(Process { start: process.start + 1, ..process }));
        assert_eq!(gone.command, None);
        assert_eq!(told_of(String::new(), Use::Until(9)).until, Some(9));
    }
}
