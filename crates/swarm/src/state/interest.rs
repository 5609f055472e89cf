//! Interest and choking: the state of the messages of BEP 3 and BEP 6.

use std::collections::BTreeSet;

use crate::api::Time;

/// Of one connection. Our choking of the peer is in `choker`.
#[derive(Debug)]
pub(crate) struct Interest {
    chokes_us: bool,
    wants_ours: bool,
    upload_only: bool,
    we_want: bool,
    useful: Time,
    fast: BTreeSet<u32>,
}

impl Interest {
    /// `chokes`: until it unchokes us.
    pub(crate) fn new(chokes: bool, now: Time) -> Self {
        Interest {
            chokes_us: chokes,
            wants_ours: false,
            upload_only: false,
            we_want: false,
            useful: now,
            fast: BTreeSet::new(),
        }
    }

    pub(crate) fn choked_us(&mut self, chokes: bool) {
        self.chokes_us = chokes;
    }

    pub(crate) fn chokes_us(&self) -> bool {
        self.chokes_us
    }

    /// The peer wants something of ours, or nothing any more.
    pub(crate) fn wanted(&mut self, wants: bool) {
        self.wants_ours = wants;
    }

    pub(crate) fn wants_ours(&self) -> bool {
        self.wants_ours
    }

    /// It has announced that it no longer downloads (BEP 21).
    pub(crate) fn uploads_only(&mut self) {
        self.upload_only = true;
    }

    pub(crate) fn is_upload_only(&self) -> bool {
        self.upload_only
    }

    /// We have reported interest in the peer, or the loss of it.
    pub(crate) fn want(&mut self, want: bool) {
        self.we_want = want;
    }

    pub(crate) fn we_want(&self) -> bool {
        self.we_want
    }

    /// It has something that we lack.
    pub(crate) fn has_something(&mut self, now: Time) {
        self.useful = now;
    }

    /// When it last had something that we lack.
    pub(crate) fn useful(&self) -> Time {
        self.useful
    }

    /// This piece may be asked for although it chokes us.
    pub(crate) fn allow_fast(&mut self, piece: u32) {
        self.fast.insert(piece);
    }

    /// All such pieces.
    pub(crate) fn fast(&self) -> &BTreeSet<u32> {
        &self.fast
    }

    /// The connection is closed: the peer wants nothing, and nothing can be asked of it.
    pub(crate) fn over(&mut self) {
        self.wants_ours = false;
        self.fast.clear();
    }
}
