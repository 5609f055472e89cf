//! The database: the authoritative state of the store. Files on disk without an entry here are leftovers.
//!
//! ```text
//! meta      name -> number                     format, needs, next (number of the next cache), withdrawn (caches that are);
//!                                              kept.NAME: the caller's own
//! caches    number -> JSON                     `CacheRecord`
//! objects   root, variant -> u64 u32 u32 …     length, caches with it, inodes of it (little endian)
//! rights    class, root, variant -> u32        caches by which a class of readers may have the object
//! usage     owner -> bytes, inodes             space of an owner's caches; "" is all of the store
//! names     origin, name -> JSON               its owner, the highest version
//! past      origin, name, version -> JSON      `Past`
//! ```
//!
//! Another version of this program may have changed the same file before, and may do so later. It may add tables, keys,
//! fields of JSON, and bytes at the end of an object's record: this program leaves them unchanged. A program that changes
//! the meaning of existing fields must raise `needs`. So a store needs format 2 while a cache is withdrawn: format 1
//! relies on the rights and the charge of every cache that has objects.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, Table, TableDefinition};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::layout::Layout;
use crate::object::{KEY, ObjectKey, RIGHT, classes_of, object_size, right};
use crate::record::Past;
use crate::{CacheId, CacheRecord, Error, Size};

/// The format that this program writes, and the highest that it knows: the first that has withdrawn caches.
const FORMAT: u64 = 2;
/// Format that a store without withdrawn caches needs.
const NEEDS: u64 = 1;
/// Memory for pages of the database, bytes.
const CACHE: usize = 64 << 20;
/// Removed versions of a name that are remembered.
const PASTS: usize = 100;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const CACHES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("caches");
const OBJECTS: TableDefinition<'_, &[u8; KEY], &[u8]> = TableDefinition::new("objects");
const RIGHTS: TableDefinition<'_, &[u8; RIGHT], u32> = TableDefinition::new("rights");
const USAGE: TableDefinition<'_, &str, (u64, u64)> = TableDefinition::new("usage");
const NAMES: TableDefinition<'_, (&str, &str), &[u8]> = TableDefinition::new("names");
const PAST: TableDefinition<'_, (&str, &str, u64), &[u8]> = TableDefinition::new("past");

/// All of the store, in `usage`: no owner has this name.
pub(crate) const ALL: &str = "";

/// The record of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// Bytes.
    pub(crate) len: u64,
    /// Caches that have it.
    pub(crate) caches: u32,
    /// Its inodes: one, and another each time that the link count reached the maximum.
    pub(crate) inodes: u32,
    /// Fields of a newer program.
    rest: Vec<u8>,
}

impl Object {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (len, rest) = bytes.split_first_chunk()?;
        let (caches, rest) = rest.split_first_chunk()?;
        let (inodes, rest) = rest.split_first_chunk()?;
        let (caches, inodes) = (u32::from_le_bytes(*caches), u32::from_le_bytes(*inodes));
        Some(Object { len: u64::from_le_bytes(*len), caches, inodes, rest: rest.to_vec() })
    }

    fn write(&self) -> Vec<u8> {
        let mut out = self.len.to_le_bytes().to_vec();
        out.extend(self.caches.to_le_bytes());
        out.extend(self.inodes.to_le_bytes());
        out.extend(&self.rest);
        out
    }

    /// The space of all its inodes.
    pub(crate) fn size(&self) -> Size {
        let one = object_size(self.len);
        let n = u64::from(self.inodes);
        Size { bytes: one.bytes.saturating_mul(n), inodes: n }
    }
}

/// The record of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Name {
    pub(crate) owner: String,
    pub(crate) last: u64,
    #[serde(flatten)]
    pub(crate) other: BTreeMap<String, Value>,
}

/// Changes of a transaction, for copies in memory.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) put: Vec<CacheRecord>,
    pub(crate) gone: Vec<CacheId>,
    pub(crate) usage: HashMap<String, Size>,
}

/// The database, open.
pub(crate) struct Db {
    layout: Layout,
    /// `None` only between a failure and the next attempt to open it.
    db: Option<Database>,
}

impl Db {
    pub(crate) fn open(layout: &Layout) -> Result<Self, Error> {
        let mut db = Db { layout: layout.clone(), db: None };
        db.reopen()?;
        Ok(db)
    }

    fn reopen(&mut self) -> Result<(), Error> {
        self.db = None;
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE);
        // Other users may pass through the store's directory: they must not read the database.
        let db = {
            let file = self.layout.private(&self.layout.db())?;
            builder.create_with_backend(redb::backends::FileBackend::new(file)?)?
        };
        let mut txn = db.begin_write()?;
        // As in `attempt`: this may be the last transaction before a crash.
        txn.set_quick_repair(true);
        {
            let mut meta = txn.open_table(META)?;
            let needs = meta.get("needs")?.map_or(0, |v| v.value());
            if needs > FORMAT {
                return Err(Error::Format { needs, known: FORMAT });
            }
            if meta.get("format")?.is_none() {
                meta.insert("format", FORMAT)?;
                meta.insert("needs", NEEDS)?;
                meta.insert("next", 1)?;
            }
        }
        // All tables are there from the first day: reading need not ask.
        drop(Tables::open(&txn)?);
        txn.commit()?;
        self.db = Some(db);
        Ok(())
    }

    fn db(&mut self) -> Result<&Database, Error> {
        if self.db.is_none() {
            self.reopen()?;
        }
        self.db.as_ref().ok_or(Error::Unfit("the store's database is closed"))
    }

    pub(crate) fn read(&mut self) -> Result<View, Error> {
        Ok(View(self.db()?.begin_read()?))
    }

    /// Runs `f` in a transaction: all of it becomes durable, or nothing.
    pub(crate) fn write<R>(
        &mut self,
        f: impl FnOnce(&mut Tables<'_>) -> Result<R, Error>,
    ) -> Result<(R, Changes), Error> {
        let done = self.attempt(f);
        if let Err(Error::Db(e)) = &done
            && matches!(&**e, redb::Error::Io(_) | redb::Error::PreviousIo | redb::Error::Corrupted(_))
        {
            // After a failed write the library refuses to continue until the file is opened (and repaired) again.
            self.db = None;
        }
        done
    }

    fn attempt<R>(
        &mut self,
        f: impl FnOnce(&mut Tables<'_>) -> Result<R, Error>,
    ) -> Result<(R, Changes), Error> {
        let mut txn = self.db()?.begin_write()?;
        // Opening after a crash reads the last transaction, not the whole file.
        txn.set_quick_repair(true);
        let mut tables = Tables::open(&txn)?;
        let result = f(&mut tables)?;
        let changes = tables.close()?;
        txn.commit()?;
        Ok((result, changes))
    }
}

/// The database as it is at one instant.
pub(crate) struct View(ReadTransaction);

impl View {
    /// Every record that this program can read, and the numbers of the others.
    pub(crate) fn caches(&self) -> Result<(Vec<CacheRecord>, Vec<CacheId>), Error> {
        let (mut known, mut foreign) = (Vec::new(), Vec::new());
        for entry in self.0.open_table(CACHES)?.iter()? {
            let (id, text) = entry?;
            match serde_json::from_slice(text.value()) {
                Ok(record) => known.push(record),
                Err(_) => foreign.push(CacheId(id.value())),
            }
        }
        Ok((known, foreign))
    }

    pub(crate) fn usage(&self) -> Result<HashMap<String, Size>, Error> {
        let mut all = HashMap::new();
        for entry in self.0.open_table(USAGE)?.iter()? {
            let (owner, size) = entry?;
            let (bytes, inodes) = size.value();
            all.insert(owner.value().to_owned(), Size { bytes, inodes });
        }
        Ok(all)
    }

    /// A number that the caller keeps; 0 if there is none.
    pub(crate) fn kept(&self, name: &str) -> Result<u64, Error> {
        Ok(self.0.open_table(META)?.get(&*format!("kept.{name}"))?.map_or(0, |v| v.value()))
    }

    pub(crate) fn objects(&self) -> Result<Objects, Error> {
        Ok(Objects { objects: self.0.open_table(OBJECTS)?, rights: self.0.open_table(RIGHTS)? })
    }

    pub(crate) fn past(&self, origin: &str, name: &str) -> Result<Vec<Past>, Error> {
        let table = self.0.open_table(PAST)?;
        let range = table.range((origin, name, 0)..=(origin, name, u64::MAX))?;
        range.map(|entry| Ok(serde_json::from_slice(entry?.1.value())?)).collect()
    }
}

/// Objects and their rights, for reading.
pub(crate) struct Objects {
    objects: redb::ReadOnlyTable<&'static [u8; KEY], &'static [u8]>,
    rights: redb::ReadOnlyTable<&'static [u8; RIGHT], u32>,
}

impl Objects {
    pub(crate) fn get(&self, key: &ObjectKey) -> Result<Option<Object>, Error> {
        Ok(self.objects.get(&key.bytes())?.and_then(|v| Object::read(v.value())))
    }

    /// Any object of this content that one of `classes` may have. One search for each class, in its part of the
    /// index: objects of other classes are not touched, so the time does not tell whether others have it.
    pub(crate) fn readable(
        &self,
        classes: &[crate::object::Class],
        root: &[u8; 32],
    ) -> Result<Option<ObjectKey>, Error> {
        let mut found = None;
        for class in classes {
            let key = |variant| right(class, &ObjectKey { root: *root, variant }.bytes());
            let (from, to) = (key([0; 8]), key([0xff; 8]));
            if let Some(entry) = self.rights.range::<&[u8; RIGHT]>(&from..=&to)?.next() {
                let key = entry?.0;
                let key = key.value().last_chunk::<KEY>();
                found = found.or(key.map(ObjectKey::from_bytes));
            }
        }
        Ok(found)
    }

    /// Whether one of `classes` may have this very object.
    pub(crate) fn may(&self, classes: &[crate::object::Class], key: &ObjectKey) -> Result<bool, Error> {
        let bytes = key.bytes();
        let mut may = false;
        for class in classes {
            may |= self.rights.get(&right(class, &bytes))?.is_some();
        }
        Ok(may)
    }

    /// Calls `f` for every object, in the order of their keys.
    pub(crate) fn each(&self, mut f: impl FnMut(ObjectKey, Object)) -> Result<(), Error> {
        for entry in self.objects.range::<&[u8; KEY]>(..)? {
            let (key, value) = entry?;
            if let Some(object) = Object::read(value.value()) {
                f(ObjectKey::from_bytes(key.value()), object);
            }
        }
        Ok(())
    }
}

/// Whether the record of a cache is withdrawn.
fn withdrawn(record: redb::AccessGuard<'_, &'static [u8]>) -> bool {
    #[derive(Deserialize)]
    struct Flag {
        #[serde(default)]
        withdrawn: bool,
    }
    serde_json::from_slice(record.value()).is_ok_and(|flag: Flag| flag.withdrawn)
}

/// Every table, open for writing.
pub(crate) struct Tables<'t> {
    meta: Table<'t, &'static str, u64>,
    caches: Table<'t, u64, &'static [u8]>,
    objects: Table<'t, &'static [u8; KEY], &'static [u8]>,
    rights: Table<'t, &'static [u8; RIGHT], u32>,
    usage: Table<'t, &'static str, (u64, u64)>,
    names: Table<'t, (&'static str, &'static str), &'static [u8]>,
    past: Table<'t, (&'static str, &'static str, u64), &'static [u8]>,
    changes: Changes,
}

impl<'t> Tables<'t> {
    fn open(txn: &'t redb::WriteTransaction) -> Result<Self, Error> {
        Ok(Tables {
            meta: txn.open_table(META)?,
            caches: txn.open_table(CACHES)?,
            objects: txn.open_table(OBJECTS)?,
            rights: txn.open_table(RIGHTS)?,
            usage: txn.open_table(USAGE)?,
            names: txn.open_table(NAMES)?,
            past: txn.open_table(PAST)?,
            changes: Changes::default(),
        })
    }

    /// Writes the usage that has changed.
    fn close(mut self) -> Result<Changes, Error> {
        for (owner, size) in &self.changes.usage {
            if *size == Size::ZERO {
                self.usage.remove(&**owner)?;
            } else {
                self.usage.insert(&**owner, (size.bytes, size.inodes))?;
            }
        }
        Ok(self.changes)
    }

    /// The number of a new cache.
    pub(crate) fn next_id(&mut self) -> Result<CacheId, Error> {
        let next = self.meta.get("next")?.map_or(1, |v| v.value());
        self.meta.insert("next", next + 1)?;
        Ok(CacheId(next))
    }

    /// Keeps a number for the caller.
    pub(crate) fn keep(&mut self, name: &str, number: u64) -> Result<(), Error> {
        self.meta.insert(&*format!("kept.{name}"), number)?;
        Ok(())
    }

    pub(crate) fn put(&mut self, record: CacheRecord) -> Result<(), Error> {
        let old = self.caches.insert(record.id.0, &*serde_json::to_vec(&record)?)?.is_some_and(withdrawn);
        self.count_withdrawn(old, record.withdrawn)?;
        self.changes.put.push(record);
        Ok(())
    }

    pub(crate) fn delete(&mut self, id: CacheId) -> Result<(), Error> {
        let old = self.caches.remove(id.0)?.is_some_and(withdrawn);
        self.count_withdrawn(old, false)?;
        self.changes.gone.push(id);
        Ok(())
    }

    /// A cache's withdrawn state changes: the first and the last one change the format that the store needs.
    fn count_withdrawn(&mut self, was: bool, is: bool) -> Result<(), Error> {
        if was == is {
            return Ok(());
        }
        let count = self.meta.get("withdrawn")?.map_or(0, |v| v.value());
        let count = if is { count.saturating_add(1) } else { count.saturating_sub(1) };
        self.meta.insert("withdrawn", count)?;
        self.meta.insert("needs", if count > 0 { FORMAT } else { NEEDS })?;
        Ok(())
    }

    fn charge(&mut self, owner: &str, more: Size, less: Size) -> Result<(), Error> {
        let now = match self.changes.usage.get(owner) {
            Some(size) => *size,
            None => self
                .usage
                .get(owner)?
                .map_or(Size::ZERO, |v| Size { bytes: v.value().0, inodes: v.value().1 }),
        };
        self.changes.usage.insert(owner.to_owned(), now.plus(more).minus(less));
        Ok(())
    }

    pub(crate) fn object(&self, key: &ObjectKey) -> Result<Option<Object>, Error> {
        Ok(self.objects.get(&key.bytes())?.and_then(|v| Object::read(v.value())))
    }

    /// A cache with these objects has come. `extra`: inodes made beyond the first, by object.
    pub(crate) fn take(
        &mut self,
        record: &CacheRecord,
        objects: &BTreeMap<ObjectKey, u64>,
        extra: &BTreeMap<ObjectKey, u32>,
    ) -> Result<(), Error> {
        let mut all = record.own;
        for (key, len) in objects {
            let old = self.object(key)?;
            let before = old.as_ref().map_or(Size::ZERO, Object::size);
            let mut object = old.unwrap_or(Object { len: *len, caches: 0, inodes: 1, rest: Vec::new() });
            object.caches = object.caches.saturating_add(1);
            object.inodes = object.inodes.saturating_add(extra.get(key).copied().unwrap_or(0));
            all = all.plus(object.size().minus(before));
            self.objects.insert(&key.bytes(), &*object.write())?;
        }
        self.charge(ALL, all, Size::ZERO)?;
        if record.withdrawn { Ok(()) } else { self.grant(record, objects) }
    }

    /// Gives the readers of a cache the right to its objects, and charges its owner.
    pub(crate) fn grant(
        &mut self,
        record: &CacheRecord,
        objects: &BTreeMap<ObjectKey, u64>,
    ) -> Result<(), Error> {
        let classes = classes_of(record);
        let mut mine = record.own;
        for (key, len) in objects {
            let bytes = key.bytes();
            for (i, class) in classes.iter().enumerate() {
                let right = right(class, &bytes);
                let count = self.rights.get(&right)?.map_or(0, |v| v.value());
                self.rights.insert(&right, count.saturating_add(1))?;
                if i == 0 && count == 0 {
                    mine = mine.plus(object_size(*len));
                }
            }
        }
        self.charge(&record.owner, mine, Size::ZERO)
    }

    /// Revokes the effect of [`Tables::grant`].
    pub(crate) fn withdraw(
        &mut self,
        record: &CacheRecord,
        objects: &BTreeMap<ObjectKey, u64>,
    ) -> Result<(), Error> {
        let classes = classes_of(record);
        let mut mine = record.own;
        for (key, len) in objects {
            let bytes = key.bytes();
            for (i, class) in classes.iter().enumerate() {
                let right = right(class, &bytes);
                let count = self.rights.get(&right)?.map_or(0, |v| v.value());
                if count > 1 {
                    self.rights.insert(&right, count - 1)?;
                    continue;
                }
                self.rights.remove(&right)?;
                if i == 0 && count == 1 {
                    mine = mine.plus(object_size(*len));
                }
            }
        }
        self.charge(&record.owner, Size::ZERO, mine)
    }

    /// Removes all rights to these objects, whichever cache gave them: also of caches whose objects are unknown.
    pub(crate) fn ban(&mut self, objects: &BTreeSet<ObjectKey>) -> Result<(), Error> {
        let banned = |right: &[u8; RIGHT]| {
            right.last_chunk().map(ObjectKey::from_bytes).is_some_and(|k| objects.contains(&k))
        };
        Ok(self.rights.retain(|right, _| !banned(right))?)
    }

    /// Removes a cache with these objects. The objects that no cache has any more, and the freed space.
    pub(crate) fn release(
        &mut self,
        record: &CacheRecord,
        objects: &BTreeMap<ObjectKey, u64>,
    ) -> Result<(Vec<ObjectKey>, Size), Error> {
        if !record.withdrawn {
            self.withdraw(record, objects)?;
        }
        let (mut all, mut gone) = (record.own, Vec::new());
        for key in objects.keys() {
            let Some(mut object) = self.object(key)? else { continue };
            if object.caches > 1 {
                object.caches -= 1;
                self.objects.insert(&key.bytes(), &*object.write())?;
            } else {
                self.objects.remove(&key.bytes())?;
                all = all.plus(object.size());
                gone.push(*key);
            }
        }
        self.charge(ALL, Size::ZERO, all)?;
        Ok((gone, all))
    }

    pub(crate) fn name(&self, origin: &str, name: &str) -> Result<Option<Name>, Error> {
        let found = self.names.get((origin, name))?;
        found.map(|v| serde_json::from_slice(v.value()).map_err(Error::from)).transpose()
    }

    pub(crate) fn set_name(&mut self, origin: &str, name: &str, value: &Name) -> Result<(), Error> {
        self.names.insert((origin, name), &*serde_json::to_vec(value)?)?;
        Ok(())
    }

    /// All versions of a name that are remembered, lowest first.
    pub(crate) fn pasts(&self, origin: &str, name: &str) -> Result<Vec<Past>, Error> {
        let range = self.past.range((origin, name, 0)..=(origin, name, u64::MAX))?;
        range.map(|entry| Ok(serde_json::from_slice(entry?.1.value())?)).collect()
    }

    /// Records a version; the oldest removed ones are deleted beyond a limit.
    pub(crate) fn remember(&mut self, origin: &str, name: &str, past: &Past) -> Result<(), Error> {
        self.past.insert((origin, name, past.version), &*serde_json::to_vec(past)?)?;
        let all = self.pasts(origin, name)?;
        let surplus = all.len().saturating_sub(PASTS);
        for old in all.iter().filter(|p| p.removed.is_some()).take(surplus) {
            self.past.remove((origin, name, old.version))?;
        }
        Ok(())
    }

    /// Clears all counts, to count again. `owners`: all with a count.
    pub(crate) fn recount<'o>(&mut self, owners: impl Iterator<Item = &'o String>) -> Result<(), Error> {
        self.objects.retain(|_, _| false)?;
        self.rights.retain(|_, _| false)?;
        self.usage.retain(|_, _| false)?;
        self.changes.usage = owners.map(|o| (o.clone(), Size::ZERO)).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_a_newer_program_appended_stay() {
        let object = Object { len: 5, caches: 2, inodes: 1, rest: vec![9, 9] };
        let mut read = Object::read(&object.write()).unwrap();
        read.caches += 1;
        assert_eq!(Object::read(&read.write()).unwrap().rest, [9, 9]);
        assert!(Object::read(&[1, 2, 3]).is_none());
    }

    #[test]
    fn a_store_that_needs_more_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open_root(dir.path().to_owned()).unwrap();
        let path = layout.db();
        drop(Db::open(&layout).unwrap());
        let db = Database::create(&path).unwrap();
        let txn = db.begin_write().unwrap();
        txn.open_table(META).unwrap().insert("needs", FORMAT + 1).unwrap();
        txn.commit().unwrap();
        drop(db);
        assert!(matches!(Db::open(&layout), Err(Error::Format { needs: 3, known: 2 })));
    }

    #[test]
    fn tables_and_keys_of_a_newer_program_stay() {
        const NEW: TableDefinition<'_, u64, &str> = TableDefinition::new("colours");
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open_root(dir.path().to_owned()).unwrap();
        let path = layout.db();
        drop(Db::open(&layout).unwrap());
        let db = Database::create(&path).unwrap();
        let txn = db.begin_write().unwrap();
        txn.open_table(NEW).unwrap().insert(1, "red").unwrap();
        txn.open_table(META).unwrap().insert("format", FORMAT + 1).unwrap();
        txn.commit().unwrap();
        drop(db);
        let mut ours = Db::open(&layout).unwrap();
        ours.write(|t| t.next_id()).unwrap();
        drop(ours);
        let db = Database::create(&path).unwrap();
        let txn = db.begin_read().unwrap();
        assert_eq!(txn.open_table(NEW).unwrap().get(1).unwrap().unwrap().value(), "red");
        assert_eq!(txn.open_table(META).unwrap().get("format").unwrap().unwrap().value(), FORMAT + 1);
    }
}
