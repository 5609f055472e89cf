//! Administration of a daemon, and of all daemons of a site.

use std::time::Duration;

use super::{Client, ClientError};
use crate::model::types::{Checked, CommandResult, Limit, Status};

/// Every byte of a large store takes long to read.
const CHECK: Duration = Duration::from_secs(7 * 86_400);

/// A command to a daemon.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// Report the status.
    Status,
    /// Take nothing new, and have others wait, until it is resumed.
    Pause,
    /// Accept no new caches until it is resumed; existing caches are still served to other hosts.
    Drain,
    /// Take new caches again.
    Resume,
    /// Change limits, until it is started again.
    Limit(Limit),
}

impl Order {
    fn word(&self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Pause => "pause",
            Self::Drain => "drain",
            Self::Resume => "resume",
            Self::Limit(_) => "limit",
        }
    }

    fn limit(&self) -> Limit {
        match self {
            Self::Limit(limit) => limit.clone(),
            _ => Limit::default(),
        }
    }
}

impl Client {
    /// How the daemon is.
    ///
    /// # Errors
    /// As [`Client::post`]; so for the others here.
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.get("/v1/daemon").await
    }

    /// Has this host's daemon do it; answers how it is then.
    ///
    /// # Errors
    /// As there.
    pub async fn order(&self, order: &Order) -> Result<Status, ClientError> {
        match order {
            Order::Status => self.status().await,
            other => self.post(&format!("/v1/admin/{}", other.word()), &other.limit(), Duration::ZERO).await,
        }
    }

    /// Sends a command to every running daemon of the site, or to that of one `host`; the result of each.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn order_site(
        &self,
        order: &Order,
        host: Option<&str>,
    ) -> Result<Vec<CommandResult>, ClientError> {
        let host = host.map_or(String::new(), |host| {
            format!("?host={}", tidecast_text::percent_encode(host.as_bytes(), ""))
        });
        self.post(&format!("/v1/site/{}{host}", order.word()), &order.limit(), Duration::ZERO).await
    }

    /// Lets this host's daemon verify every byte of its store, and repair damaged content from other hosts.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn check(&self) -> Result<Checked, ClientError> {
        self.post("/v1/fsck", &serde_json::json!({}), CHECK).await
    }
}
