//! Workers that this one starts for its coordinator.

use tokio::task::JoinSet;

use crate::control::message::LaunchRequest;
use crate::launch::Job;
use crate::launch::run::{self, OutputTail};

/// Launches in progress; when dropped, they are killed with the processes that they started here.
pub(super) struct Launches {
    ticket: String,
    running: JoinSet<(u32, String)>,
}

impl Launches {
    pub(super) fn new(ticket: String) -> Self {
        Self { ticket, running: JoinSet::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn start(&mut self, launches: Vec<LaunchRequest>) {
        for request in launches {
            let ticket = self.ticket.clone();
            self.running.spawn(async move {
                let job =
                    Job { argv: request.argv, hosts: Vec::new(), by_stdin: true, anywhere: true, list: None };
                (request.place, run::run(&job, &ticket, &OutputTail::default()).await)
            });
        }
    }

    /// The next launch that ends: its host and the reason; waits forever if there is none.
    pub(super) async fn ended(&mut self) -> (u32, String) {
        loop {
            match self.running.join_next().await {
                Some(Ok(ended)) => return ended,
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until all have ended.
    pub(super) async fn all_ended(&mut self) {
        while self.running.join_next().await.is_some() {}
    }
}
