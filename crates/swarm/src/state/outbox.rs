//! The driver's actions, in the order in which they were decided.

use std::collections::VecDeque;

use crate::api::Action;

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Outbox(VecDeque<Action>);

impl Outbox {
    pub(crate) fn push(&mut self, action: Action) {
        self.0.push_back(action);
    }

    pub(crate) fn extend(&mut self, actions: impl IntoIterator<Item = Action>) {
        self.0.extend(actions);
    }

    /// The first of them.
    pub(crate) fn pop(&mut self) -> Option<Action> {
        self.0.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
