//! What the work says while it runs, to whoever listens.

use std::cell::RefCell;

use tidecast_event::{Phase, Resumed, Warning};

/// Something that is said while the work runs.
#[derive(Debug, Clone)]
pub enum Said {
    /// Something is wrong, and the work goes on.
    Warning(Warning),
    /// Bytes move again.
    Resumed(Resumed),
    /// What begins.
    Phase(Phase),
}

/// Listens.
pub trait Tell {
    /// Hears one thing.
    fn tell(&self, said: Said);
}

/// Through whom one operation speaks. Remembers why no peer gives anything.
pub struct Teller<'a> {
    to: &'a dyn Tell,
    why: RefCell<Option<String>>,
}

impl<'a> Teller<'a> {
    /// Speaks to `to`.
    pub fn new(to: &'a dyn Tell) -> Self {
        Self { to, why: RefCell::default() }
    }

    /// Something is wrong, and the work goes on.
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

    /// Why no peer gives anything, if that was told and has not passed.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        self.why.borrow().clone()
    }
}
