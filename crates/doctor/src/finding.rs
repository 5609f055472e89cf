//! What a check says.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use crate::Change;

/// What the host is checked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Two-ended copies over long distances.
    Copy,
    /// Broadcasts to many hosts.
    Bcast,
    /// Fields over UDP.
    Field,
    /// Mounts.
    Mount,
    /// The daemon of caches.
    Daemon,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Copy, Self::Bcast, Self::Field, Self::Mount, Self::Daemon];

    /// The command that it is about.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Bcast => "bcast",
            Self::Field => "field",
            Self::Mount => "mount",
            Self::Daemon => "daemon",
        }
    }

    /// The round-trip time that is assumed if none is given: copies and fields travel far, all else stays at one site.
    #[must_use]
    pub fn usual_rtt(self) -> Duration {
        match self {
            Self::Copy | Self::Field => Duration::from_millis(50),
            Self::Bcast | Self::Mount | Self::Daemon => Duration::from_millis(1),
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The link and the purpose that settings are judged against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// The purposes to check for; empty: all.
    pub purposes: Vec<Purpose>,
    /// Rate of the link, bits per second.
    pub link: u64,
    /// Round-trip time of the path. `None`: that of [`Purpose::usual_rtt`].
    pub rtt: Option<Duration>,
}

impl Goal {
    /// The purposes, in order.
    pub fn purposes(&self) -> impl Iterator<Item = Purpose> + '_ {
        Purpose::ALL.into_iter().filter(|purpose| self.is_for(*purpose))
    }

    /// Whether the host is checked for this.
    #[must_use]
    pub fn is_for(&self, purpose: Purpose) -> bool {
        self.purposes.is_empty() || self.purposes.contains(&purpose)
    }

    /// The round-trip time that settings are judged against for one purpose.
    #[must_use]
    pub fn rtt_for(&self, purpose: Purpose) -> Duration {
        self.rtt.unwrap_or_else(|| purpose.usual_rtt())
    }

    /// The longest round-trip time of all purposes.
    pub(crate) fn longest_rtt(&self) -> Duration {
        self.purposes().map(|purpose| self.rtt_for(purpose)).max().unwrap_or_default()
    }
}

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The setting does not limit the goal.
    Fit,
    /// The setting costs throughput, CPU or safety; [`Finding::cost`] says how much where a model exists.
    Costs,
    /// Worth knowing; sources disagree or nothing is lost now.
    Note,
    /// The value cannot be read on this host; [`Finding::why`] says why.
    Unknown,
}

/// The result of one check on one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Stable name of the check, such as `tcp-receive-buffer`.
    pub check: &'static str,
    /// What was checked: an interface, a CPU, a directory; empty for the host.
    pub object: String,
    /// Its outcome.
    pub verdict: Verdict,
    /// The value read, for people.
    pub read: String,
    /// The value wanted for this goal, for people.
    pub wanted: String,
    /// Why it matters here: one sentence.
    pub why: String,
    /// Where the advice comes from: paper section, manual or page.
    pub source: &'static str,
    /// Share of the link's rate that is lost, 0 to 1, by the model named in [`Finding::model`].
    pub cost: Option<f64>,
    /// The model behind `cost`, with its numbers: "6 MB of buffer / 50 ms = 0.96 Gbit/s of 10 Gbit/s".
    pub model: String,
    /// The rate measured with only this setting changed, bits per second before and after; by `--measure`.
    pub measured: Option<(f64, f64)>,
    /// How to mend it, in order.
    pub changes: Vec<Change>,
}

impl Finding {
    /// A cost above this share fails the check of the host.
    pub const SERIOUS: f64 = 0.05;

    /// A setting that fits, as it was read and as it is wanted.
    pub(crate) fn new(
        check: &'static str,
        object: impl Into<String>,
        read: impl Into<String>,
        wanted: impl Into<String>,
        source: &'static str,
    ) -> Self {
        Self {
            check,
            object: object.into(),
            verdict: Verdict::Fit,
            read: read.into(),
            wanted: wanted.into(),
            why: String::new(),
            source,
            cost: None,
            model: String::new(),
            measured: None,
            changes: Vec::new(),
        }
    }

    /// It costs this share of the rate by this model. A share of nothing leaves the setting fit.
    pub(crate) fn costs(mut self, share: f64, model: impl Into<String>) -> Self {
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.cost = Some(share);
        self.model = model.into();
        self.verdict = if share > 0.0 { Verdict::Costs } else { Verdict::Fit };
        self
    }

    /// It fails the goal in a way that no model gives a share for.
    pub(crate) fn breaks(mut self) -> Self {
        self.verdict = Verdict::Costs;
        self
    }

    /// It is worth knowing.
    pub(crate) fn note(mut self) -> Self {
        self.verdict = Verdict::Note;
        self
    }

    /// It cannot be read.
    pub(crate) fn unknown(mut self) -> Self {
        self.verdict = Verdict::Unknown;
        self
    }

    /// Why it matters here.
    pub(crate) fn because(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// How to mend it, which a fit setting needs not.
    pub(crate) fn mend(mut self, changes: impl IntoIterator<Item = Change>) -> Self {
        if self.verdict != Verdict::Fit {
            self.changes.extend(changes);
        }
        self
    }

    /// Says behind the model why it was not measured.
    pub(crate) fn not_measured(&mut self, why: impl fmt::Display) {
        let behind = if self.model.is_empty() { "" } else { "; " };
        self.model.push_str(&format!("{behind}not measured: {why}"));
    }

    /// What costs most is first, and what breaks without a share before all; then notes, what is unknown, and what fits.
    pub(crate) fn costliest_first(a: &Self, b: &Self) -> Ordering {
        let rank = |of: &Self| match of.verdict {
            Verdict::Costs => 0,
            Verdict::Note => 1,
            Verdict::Unknown => 2,
            Verdict::Fit => 3,
        };
        let cost = |of: &Self| of.cost.unwrap_or(if of.verdict == Verdict::Costs { 1.0 } else { 0.0 });
        rank(a).cmp(&rank(b)).then(cost(b).total_cmp(&cost(a)))
    }

    /// Whether it costs so much that the host is not fit.
    #[must_use]
    pub fn is_serious(&self) -> bool {
        self.verdict == Verdict::Costs && self.cost.is_none_or(|cost| cost > Self::SERIOUS)
    }
}
