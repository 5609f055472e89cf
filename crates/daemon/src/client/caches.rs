//! Operations on the caches of this host, besides creating and getting them.

use std::time::Duration;

use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tidecast_text::percent_encode;

use super::{Client, ClientError, JSON, Line, whole};
use crate::model::name::CacheName;
use crate::model::types::{CacheInfo, Event, Extend, Holder, Offered, Replicate};

/// `?name=NAME`.
fn query(name: Option<&CacheName>) -> String {
    name.map_or(String::new(), |name| format!("?name={}", percent_encode(name.to_string().as_bytes(), "")))
}

impl Client {
    /// The caches of this host that the caller may read; only those of `name`, if given.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn list(&self, name: Option<&CacheName>) -> Result<Vec<CacheInfo>, ClientError> {
        self.get(&format!("/v1/caches{}", query(name))).await
    }

    /// The cache of this name, among those that the caller may read.
    ///
    /// # Errors
    /// As [`Client::post`]; no such cache.
    pub async fn find(&self, name: &CacheName) -> Result<CacheInfo, ClientError> {
        self.open().await?.find(name).await
    }

    /// The same with its ad and its users.
    ///
    /// # Errors
    /// As [`Client::find`].
    pub async fn show(&self, name: &CacheName) -> Result<CacheInfo, ClientError> {
        let mut line = self.open().await?;
        let id = line.find(name).await?.cache;
        line.get(&format!("/v1/caches/{id}")).await
    }

    /// Keeps it longer: the lease ends no earlier than this many seconds from now.
    ///
    /// # Errors
    /// As [`Client::find`].
    pub async fn extend(&self, name: &CacheName, lease: u64) -> Result<CacheInfo, ClientError> {
        self.change(name, "extend", &Extend { lease }).await
    }

    /// Keeps it until it is unpinned.
    ///
    /// # Errors
    /// As [`Client::find`].
    pub async fn pin(&self, name: &CacheName) -> Result<CacheInfo, ClientError> {
        self.change(name, "pin", &json!({})).await
    }

    /// Unpins the cache: it may be evicted when its lease has expired.
    ///
    /// # Errors
    /// As [`Client::find`].
    pub async fn unpin(&self, name: &CacheName) -> Result<CacheInfo, ClientError> {
        self.change(name, "unpin", &json!({})).await
    }

    /// Removes the cache from this host; other hosts keep theirs.
    ///
    /// # Errors
    /// As [`Client::find`].
    pub async fn remove(&self, name: &CacheName) -> Result<CacheInfo, ClientError> {
        let mut line = self.open().await?;
        let info = line.find(name).await?;
        let path = format!("/v1/caches/{}", info.cache);
        line.send::<()>(Method::DELETE, &path, &[], whole(Vec::new()), Duration::ZERO).await?;
        Ok(info)
    }

    /// Offers it to these hosts; to none: to as many as it is to have copies, where its policy allows.
    ///
    /// # Errors
    /// As [`Client::find`].
    pub async fn replicate(&self, name: &CacheName, to: Vec<String>) -> Result<Vec<Offered>, ClientError> {
        self.change(name, "replicate", &Replicate { to }).await
    }

    /// Which hosts have it.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn holders(&self, name: &CacheName) -> Result<Vec<Holder>, ClientError> {
        self.get(&format!("/v1/where{}", query(Some(name)))).await
    }

    /// The audit log of a cache, or of all caches that concern the caller.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub async fn history(&self, name: Option<&CacheName>) -> Result<Vec<Event>, ClientError> {
        self.get(&format!("/v1/history{}", query(name))).await
    }

    async fn change<A: DeserializeOwned>(
        &self,
        name: &CacheName,
        what: &str,
        body: &impl Serialize,
    ) -> Result<A, ClientError> {
        let body = serde_json::to_vec(body).map_err(|e| self.broken(e))?;
        let mut line = self.open().await?;
        let path = format!("/v1/caches/{}/{what}", line.find(name).await?.cache);
        line.send(Method::POST, &path, &[JSON], whole(body), Duration::ZERO).await
    }
}

impl Line<'_> {
    async fn find(&mut self, name: &CacheName) -> Result<CacheInfo, ClientError> {
        let mut found: Vec<CacheInfo> = self.get(&format!("/v1/caches{}", query(Some(name)))).await?;
        // The newest version, of this host before others: that is how the daemon sorts.
        found.sort_by_key(|info| info.name.parse::<CacheName>().ok().and_then(|n| n.version));
        found.pop().ok_or_else(|| ClientError::Absent(name.to_string()))
    }
}
