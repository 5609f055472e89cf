//! What an administrator has a daemon do, and those of the whole site.

use std::time::Duration;

use super::{Client, ClientError};
use crate::model::types::{Checked, Limit, Ruled, Status};

/// Every byte of a large store takes long to read.
const CHECK: Duration = Duration::from_secs(7 * 86_400);

/// What a daemon is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// Say how it is.
    Status,
    /// Take nothing new, and have others wait, until it is resumed.
    Pause,
    /// Take nothing new, until it is resumed; what is here is still given to others.
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

    /// Has every daemon of the site do it that is alive, or that of one `host`; answers what became of it at each.
    ///
    /// # Errors
    /// As there.
    pub async fn order_site(&self, order: &Order, host: Option<&str>) -> Result<Vec<Ruled>, ClientError> {
        let host = host.map_or(String::new(), |host| {
            format!("?host={}", tidecast_text::percent_encode(host.as_bytes(), ""))
        });
        self.post(&format!("/v1/site/{}{host}", order.word()), &order.limit(), Duration::ZERO).await
    }

    /// Has this host's daemon verify every byte of its store, and repair from other hosts what is damaged.
    ///
    /// # Errors
    /// As there.
    pub async fn check(&self) -> Result<Checked, ClientError> {
        self.post("/v1/fsck", &serde_json::json!({}), CHECK).await
    }
}
