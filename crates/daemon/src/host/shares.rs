//! A number of permits for each user, of which further requests of that user wait.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Users remembered before those without requests are forgotten.
const REMEMBERED: usize = 1024;

/// The permits of all users.
#[derive(Clone)]
pub(crate) struct Shares<U> {
    each: usize,
    users: Arc<Mutex<HashMap<U, Weak<Semaphore>>>>,
}

impl<U: Eq + Hash> Shares<U> {
    /// `each`: permits of one user.
    pub(crate) fn new(each: usize) -> Self {
        Self { each, users: Arc::default() }
    }

    /// Permits of one user.
    pub(crate) fn each(&self) -> usize {
        self.each
    }

    /// The permits of this user, given in the order of the requests.
    pub(crate) fn of(&self, user: U) -> Arc<Semaphore> {
        let mut users = self.users.lock();
        if let Some(known) = users.get(&user).and_then(Weak::upgrade) {
            return known;
        }
        if users.len() >= REMEMBERED {
            users.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let new = Arc::new(Semaphore::new(self.each));
        users.insert(user, Arc::downgrade(&new));
        new
    }
}
