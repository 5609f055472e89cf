//! The reports of the receiver of one stream.
//!
//! A report answers a hello, which follows the packets before it on the same path. So the packets sent before
//! the hello, less the packets received when it was answered, are lost; this is known before a step is over.

use super::ReceiverState;
use crate::control::{Accepted, Report};

/// Hellos without an answer after which a receiver counts as gone.
const SILENCE: u32 = 12;

/// The state of a stream's receiver.
#[derive(Debug, Default, Clone)]
pub(super) struct Reports {
    /// To be returned in hellos.
    pub(super) challenge: u64,
    /// Whether it takes this session.
    pub(super) accepted: Option<Accepted>,
    /// Whether it has ever taken this session.
    taken: bool,
    /// The newest step that it had closed when it reported its end.
    ended: Option<u32>,
    /// Packets sent when the last hello went.
    asked: u64,
    /// Bytes of a full packet, and of a slab's last one, which passes where others do not; 0: not known.
    lengths: (u64, u64),
    /// Full packets received when a report last showed more, packets sent by then, and the reports since that
    /// showed none although packets had been sent.
    came: u64,
    known: u64,
    dry: u32,
    /// Packets sent when the receiver began to take them.
    begun: u64,
    /// Hellos since the last report.
    unanswered: u32,
    /// Packets that receivers before this one have lost and received.
    past: (u64, u64),
    /// Packets that were sent before the session was accepted: their loss does not count.
    before: Option<u64>,
    /// Packets lost, of those that were sent to a receiver that took them.
    pub(super) lost: u64,
    /// Packets received.
    pub(super) received: u64,
    /// Reports received.
    pub(super) reports: u64,
}

impl Reports {
    /// Of a stream whose full packets are so long, and the last of a slab so.
    pub(super) fn new(full: usize, last: usize) -> Self {
        Self { lengths: (full as u64, last as u64), ..Self::default() }
    }

    /// A hello goes, behind this many packets.
    pub(super) fn ask(&mut self, sent: u64) {
        self.asked = sent;
        self.unanswered += 1;
        if self.unanswered > SILENCE {
            self.reset();
        }
    }

    /// The receiver has ended, or another is in its place: counting starts again.
    pub(super) fn reset(&mut self) {
        self.accepted = None;
        self.before = None;
        self.past = (self.lost, self.received);
    }

    /// A report has arrived; true if it has a challenge to which a hello should be sent at once.
    pub(super) fn on_report(&mut self, report: &Report) -> bool {
        let new = report.challenge != self.challenge;
        self.challenge = report.challenge;
        self.unanswered = 0;
        let begins = !self.is_accepted() || new;
        if self.is_accepted() && new {
            // It has been started again, or has begun its counts again.
            self.reset();
        }
        self.accepted = Some(report.accepted);
        self.ended = (report.accepted == Accepted::Ended).then_some(report.batch);
        self.taken |= report.accepted == Accepted::Yes;
        self.reports += 1;
        if matches!(report.accepted, Accepted::Yes | Accepted::Ended) {
            if begins {
                self.begun = self.asked;
            }
            let came = self.full(report);
            if begins || came > self.came {
                (self.came, self.known, self.dry) = (came, self.asked, 0);
            } else if self.asked > self.known {
                self.dry += 1;
            }
            // A receiver that claims more is wrong.
            let received = report.received.min(self.asked);
            let missing = self.asked - received;
            let before = *self.before.get_or_insert(missing);
            let (lost, gone) = self.past;
            self.lost = lost + missing.saturating_sub(before);
            self.received = gone + received;
        }
        new && report.accepted == Accepted::NotYet
    }

    /// Full packets received: together with the last ones they have the bytes that the receiver reports.
    fn full(&self, report: &Report) -> u64 {
        let (full, last) = self.lengths;
        if last >= full || report.bytes == 0 {
            return report.received;
        }
        report.bytes.saturating_sub(report.received.saturating_mul(last)) / (full - last)
    }

    /// Full packets of this session that were received.
    pub(super) fn full_received(&self) -> u64 {
        self.came
    }

    /// Whether nothing has been sent to a receiver that takes it.
    pub(super) fn is_idle(&self) -> bool {
        self.asked == self.begun
    }

    /// Reports in a row that told of no packet more.
    pub(super) fn dry_reports(&self) -> u32 {
        self.dry
    }

    /// Packets that were sent since, and of which none had been received when their hello was answered.
    pub(super) fn dry_packets(&self) -> u64 {
        if self.dry > 0 { self.asked - self.known } else { 0 }
    }

    /// Packets of which it is known whether they were received.
    pub(super) fn sent(&self) -> u64 {
        self.lost + self.received
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.accepted == Some(Accepted::Yes)
    }

    /// The receiver's fate, when the first batch that was not sent completely is `batch`.
    pub(super) fn state(&self, batch: u32) -> ReceiverState {
        match self.accepted {
            Some(Accepted::Yes) => ReceiverState::Accepted,
            Some(Accepted::Refused) => ReceiverState::Refused,
            // One that ends when it has all is not lost.
            _ if self.ended.is_some_and(|closed| closed.saturating_add(1) >= batch) => {
                ReceiverState::Accepted
            }
            _ if self.taken => ReceiverState::Disconnected,
            _ => ReceiverState::NoAnswer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(accepted: Accepted, challenge: u64, received: u64) -> Report {
        Report { session: 1, challenge, accepted, batch: 0, received, lost: 0, bytes: 0 }
    }

    #[test]
    fn loss_counts_from_when_packets_are_taken() {
        let mut reports = Reports::default();
        reports.ask(100);
        assert!(reports.on_report(&report(Accepted::NotYet, 9, 0)), "a new challenge");
        assert!(!reports.on_report(&report(Accepted::NotYet, 9, 0)), "the same again");
        reports.ask(300);
        assert!(!reports.on_report(&report(Accepted::Yes, 10, 20)));
        assert_eq!((reports.lost, reports.sent(), reports.challenge), (0, 20, 10));
        reports.ask(1300);
        reports.on_report(&report(Accepted::Yes, 10, 1010));
        assert_eq!((reports.lost, reports.sent()), (10, 1020));
        // Late packets have arrived.
        reports.ask(1300);
        reports.on_report(&report(Accepted::Yes, 10, 1020));
        assert_eq!(reports.lost, 0);
    }

    #[test]
    fn what_has_become_of_a_receiver() {
        let mut reports = Reports::default();
        assert_eq!(reports.state(0), ReceiverState::NoAnswer);
        reports.ask(0);
        reports.on_report(&report(Accepted::NotYet, 1, 0));
        assert_eq!(reports.state(0), ReceiverState::NoAnswer);
        reports.on_report(&report(Accepted::Yes, 1, 0));
        assert_eq!(reports.state(0), ReceiverState::Accepted);
        reports.reset();
        assert_eq!(reports.state(0), ReceiverState::Disconnected);
        // It ends when it has closed batch 4: there were five, or more.
        reports.ask(50);
        reports.on_report(&report(Accepted::Yes, 1, 10));
        reports.on_report(&Report { batch: 4, ..report(Accepted::Ended, 1, 50) });
        assert_eq!(
            (reports.state(5), reports.state(6), reports.received),
            (ReceiverState::Accepted, ReceiverState::Disconnected, 50)
        );
        (0..=SILENCE).for_each(|_| reports.ask(50));
        assert_eq!((reports.state(5), reports.received), (ReceiverState::Accepted, 50));
        reports.on_report(&report(Accepted::Refused, 2, 0));
        assert_eq!(reports.state(5), ReceiverState::Refused);
        reports.on_report(&report(Accepted::Yes, 2, 0));
        assert_eq!(reports.state(9), ReceiverState::Accepted, "it is back");
    }

    #[test]
    fn a_receiver_that_is_silent_is_gone_and_another_begins_anew() {
        let mut reports = Reports::default();
        reports.ask(0);
        reports.on_report(&report(Accepted::Yes, 1, 0));
        reports.ask(100);
        reports.on_report(&report(Accepted::Yes, 1, 90));
        for hello in 1..=u64::from(SILENCE) {
            reports.ask(100 + hello);
            assert!(reports.is_accepted());
        }
        reports.ask(1000);
        assert!(!reports.is_accepted());
        reports.on_report(&report(Accepted::NotYet, 2, 0));
        reports.ask(1100);
        reports.on_report(&report(Accepted::Yes, 2, 0));
        assert_eq!((reports.lost, reports.received), (10, 90), "no receiver was listening");
        reports.ask(1200);
        reports.on_report(&report(Accepted::Yes, 2, 95));
        assert_eq!((reports.lost, reports.received), (15, 185));
        // One that is back so soon that nothing was silent.
        reports.ask(1300);
        reports.on_report(&report(Accepted::NotYet, 3, 0));
        assert!(!reports.is_accepted());
        reports.ask(1400);
        reports.on_report(&report(Accepted::Yes, 3, 7));
        assert_eq!((reports.lost, reports.received), (15, 192));
        // And one that is plain takes it at once.
        reports.on_report(&report(Accepted::Yes, 4, 2));
        assert_eq!((reports.lost, reports.received), (15, 194));
    }
}
