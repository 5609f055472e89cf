//! An etcd cluster, by the JSON gateway of its third API: a key a daemon, which goes with its lease.

use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::entry::{Catalogue, CatalogueError, Entry, LIFETIME, Visit, failed, peer};
use super::known_peers::REMEMBERED;

/// Prefix of all keys of Tidecast.
const PREFIX: &str = "/tidecast/daemons/";
/// The first key after all keys of Tidecast.
const BEHIND: &str = "/tidecast/daemons0";
/// One request takes no longer: then the next member of the cluster is tried.
const ASK: Duration = Duration::from_secs(5);
/// Most bytes of an answer.
const MAX_ANSWER: usize = 16 << 20;

/// The members of the cluster, HOST:PORT.
pub(super) struct Etcd(pub(super) Vec<String>);

impl Catalogue for Etcd {
    fn visit<'a>(&'a self, entry: &'a Entry) -> Visit<'a, Vec<String>> {
        Box::pin(async {
            // Each time under a lease of its own: the one before ends without the key, that has the new one.
            let granted = self.ask("lease/grant", &json!({ "TTL": LIFETIME })).await?;
            let lease = granted.get("ID").ok_or_else(|| failed("no lease in the reply"))?;
            let key = BASE64.encode(format!("{PREFIX}{}", entry.name).as_bytes());
            let value = BASE64.encode(entry.addresses().as_bytes());
            self.ask("kv/put", &json!({ "key": key, "value": value, "lease": lease })).await?;
            let (first, behind) = (BASE64.encode(PREFIX.as_bytes()), BASE64.encode(BEHIND.as_bytes()));
            let all = json!({ "key": first, "range_end": behind, "limit": REMEMBERED });
            Ok(peers(&self.ask("kv/range", &all).await?))
        })
    }

    fn leave<'a>(&'a self, name: &'a str) -> Visit<'a, ()> {
        Box::pin(async move {
            let key = BASE64.encode(format!("{PREFIX}{name}").as_bytes());
            self.ask("kv/deleterange", &json!({ "key": key })).await.map(|_| ())
        })
    }
}

impl Etcd {
    /// Asks the first member that answers.
    async fn ask(&self, what: &str, body: &Value) -> Result<Value, CatalogueError> {
        let mut last = failed("no etcd member configured");
        for host in &self.0 {
            match timeout(ASK, post(host, what, body)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => last = failed(format!("{host}: {error}")),
                Err(_) => last = failed(format!("{host}: no answer within {} s", ASK.as_secs())),
            }
        }
        Err(last)
    }
}

async fn post(host: &str, what: &str, body: &Value) -> Result<Value, CatalogueError> {
    let stream = TcpStream::connect(host).await.map_err(failed)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let running = tokio::spawn(connection);
    let request = Request::post(format!("/v3/{what}"))
        .header("host", host)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .map_err(failed)?;
    let talk = async {
        let answer = sender.send_request(request).await.map_err(failed)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await.map_err(failed)?.to_bytes();
        if !status.is_success() {
            let said: String = String::from_utf8_lossy(&body).chars().take(200).collect();
            return Err(failed(format!("{status}: {}", said.trim())));
        }
        serde_json::from_slice(&body).map_err(failed)
    };
    let talked = talk.await;
    running.abort();
    talked
}

/// The daemons that the keys list.
fn peers(range: &Value) -> Vec<String> {
    let word = |pair: &Value, key: &str| -> Option<String> {
        String::from_utf8(BASE64.decode(pair.get(key)?.as_str()?.as_bytes()).ok()?).ok()
    };
    let daemon = |pair: &Value| peer(word(pair, "key")?.strip_prefix(PREFIX)?, &word(pair, "value")?);
    range.get("kvs").and_then(Value::as_array).into_iter().flatten().filter_map(daemon).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_daemon_is_passed_over() {
        let pair = |key: &str, value: &str| json!({ "key": BASE64.encode(key.as_bytes()), "value": BASE64.encode(value.as_bytes()) });
        let range = json!({ "kvs": [
            pair("/tidecast/daemons/head", "10.0.0.1:6980,[::1]:6980"),
            pair("/tidecast/daemons/node1", "anything"),
            pair("/tidecast/daemons/a=b", "10.0.0.1:1"),
            { "key": "/" },
        ] });
        assert_eq!(peers(&range), ["head=10.0.0.1:6980,[::1]:6980"]);
        assert!(peers(&json!({})).is_empty());
    }
}
