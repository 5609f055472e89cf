//! The restrictions on entries that a client may store on a server ([`Accept::Restricted`]).

use tidecast_paths::acl;

use super::attributes::{Owners, SET_GID, SET_UID};
use super::{Directory, Relaxed};
use crate::entry::{Entry, Kind, Owner};
use crate::error::Error;
use crate::part::Part;
use crate::spec::Accept;

/// Set-user-id, set-group-id and sticky.
const SPECIAL: u32 = 0o7000;
const SET_ID: u32 = SET_UID | SET_GID;

impl Directory {
    /// Changes an entry to its state here, and removes metadata that a client may not store, which is
    /// reported once. False: it is left out.
    pub(super) fn admit(&self, part: &mut Part) -> Result<bool, Error> {
        self.alter(part)?;
        if !self.is_kept(&part.entry.kind) {
            let path = self.named(&part.entry.path)?;
            if self.done.lock().insert(part.file) {
                self.counts.left_out.fetch_add(1, Relaxed);
                self.named.iter().for_each(|named| named.add(path));
            }
            return Ok(false);
        }
        if self.accept == Accept::All {
            return Ok(true);
        }
        if matches!(part.entry.kind, Kind::Fifo | Kind::Socket | Kind::Device { .. }) {
            let path = self.named(&part.entry.path)?;
            if self.done.lock().insert(part.file) {
                self.lost(
                    path,
                    "skipped: this server does not accept pipes, sockets and devices without --trust-metadata".into(),
                );
                // With --delete the existing entry of that name stays.
                self.named.iter().for_each(|named| named.add(path));
            }
            return Ok(false);
        }
        let Stripped { dropped, owner } = strip(&mut part.entry, &self.owners);
        if owner {
            self.report_dropped();
        }
        if !dropped.is_empty() && self.told.lock().insert(part.file) {
            let (path, dropped) = (self.named(&part.entry.path)?, dropped.join(", "));
            self.lost(
                path,
                format!("dropped because this server does not accept it without --trust-metadata: {dropped}"),
            );
        }
        Ok(true)
    }
}

impl Directory {
    /// Changes an entry to its state here. A file from another host has no set-user-ID and set-group-ID bits but those
    /// that `--chmod` gives it: its content would run with the rights of the user who copies it.
    fn alter(&self, part: &mut Part) -> Result<(), Error> {
        let (kind, mode) = (&part.entry.kind, part.entry.attributes.mode);
        let is_file = matches!(kind, Kind::File { .. } | Kind::HardLink { .. });
        self.owners.alter(&mut part.entry);
        if !self.spec.pulled || self.owners.is_root() || !is_file || mode & SET_ID == 0 {
            return Ok(());
        }
        let wanted = std::mem::replace(&mut part.entry.attributes.mode, mode & !SET_ID);
        self.owners.alter(&mut part.entry);
        let is_kept =
            part.entry.attributes.mode == wanted || !self.spec.keep.perms || self.accept != Accept::All;
        if !is_kept && self.told.lock().insert(part.file) {
            let what =
                "set-user-ID and set-group-ID bits of another host's file dropped; set them with --chmod";
            self.lost(self.named(&part.entry.path)?, what.into());
        }
        Ok(())
    }

    /// Reports once that owners are the server's.
    pub(super) fn report_dropped(&self) {
        if self.foreign.fetch_add(1, Relaxed) == 0 {
            let what =
                "owners are not kept without --trust-metadata: everything belongs to the user of the server";
            self.problem(b"", what.into(), false);
        }
    }

    /// Whether entries of a kind are copied.
    fn is_kept(&self, kind: &Kind) -> bool {
        let keep = self.spec.keep;
        match kind {
            Kind::Symlink { .. } => keep.links,
            Kind::Fifo | Kind::Socket => keep.specials,
            Kind::Device { .. } => keep.devices,
            Kind::File { .. } | Kind::Dir | Kind::HardLink { .. } => true,
        }
    }
}

/// The removed metadata of an entry.
#[derive(Debug, Default, PartialEq, Eq)]
struct Stripped {
    dropped: Vec<String>,
    owner: bool,
}

fn strip(entry: &mut Entry, owners: &Owners) -> Stripped {
    let attributes = &mut entry.attributes;
    let mut dropped = Vec::new();
    // The mode of a link is ignored.
    if attributes.mode & SPECIAL != 0 && !matches!(entry.kind, Kind::Symlink { .. }) {
        dropped.push("set-id or sticky bit".to_owned());
    }
    attributes.mode &= !SPECIAL;
    let mut list = None;
    if let Some(xattrs) = &mut attributes.xattrs {
        xattrs.retain(|(name, value)| {
            let kept = name.starts_with(b"user.");
            if !kept {
                dropped.push(format!("attribute {}", tidecast_text::escaped_bytes(name)));
            }
            if name == acl::ATTRIBUTE.as_bytes() {
                list = Some(value.clone());
            }
            kept
        });
    }
    if let Some(list) = list {
        attributes.mode = acl::mode_without(&list, attributes.mode);
    }
    let (uid, gid) = owners.own();
    let owner = owners.resolve(&attributes.owner, (uid, gid)) != (uid, gid) || attributes.owner.uid != uid;
    attributes.owner = Owner { uid, gid, ..Owner::default() };
    Stripped { dropped, owner }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Attributes;
    use crate::spec::ReceiveSpec;

    #[test]
    fn a_guest_leaves_no_rights() {
        let owners = Owners::new(&ReceiveSpec::default(), Accept::Restricted).unwrap();
        let list =
            acl::Acl { owner: 7, users: vec![(1234, 7)], group: 4, mask: Some(7), ..acl::Acl::default() };
        let pair = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        let xattrs = vec![
            pair(b"user.note", b"x"),
            pair(acl::ATTRIBUTE.as_bytes(), &list.encode()),
            pair(b"security.capability", b"x"),
            pair(b"trusted.x", b"x"),
        ];
        let owner = Owner { uid: 77, gid: 78, user: "root".into(), group: "root".into() };
        let attributes = Attributes { mode: 0o6770, owner, xattrs: Some(xattrs), ..Attributes::default() };
        let mut entry = Entry { attributes, ..Entry::default() };
        let stripped = strip(&mut entry, &owners);
        assert_eq!((stripped.dropped.len(), stripped.owner), (4, true));
        assert_eq!(entry.attributes.mode, 0o740, "the group has what the list gave it");
        assert_eq!(entry.attributes.xattrs, Some(vec![pair(b"user.note", b"x")]));
        assert_eq!(owners.resolve(&entry.attributes.owner, owners.own()), owners.own());
        assert_eq!(strip(&mut entry, &owners), Stripped::default(), "nothing is left to take");
    }
}
