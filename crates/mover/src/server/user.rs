//! The user to which a server that root starts changes.

use std::ffi::CString;
use std::str::FromStr;

use nix::unistd::{Gid, Uid};

use crate::error::Error;

/// A user by name, or by number with or without a group.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub struct User {
    text: String,
    uid: Uid,
    gid: Gid,
    /// As the system knows it, if it does.
    name: Option<CString>,
}

impl TryFrom<String> for User {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            // All ones means "unchanged" to the kernel.
            text.parse::<u32>().ok().filter(|id| plain && *id != u32::MAX)
        };
        let (who, group) = match text.split_once(':') {
            Some((who, group)) => {
                (who, Some(number(group).ok_or(format!("{group:?} is not a group number"))?))
            }
            None => (text, None),
        };
        let found = match number(who) {
            Some(uid) => nix::unistd::User::from_uid(Uid::from_raw(uid)).ok().flatten(),
            None if who.is_empty() => return Err("missing user".into()),
            None => {
                let found = nix::unistd::User::from_name(who).map_err(|e| e.to_string())?;
                Some(found.ok_or_else(|| format!("user {who:?} does not exist on this host"))?)
            }
        };
        let uid =
            found.as_ref().map(|user| user.uid).or(number(who).map(Uid::from_raw)).ok_or("no such user")?;
        let gid = group.map(Gid::from_raw).or(found.as_ref().map(|user| user.gid));
        let gid = gid.unwrap_or(Gid::from_raw(uid.as_raw()));
        let name = found.and_then(|user| CString::new(user.name).ok());
        Ok(Self { text: text.to_owned(), uid, gid, name })
    }
}

impl User {
    /// Whether it is root under any name.
    fn is_root(&self) -> bool {
        self.uid.is_root()
    }

    /// As the user wrote it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Makes this process one of that user, with that user's groups, permanently.
    ///
    /// # Errors
    /// Only root can do that.
    pub fn switch_to(&self) -> Result<(), Error> {
        let refused = |why: String| Err(Error::User(why));
        let (now, text) = (Uid::effective(), &self.text);
        if self.is_root() {
            return refused(format!("--as {text} is root; use --as-root to serve as root"));
        }
        if now == self.uid && Uid::current() == self.uid {
            return Ok(());
        }
        if !now.is_root() {
            return refused(format!("only root can become user {text}"));
        }
        let groups = match &self.name {
            Some(name) => nix::unistd::getgrouplist(name, self.gid),
            None => Ok(vec![self.gid]),
        };
        let become_it = || {
            nix::unistd::setgroups(&groups?)?;
            nix::unistd::setresgid(self.gid, self.gid, self.gid)?;
            nix::unistd::setresuid(self.uid, self.uid, self.uid)
        };
        become_it().map_err(|e: nix::Error| Error::User(format!("cannot become user {text}: {e}")))?;
        // The privileges of root must not come back, not even by a set-id program.
        rustix::thread::set_no_new_privs(true)
            .map_err(|e| Error::User(format!("cannot set no_new_privs: {e}")))?;
        if nix::unistd::setuid(Uid::from_raw(0)).is_ok() || Uid::effective() != self.uid {
            return refused("this process could regain root privileges, so it does not serve".into());
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn users_are_names_or_numbers() {
        let ids = |text: &str| text.parse::<User>().map(|user| (user.uid.as_raw(), user.gid.as_raw()));
        assert_eq!(ids("root"), Ok((0, 0)));
        assert_eq!(ids("4000001"), Ok((4_000_001, 4_000_001)));
        assert_eq!(ids("4000001:7"), Ok((4_000_001, 7)));
        for bad in ["", ":", "no such user", "-1", "4294967295", "root:", "root:x", "1:4294967295", "+5"] {
            assert!(ids(bad).is_err(), "{bad}");
        }
        assert!("root".parse::<User>().unwrap().switch_to().unwrap_err().to_string().contains("--as-root"));
    }
}
