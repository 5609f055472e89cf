//! Limits and intervals.

/// Limits and times, milliseconds. The defaults are for a site of up to thousands of daemons on a local network.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of members known through others; members that show their own card may be as many again.
    pub members: usize,
    /// Maximum number of seeds.
    pub seeds: usize,
    /// Interval of probes. The first answer has half of it, any answer twice as long: congested links need that, and a
    /// wrongly suspected member has to refute the suspicion to all members.
    pub probe_every: u64,
    /// Interval of gossip.
    pub gossip_every: u64,
    /// How long a suspect may refute, before it is asked a last time, for two periods.
    pub suspect_for: u64,
    /// How long a member without any incoming message assumes that it is disconnected, and declares no member dead.
    pub alone_for: u64,
    /// How long a dead member is remembered.
    pub forget_after: u64,
    /// Interval at which lists are compared, and seeds and dead members are called.
    pub compare_every: u64,
    /// Members that keep each record.
    pub copies: usize,
    /// Maximum number of records kept for others.
    pub records: usize,
    /// Maximum number of records brought by one member.
    pub records_per_peer: usize,
    /// Maximum number of records of one key; one member may bring a 32nd of it.
    pub records_per_key: usize,
    /// Maximum number of records that one peer may bring per second, on average.
    pub records_per_second: u64,
    /// Longest time until a record expires.
    pub longest_life: u64,
    /// Maximum number of records in one answer.
    pub answer: usize,
    /// Maximum number of open lookups.
    pub lookups: usize,
    /// Timeout of an answer.
    pub lookup_timeout: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            members: 8_192,
            seeds: 64,
            probe_every: 1_000,
            gossip_every: 500,
            suspect_for: 8_000,
            alone_for: 15_000,
            forget_after: 3_600_000,
            compare_every: 30_000,
            copies: 5,
            records: 200_000,
            records_per_peer: 32_768,
            records_per_key: 4_096,
            records_per_second: 1_000,
            longest_life: 30 * 24 * 3_600_000,
            answer: 256,
            lookups: 1_024,
            lookup_timeout: 2_000,
        }
    }
}
