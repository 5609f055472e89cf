//! The caller at the unix socket. The kernel identifies it (SO_PEERCRED), so it needs no proof and cannot be
//! forged.

use std::io;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use tidecast_depot::{Local, Process, Reader, Use};
use tokio::net::unix::UCred;

use crate::config::Serves;
use crate::model::api_error::ApiError;

const HOUR: u64 = 3600;
/// Bytes of a job's name.
const MAX_JOB: usize = 128;

/// A process of this host that asks something, and its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The user.
    pub(crate) uid: u32,
    /// The group.
    pub(crate) gid: u32,
    /// The name that identifies an owner at the site; `uid1234` for a user without a name.
    pub(crate) name: String,
    /// The names of the groups.
    pub(crate) groups: Vec<String>,
    /// The process, if it is one of this host's.
    pub(crate) pid: Option<i32>,
}

impl Caller {
    /// Looks up the user of these credentials. May ask a directory service: for a thread that may block.
    ///
    /// # Errors
    /// The user database cannot be read.
    pub(crate) fn of(cred: &UCred) -> io::Result<Self> {
        let user = User::from_uid(Uid::from_raw(cred.uid())).map_err(io::Error::from)?;
        let gid = Gid::from_raw(cred.gid());
        let groups = match &user {
            Some(user) => groups_of(&user.name, gid)?,
            None => names(vec![gid]),
        };
        let name = user.map_or_else(|| format!("uid{}", cred.uid()), |user| user.name);
        Ok(Self { uid: cred.uid(), gid: cred.gid(), name, groups, pid: cred.pid() })
    }

    /// As the depot knows readers.
    pub(crate) fn reader(&self) -> Reader {
        Reader { owner: self.name.clone(), groups: self.groups.clone(), all: self.rules() }
    }

    /// The user for whom a daemon of this machine asks: its own user; an administrator's daemon may ask for
    /// any user.
    ///
    /// # Errors
    /// The caller may not ask for this user.
    pub(crate) fn acts_for(&self, user: &str) -> Result<Reader, ApiError> {
        if user == self.name {
            return Ok(Reader { all: false, ..self.reader() });
        }
        if !self.rules() {
            return Err(ApiError::forbidden(format!(
                "only {user} or the administrator of this daemon may do that"
            )));
        }
        let found = User::from_name(user).map_err(|e| ApiError::internal(io::Error::from(e)))?;
        let gid = found.map_or(Gid::from_raw(u32::MAX), |user| user.gid);
        let groups = groups_of(user, gid).unwrap_or_default();
        Ok(Reader { owner: user.into(), groups, all: false })
    }

    /// The process that a cache is kept for: `pid`, if it is the caller's own, else the leader of the
    /// caller's job. `job`: the job's name as given by the caller. Reads the kernel's process table.
    ///
    /// # Errors
    /// There is no such process, or it is another user's.
    pub(crate) fn process(&self, pid: Option<i32>, job: Option<String>) -> Result<Use, ApiError> {
        let positive = |pid: i32| u32::try_from(pid).ok().filter(|pid| *pid > 1);
        let absent = |pid: i32| ApiError::malformed(format!("process {pid} does not exist"));
        let found = match pid {
            Some(pid) => match owner_of(pid).ok_or_else(|| absent(pid))? {
                owner if owner != self.uid && !self.rules() => {
                    return Err(ApiError::forbidden(format!("process {pid} belongs to another user")));
                }
                _ => match positive(pid) {
                    // It may have ended since it was looked at.
                    Some(number) => Some(Process::running(number).ok_or_else(|| absent(pid))?),
                    None => None,
                },
            },
            None => self.pid.and_then(positive).and_then(crate::host::job_process::of),
        };
        // A process of another container, or that of init, is not seen: then for an hour.
        let Some(process) = found else { return Ok(Use::Until(crate::clock::now() + HOUR)) };
        let job =
            job.filter(|job| job.len() <= MAX_JOB && job.bytes().all(|b| b.is_ascii_graphic() || b == b' '));
        Ok(Use::Process(Process {
            user: Some(self.name.clone()),
            job,
            since: crate::clock::now(),
            ..process
        }))
    }

    /// Whether it is the caller's to know that `user` uses a cache of `owner`.
    pub(crate) fn may_know(&self, owner: &str, user: Option<&str>) -> bool {
        self.rules() || owner == self.name || user == Some(&self.name)
    }

    /// The administrator of this daemon: root, or the user who runs it.
    #[must_use]
    pub(crate) fn rules(&self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}

/// Whether a daemon that serves these users rejects this one.
pub(crate) fn is_stranger(uid: u32, serves: Serves) -> bool {
    serves == Serves::Owner && uid != 0 && uid != rustix::process::geteuid().as_raw()
}

/// The groups of a user, with this primary group.
fn groups_of(user: &str, gid: Gid) -> io::Result<Vec<String>> {
    match std::ffi::CString::new(user) {
        Ok(name) => Ok(names(getgrouplist(&name, gid).map_err(io::Error::from)?)),
        Err(_) => Ok(names(vec![gid])),
    }
}

fn names(gids: Vec<Gid>) -> Vec<String> {
    gids.into_iter().filter_map(|gid| Some(Group::from_gid(gid).ok()??.name)).collect()
}

fn owner_of(pid: i32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    Some(std::fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// A group of this host by its name.
pub(crate) fn gid_of(name: &str) -> Option<u32> {
    Some(Group::from_name(name).ok()??.gid.as_raw())
}

/// The local user and group of an owner from elsewhere, where this daemon serves all users and knows the name.
pub(crate) fn local_of(owner: &str, group: Option<&str>, serves: Serves) -> Option<Local> {
    if serves == Serves::Owner {
        return None;
    }
    let user = User::from_name(owner).ok()??;
    // A group that this host does not have is not replaced by another.
    let gid = group.and_then(gid_of).unwrap_or(Local::NO_GROUP);
    Some(Local { uid: user.uid.as_raw(), gid })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::api_error::ErrorKind;

    #[test]
    fn a_cache_is_kept_for_a_process_that_exists() {
        let me = rustix::process::geteuid().as_raw();
        let user = |uid| Caller { uid, gid: 1, name: "ada".into(), groups: Vec::new(), pid: None };
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(matches!(user(me).process(Some(own), None), Ok(Use::Process(_))));
        for caller in [user(me), user(me + 1)] {
            for pid in [i32::MAX, 0, -1] {
                let error = caller.process(Some(pid), None).unwrap_err();
                assert_eq!(error.why, format!("process {pid} does not exist"));
            }
        }
        assert_eq!(user(me + 1).process(Some(own), None).unwrap_err().kind, ErrorKind::Forbidden);
    }
}
