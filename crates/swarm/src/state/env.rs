//! Constant inputs of every decision: the time, the policy, the limits.

use crate::api::{Limits, Policy, Time};

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Env {
    now: Time,
    policy: Policy,
    limits: Limits,
}

impl Env {
    pub(crate) fn new(now: Time, policy: Policy, limits: Limits) -> Self {
        Env { now, policy, limits }
    }

    /// An event has come at `now`. Time never runs backwards, whatever the driver's clock does.
    pub(crate) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }
}
