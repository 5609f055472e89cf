//! POSIX access control lists as Linux keeps them in the attribute `system.posix_acl_access`: a version, then one
//! entry of eight bytes for each class of users. A file's owner may set one without privilege, for any user and group.

/// The attribute.
pub const ATTRIBUTE: &str = "system.posix_acl_access";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id of an entry without a name.
const NO_ID: u32 = u32::MAX;

/// Permissions on one file; rights are the bits 4 (read), 2 (write) and 1 (execute, enter).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// The file's owner.
    pub owner: u16,
    /// Users by number.
    pub users: Vec<(u32, u16)>,
    /// The file's group.
    pub group: u16,
    /// Groups by number.
    pub groups: Vec<(u32, u16)>,
    /// Most that users, groups and the file's group get; needed wherever a user or a group is named.
    pub mask: Option<u16>,
    /// All other users.
    pub others: u16,
}

impl Acl {
    /// As the attribute's value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let named = |tag, named: &[(u32, u16)]| {
            let mut entries: Vec<_> = named.iter().map(|(id, rights)| (tag, *rights, *id)).collect();
            // The kernel takes them in ascending order only.
            entries.sort_unstable_by_key(|(_, _, id)| *id);
            entries
        };
        let mut entries = vec![(USER_OBJ, self.owner, NO_ID)];
        entries.extend(named(USER, &self.users));
        entries.push((GROUP_OBJ, self.group, NO_ID));
        entries.extend(named(GROUP, &self.groups));
        entries.extend(self.mask.map(|rights| (MASK, rights, NO_ID)));
        entries.push((OTHER, self.others, NO_ID));
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(rights.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    /// The list of an attribute's value; `None` if it is of another version or malformed.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (version, entries) = value.split_first_chunk::<4>()?;
        let (entries, rest) = entries.as_chunks::<8>();
        if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
            return None;
        }
        let mut acl = Acl::default();
        for [t0, t1, r0, r1, id @ ..] in entries {
            let (rights, id) = (u16::from_le_bytes([*r0, *r1]), u32::from_le_bytes(*id));
            match u16::from_le_bytes([*t0, *t1]) {
                USER_OBJ => acl.owner = rights,
                USER => acl.users.push((id, rights)),
                GROUP_OBJ => acl.group = rights,
                GROUP => acl.groups.push((id, rights)),
                MASK => acl.mask = Some(rights),
                OTHER => acl.others = rights,
                _ => return None,
            }
        }
        Some(acl)
    }

    /// The rights of the file's own group: with a list, the mode's middle digit is the mask instead.
    #[must_use]
    pub fn group_rights(&self) -> u16 {
        self.group & self.mask.unwrap_or(7)
    }

    /// Rights of the users and groups that it names.
    pub fn named_rights(&self) -> impl Iterator<Item = u16> {
        let mask = self.mask.unwrap_or(7);
        self.users.iter().chain(&self.groups).map(move |(_, rights)| rights & mask)
    }
}

/// The permission bits of a file without its list, the attribute's value. Beside a list the bits of the group are its mask:
/// they would give the file's group rights that only others had. A list that is not understood leaves the group none.
#[must_use]
pub fn mode_without(list: &[u8], mode: u32) -> u32 {
    let group = Acl::decode(list).map_or(0, |list| list.group_rights());
    mode & (!0o070 | u32::from(group) << 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Acl {
        Acl {
            owner: 5,
            users: vec![(70_000, 5), (4242, 5)],
            group: 0,
            groups: vec![(4343, 4)],
            mask: Some(5),
            others: 0,
        }
    }

    #[test]
    fn a_list_survives_its_encoding_and_users_come_in_order() {
        let read = Acl::decode(&list().encode()).unwrap();
        assert_eq!(read, Acl { users: vec![(4242, 5), (70_000, 5)], ..list() });
        assert_eq!((read.group_rights(), Acl { group: 7, ..list() }.group_rights()), (0, 5));
    }

    #[test]
    fn without_a_list_the_group_gets_its_own_rights() {
        let some = Acl { group: 4, mask: Some(7), ..list() };
        assert_eq!(mode_without(&some.encode(), 0o100_674), 0o100_644);
        assert_eq!(mode_without(&list().encode(), 0o4755), 0o4705);
        assert_eq!(mode_without(b"?", 0o777), 0o707);
        assert_eq!(some.named_rights().collect::<Vec<_>>(), [5, 5, 4]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let good = list().encode();
        for bad in
            [&good[..3], &good[..good.len() - 1], &[1, 0, 0, 0], &[2, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0]]
        {
            assert!(Acl::decode(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn the_system_understands_it() {
        let dir = tempfile::tempdir().unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(dir.path(), ATTRIBUTE, &list().encode(), flags).is_err() {
            eprintln!("SKIPPED: this file system has no access control lists");
            return;
        }
        let Ok(shown) = std::process::Command::new("getfacl").args(["-nc"]).arg(dir.path()).output() else {
            eprintln!("SKIPPED: getfacl is not installed");
            return;
        };
        let shown = String::from_utf8(shown.stdout).unwrap();
        let expected =
            "user::r-x user:4242:r-x user:70000:r-x group::--- group:4343:r-- mask::r-x other::---";
        assert_eq!(shown.split_whitespace().collect::<Vec<_>>().join(" "), expected);
    }
}
