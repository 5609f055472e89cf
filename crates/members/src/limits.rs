//! How much and how often.

/// Limits and times, milliseconds. The defaults are for a site of up to thousands of daemons on a local network.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most members that are known by hearsay; who shows its own card may come on top, as many again.
    pub members: usize,
    /// Most seeds that are remembered.
    pub seeds: usize,
    /// How often a member is probed. Half of it is the time for the first answer, twice as much for any: crowded links
    /// need that, and who is suspected wrongly has to say to all that it lives.
    pub probe_every: u64,
    /// How often news are passed on.
    pub gossip_every: u64,
    /// How long a suspect may refute, before it is asked a last time, for two periods.
    pub suspect_for: u64,
    /// How long a member that hears nobody at all takes that for its own fault, and declares nobody dead.
    pub alone_for: u64,
    /// How long a dead member is remembered.
    pub forget_after: u64,
    /// How often lists are compared, seeds and the dead called.
    pub compare_every: u64,
    /// Members that keep each record.
    pub copies: usize,
    /// Most records kept for others.
    pub records: usize,
    /// Most of them that one member has brought.
    pub records_per_peer: usize,
    /// Most of them of one key; a 32nd of that brought by one member.
    pub records_per_key: usize,
    /// Most that one peer may bring in a second, on average.
    pub records_per_second: u64,
    /// Longest time until a record ends.
    pub longest_life: u64,
    /// Most records in one answer.
    pub answer: usize,
    /// Most lookups under way.
    pub lookups: usize,
    /// How long an answer may take.
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
