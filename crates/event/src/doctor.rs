//! Events of `doctor`.

use schemars::JsonSchema;
use serde::Serialize;

/// An event of `doctor`.
pub type Event = crate::Event<Started, Done>;

/// The host is about to be checked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `doctor`.
    pub command: &'static str,
    /// The commands that settings are judged for: `copy`, `bcast`, `field`, `mount`, `daemon`.
    pub purposes: Vec<&'static str>,
    /// Rate of the link that settings are judged for, bits per second.
    pub link: u64,
    /// Seconds of a round trip for each of `purposes`, in their order.
    pub round_trips: Vec<f64>,
    /// What was assumed because no option says it.
    pub assumed: Vec<String>,
}

/// The host was checked. If a setting costs more than 5%, the operation fails, and these fields are in its `error` event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// Rate of the link that settings are judged for, bits per second.
    pub link: u64,
    /// Findings that cost more than 5% of the link's rate, or without which a command does not work.
    pub serious: usize,
    /// All findings, the costliest first.
    pub findings: Vec<Finding>,
    /// With `--fix`: the changes that correct the findings.
    pub fix: Option<Fix>,
    /// With `--undo`: the outcome for each setting that `--fix` had changed.
    pub undone: Option<Vec<Setting>>,
}

impl Done {
    /// What became of the settings that were to be changed or restored.
    pub fn settings(&self) -> impl Iterator<Item = &Setting> {
        self.fix.iter().flat_map(|fix| &fix.changed).chain(self.undone.iter().flatten())
    }
}

/// The result of one check on one object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// Stable name of the check: `tcp-receive-buffer`.
    pub check: &'static str,
    /// What was checked: an interface, a CPU, a directory; empty for the host.
    pub object: String,
    /// `costs`, `note` (worth knowing), `unknown` (cannot be seen from here) or `fit`.
    pub verdict: &'static str,
    /// The value read.
    pub read: String,
    /// The value wanted for this link and these purposes.
    pub wanted: String,
    /// Why it matters.
    pub why: String,
    /// Where the advice comes from: paper section, manual or page.
    pub source: &'static str,
    /// Share of the link's rate that is lost, 0 to 1, as `model` predicts. Null: no model gives a share.
    pub cost: Option<f64>,
    /// The model behind `cost`, with its numbers.
    pub model: String,
    /// What a run measured that changed only this, with `--measure`.
    pub measured: Option<Measured>,
    /// Commands that correct it, for root, in order.
    pub commands: Vec<String>,
}

/// The rate before and after a change, measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Measured {
    /// Bits per second with the setting as it is.
    pub before: f64,
    /// Bits per second with the setting as it is wanted.
    pub after: f64,
}

/// The changes that mend the findings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Fix {
    /// Commands for root that do the same, in order; files that make the changes last are among them.
    pub commands: Vec<String>,
    /// Commands that a person has to run: `--fix` does not.
    pub by_hand: Vec<String>,
    /// What is not changed, with the reason.
    pub left_out: Vec<String>,
    /// A script for sh that does the same, without the record that `--undo` needs.
    pub script: String,
    /// The outcome of each change; empty with `--dry-run`.
    pub changed: Vec<Setting>,
}

/// What became of one setting.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Setting {
    /// Its name: a kernel parameter, a path, the MTU or the queueing discipline of an interface.
    pub setting: String,
    /// Of a change, the value before; of a setting that others have changed since, the value that `--fix` had set.
    pub before: String,
    /// Its value now.
    pub now: String,
    /// `changed`, `restored`, `already restored`, `changed by others` (it stays as it is), `gone` (the host no longer has
    /// it) or `refused`.
    pub outcome: &'static str,
    /// Why the system refused the change.
    pub error: Option<String>,
}
