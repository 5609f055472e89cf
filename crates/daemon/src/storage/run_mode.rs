//! Whether the daemon takes new work: an administrator's wish, which holds after the next start too.

use parking_lot::Mutex;
use tidecast_depot::Depot;

/// The depot's key of the [`Mode`].
const MODE: &str = "mode";

/// Takes new work, takes none, or sends its caches away too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Running,
    Paused,
    Draining,
}

impl Mode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Mode::Running => "running",
            Mode::Paused => "paused",
            Mode::Draining => "draining",
        }
    }

    /// By its number, as the database keeps it.
    fn of(number: u64) -> Self {
        match number {
            0 => Mode::Running,
            1 => Mode::Paused,
            _ => Mode::Draining,
        }
    }
}

/// The mode, kept by the depot.
pub(crate) struct RunMode {
    depot: Depot,
    now: Mutex<Mode>,
}

impl RunMode {
    /// As it was before.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(crate) fn open(depot: &Depot) -> Result<Self, tidecast_depot::Error> {
        let now = Mode::of(depot.kept(MODE)?);
        Ok(Self { depot: depot.clone(), now: Mutex::new(now) })
    }

    pub(crate) fn now(&self) -> Mode {
        *self.now.lock()
    }

    /// Kept for the next start too. Where the disk does not take it, it holds as long as this daemon runs.
    pub(crate) async fn set(&self, mode: Mode) {
        *self.now.lock() = mode;
        let depot = self.depot.clone();
        let kept = tokio::task::spawn_blocking(move || depot.keep(MODE, mode as u64)).await;
        if let Ok(Err(error)) = kept {
            tracing::error!(%error, "cannot save the mode: this daemon will not be {} after its next start", mode.word());
        }
    }
}
