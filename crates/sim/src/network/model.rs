//! How the network behaves beside its topology: headers, latency, queues, ramp-up.

/// The network's behaviour. Fields are public so that a comparison can switch each off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// TCP payload of a full frame, bytes.
    pub payload: u32,
    /// Bytes of the wire that this frame takes.
    pub frame: u32,
    /// From program to program, in addition to the delays of links, nanoseconds.
    pub latency: u64,
    /// Bytes of the queue at a port, where the topology does not set it; twice rate x delay where that is
    /// more (the lab's rule). 0: queues take no time.
    pub queue: u64,
    /// Shares are recomputed when they could be better by one part in this many, 64 to 65,536. The work grows
    /// with it.
    pub fairness: u32,
    /// Streams start slowly and suffer from loss, as TCP does.
    pub ramp: bool,
}

impl Default for Model {
    /// TCP over Ethernet as in the lab, whose shaper counts frames without preamble.
    fn default() -> Self {
        Model { payload: 1448, frame: 1514, latency: 30_000, queue: 256 << 10, fairness: 128, ramp: true }
    }
}

impl Model {
    /// Bytes and rates and nothing else: no headers, no ramp, no queues, no latency but that of links.
    #[must_use]
    pub const fn exact() -> Self {
        Model { payload: 1, frame: 1, latency: 0, queue: 0, fairness: 1024, ramp: false }
    }

    /// Bytes on the wire of a message, headers included.
    #[must_use]
    pub fn wire(&self, bytes: u64) -> u64 {
        let header = u64::from(self.frame.saturating_sub(self.payload));
        let frames = bytes.div_ceil(u64::from(self.payload.max(1)));
        bytes.saturating_add(frames.saturating_mul(header))
    }
}
