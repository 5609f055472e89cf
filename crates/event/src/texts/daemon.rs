//! Texts of a daemon for its administrator, and of uses of caches.

use std::time::Duration;

use tidecast_text::{Size, Span, count, escaped};

use crate::cache::{CacheUse, ReceivedBytes};
use crate::daemon::{Checked, CommandResult, Limits, Started, Status, Unread};

impl Status {
    /// Lines for people. `now`: seconds since 1970.
    #[must_use]
    pub fn lines(&self, now: u64) -> Vec<String> {
        let up = Span(Duration::from_secs(now.saturating_sub(self.started)));
        let mut lines = vec![
            format!("{}, {} for {up}, tidecast {}", self.name, self.state, self.version),
            format!(
                "{}, {} of {}, {} reserved; sent {}, received {}",
                count(self.caches, "cache"),
                Size(self.bytes),
                Size(self.capacity),
                Size(self.reserved),
                Size(self.sent),
                Size(self.received)
            ),
        ];
        lines.extend(self.configured.filter(|configured| *configured < self.capacity).map(|configured| {
            format!(
                "capacity {}, exceeded until leases of caches created here expire or other caches need the space",
                Size(configured)
            )
        }));
        if self.came != ReceivedBytes::default() {
            lines.push(format!("caches received: {}", self.came.in_words()));
        }
        lines.push(may_take(&self.limits));
        lines.push(format!("serves {} as uid {}; {}", self.serves, self.user, self.confined));
        if !self.without.is_empty() {
            lines.push(format!("runs without {}", self.without.join(", ")));
        }
        lines.extend(
            self.parent
                .as_ref()
                .map(|parent| format!("gets caches from {parent}, another daemon on this machine")),
        );
        for (what, names) in [("connected to", &self.peers), ("fetches", &self.transfers)] {
            if !names.is_empty() {
                lines.push(format!("{what} {}", names.join(", ")));
            }
        }
        lines.extend(
            self.uses.iter().map(|used| format!("{} is used by {}", used.cache, used.with_times(now))),
        );
        lines
    }
}

impl Started {
    /// Lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let listen: Vec<String> = self.listen.iter().map(ToString::to_string).collect();
        let others = match listen.is_empty() {
            true => "no other daemon can connect (no trust file)".into(),
            false => format!("other daemons connect to {}", listen.join(", ")),
        };
        let (socket, bytes, capacity) = (self.socket.display(), Size(self.bytes), Size(self.capacity));
        let (name, caches) = (&self.name, count(self.caches, "cache"));
        let mut lines =
            vec![format!("{name}: {caches}, {bytes} of {capacity}; users ask at {socket}; {others}")];
        lines.extend(self.serves.as_ref().map(|url| format!("URL for tidecast copy: {url}")));
        lines
    }
}

impl Checked {
    /// A warning for each file that could not be read.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let line = |unread: &Unread| {
            let (path, caches) = (escaped(&unread.path), unread.caches.join(", "));
            format!("cannot read {path}: {}; it belongs to {caches}, not changed", unread.why)
        };
        self.unread.iter().map(line).collect()
    }

    /// A line for people.
    ///
    /// # Errors
    /// The text of the failure: data was lost, or could not be read.
    pub fn outcome(&self) -> Result<String, String> {
        let Self { damaged, repaired, .. } = self;
        let (caches, objects) = (count(self.caches, "cache"), count(self.objects, "object"));
        let read = format!("{caches}, {objects}, {} read", Size(self.bytes));
        if self.clean {
            return Ok(format!("{read}: clean"));
        }
        // An older daemon reports `bad` instead of `lost`.
        let lost = self.lost.max(self.bad);
        let found = format!("{read}: {damaged} damaged, {repaired} repaired, {lost} lost");
        if lost > 0 || !self.invalid.is_empty() {
            return Err(format!("{found}; INVALID: {}", self.invalid.join(", ")));
        }
        if self.unread.is_empty() {
            return Ok(found);
        }
        let unread = count(self.unread.len() as u64, "file");
        Err(format!(
            "{found}; {unread} could not be read: check the disk of this host, then run tidecast admin fsck again"
        ))
    }
}

impl CommandResult {
    /// A line for people.
    #[must_use]
    pub fn line(&self) -> String {
        match (&self.status, &self.why) {
            (Some(status), _) => format!(
                "{}, {}, {} of {}, knows {}",
                status.state,
                count(status.caches, "cache"),
                Size(status.bytes),
                Size(status.capacity),
                count(status.members, "host")
            ),
            (None, why) => format!("failed: {}", why.as_deref().unwrap_or("no reason given")),
        }
    }
}

impl CacheUse {
    /// The process, and since or until when, for people. `now`: seconds since 1970.
    #[must_use]
    pub fn with_times(&self, now: u64) -> String {
        let span = |seconds: u64| Span(Duration::from_secs(seconds));
        let since = self.since.map(|since| format!(" for {}", span(now.saturating_sub(since))));
        let until = self.until.map(|until| format!(", at most {} more", span(until.saturating_sub(now))));
        format!("{}{}", self.in_words(), since.or(until).unwrap_or_default())
    }
}

impl ReceivedBytes {
    /// The sources of bytes, for people.
    #[must_use]
    pub fn in_words(&self) -> String {
        let parts = [
            (self.origin, "from the origin"),
            (self.peers, "from other hosts"),
            (self.parent, "from another daemon on this machine"),
            (self.link, "linked from there"),
        ];
        let said = parts.iter().filter(|(bytes, _)| *bytes > 0);
        said.map(|(bytes, whence)| format!("{} {whence}", Size(*bytes))).collect::<Vec<_>>().join(", ")
    }
}

fn may_take(limits: &Limits) -> String {
    let rate = |what: &str, cap: Option<u64>| cap.map(|cap| format!("{what} {}/s", Size(cap)));
    let caps = [
        limits.cores.map(|cores| format!("{cores:.2} cores")),
        rate("sends", limits.upload),
        rate("receives", limits.download),
        rate("writes", limits.disk_rate),
        Some(format!("{} of blocks in memory", Size(limits.memory))),
    ];
    let caps: Vec<String> = caps.into_iter().flatten().collect();
    let when = if limits.busy { " while jobs use caches" } else { "" };
    format!("limits{when}: {}; cgroup: {}", caps.join(", "), limits.cgroup)
}
