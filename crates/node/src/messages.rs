//! Messages of an operation while it runs.

use std::cell::RefCell;

use tidecast_event::{Phase, Resumed, Warning};

/// A message of a running operation.
#[derive(Debug, Clone)]
pub enum Message {
    /// A problem that does not stop the operation.
    Warning(Warning),
    /// Bytes move again.
    Resumed(Resumed),
    /// The start of a phase.
    Phase(Phase),
}

/// Listens.
pub trait MessageSink {
    /// Hears one thing.
    fn send(&self, message: Message);
}

/// Sends the messages of one operation. Remembers why no peer sends anything.
pub struct MessageSender<'a> {
    to: &'a dyn MessageSink,
    reason: RefCell<Option<String>>,
}

impl<'a> MessageSender<'a> {
    /// Speaks to `to`.
    pub fn new(to: &'a dyn MessageSink) -> Self {
        Self { to, reason: RefCell::default() }
    }

    /// A problem that does not stop the operation.
    pub fn warning(&self, text: impl Into<String>) {
        self.to.send(Message::Warning(Warning::new(text)));
    }

    /// A peer does not answer.
    pub fn unanswered(&self, peer: &str, why: &str) {
        self.silence(Warning::unanswered(peer, why));
    }

    /// Nothing comes or goes.
    pub fn silence(&self, warning: Warning) {
        self.reason.replace(Some(warning.message.clone()));
        self.to.send(Message::Warning(warning));
    }

    /// Bytes move again.
    pub fn resumed(&self, resumed: Resumed) {
        self.clear_silence();
        self.to.send(Message::Resumed(resumed));
    }

    /// Something begins.
    pub fn phase(&self, phase: Phase) {
        self.to.send(Message::Phase(phase));
    }

    /// Peers answer again.
    pub fn clear_silence(&self) {
        self.reason.take();
    }

    /// Why no peer sends anything, if that was reported and still holds.
    #[must_use]
    pub fn silence_reason(&self) -> Option<String> {
        self.reason.borrow().clone()
    }
}
