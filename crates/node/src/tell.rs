//! Messages of an operation while it runs.

use std::cell::RefCell;

use tidecast_event::{Phase, Resumed, Warning};

/// A message of a running operation.
#[derive(Debug, Clone)]
pub enum Said {
    /// A problem that does not stop the operation.
    Warning(Warning),
    /// Bytes move again.
    Resumed(Resumed),
    /// The start of a phase.
    Phase(Phase),
}

/// Listens.
pub trait Tell {
    /// Hears one thing.
    fn tell(&self, said: Said);
}

/// Sends the messages of one operation. Remembers why no peer sends anything.
pub struct Teller<'a> {
    to: &'a dyn Tell,
    why: RefCell<Option<String>>,
}

impl<'a> Teller<'a> {
    /// Speaks to `to`.
    pub fn new(to: &'a dyn Tell) -> Self {
        Self { to, why: RefCell::default() }
    }

    /// A problem that does not stop the operation.
    pub fn warning(&self, text: impl Into<String>) {
        self.to.tell(Said::Warning(Warning::new(text)));
    }

    /// A peer does not answer.
    pub fn unanswered(&self, peer: &str, why: &str) {
        self.silence(Warning::unanswered(peer, why));
    }

    /// Nothing comes or goes.
    pub fn silence(&self, warning: Warning) {
        self.why.replace(Some(warning.message.clone()));
        self.to.tell(Said::Warning(warning));
    }

    /// Bytes move again.
    pub fn resumed(&self, resumed: Resumed) {
        self.well();
        self.to.tell(Said::Resumed(resumed));
    }

    /// Something begins.
    pub fn phase(&self, phase: Phase) {
        self.to.tell(Said::Phase(phase));
    }

    /// Peers answer again.
    pub fn well(&self) {
        self.why.take();
    }

    /// Why no peer sends anything, if that was reported and still holds.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.why.borrow().clone()
    }
}
