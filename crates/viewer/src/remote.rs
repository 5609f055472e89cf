//! Another viewer as the source of a volume: it uses the same API as the page, but for float32.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::api::{FLOATS, Meta};
use crate::error::Error;
use crate::panel::{Level, LevelRequest};
use crate::reduce::Cells;
use crate::state::State;
use crate::token::Token;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(25);
/// Bytes of a state at most.
const STATE: usize = 16 << 20;

/// A volume of another viewer.
#[derive(Debug)]
pub(crate) struct Remote {
    /// host:port
    address: String,
    /// None: its first.
    name: Option<String>,
    /// The token that it requires.
    token: Option<Token>,
}

impl Remote {
    /// Of `host:port` or `host:port/NAME`.
    pub(crate) fn new(text: &str, token: Option<Token>) -> Result<Self, Error> {
        let (address, name) = text.split_once('/').unwrap_or((text, ""));
        let good = address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty()
                && port.parse::<u16>().is_ok()
                && host.chars().all(|c| c.is_ascii_graphic() && c != '@')
        });
        if !good {
            return Err(Error::Name(format!("http://{text}")));
        }
        Ok(Self { address: address.into(), name: (!name.is_empty()).then(|| name.into()), token })
    }

    fn wrong(&self, why: impl ToString) -> Error {
        Error::Remote { address: self.address.clone(), why: why.to_string() }
    }

    pub(crate) fn state(&self) -> Result<State, Error> {
        self.find().map(|(_, state)| state)
    }

    /// Its number there, and how it is.
    fn find(&self) -> Result<(usize, State), Error> {
        let (body, _) = self.get("/api/state", STATE)?;
        let all: crate::api::States = serde_json::from_slice(&body).map_err(|e| self.wrong(e))?;
        let mine = |(_, state): &(usize, State)| self.name.as_ref().is_none_or(|name| *name == state.name);
        let found = all.volumes.into_iter().enumerate().find(mine);
        found
            .ok_or_else(|| self.wrong(format!("unknown volume {}", self.name.as_deref().unwrap_or_default())))
    }

    pub(crate) fn level(&self, wanted: &LevelRequest) -> Result<Level, Error> {
        let (number, state) = self.find()?;
        let region = crate::reduce::Region::new(state.shape, wanted.factor, wanted.part)?;
        let count = region.size.iter().product::<u64>() as usize;
        if count > FLOATS {
            return Err(self.wrong("a larger factor is needed over the network"));
        }
        let how = serde_json::to_value(wanted.how).unwrap_or_default();
        let mut path = format!(
            "/api/volumes/{number}/cells?as=f32&factor={}&how={}",
            wanted.factor,
            how.as_str().unwrap_or_default()
        );
        if let Some(step) = wanted.step {
            path += &format!("&step={step}");
        }
        if let Some(part) = wanted.part {
            path += &format!("&box={}", part.map(|n| n.to_string()).join(","));
        }
        let (body, meta) = self.get(&path, count * 4)?;
        let meta = meta.ok_or_else(|| self.wrong("missing header `field`"))?;
        if body.len() != count * 4 || meta.size != region.size {
            return Err(self.wrong("unexpected number of cells"));
        }
        let values: Vec<f32> = body.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let range = meta.min.zip(meta.max);
        let cells = Cells { values, range, missing: meta.missing };
        Ok(Level { step: meta.step, size: region.size, cells: cells.into() })
    }

    /// Asks; on a thread of the runtime that may block.
    fn get(&self, path: &str, most: usize) -> Result<(Bytes, Option<Meta>), Error> {
        let asked = async {
            tokio::time::timeout(PATIENCE, self.ask(path, most))
                .await
                .unwrap_or_else(|_| Err(self.wrong("no answer in time")))
        };
        tokio::runtime::Handle::current().block_on(asked)
    }

    async fn ask(&self, path: &str, most: usize) -> Result<(Bytes, Option<Meta>), Error> {
        let socket = TcpStream::connect(&self.address).await.map_err(|e| self.wrong(e))?;
        let (mut send, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.map_err(|e| self.wrong(e))?;
        let mut request = Request::get(path).header("host", &self.address);
        if let Some(token) = &self.token {
            let mut value =
                HeaderValue::try_from(format!("Bearer {}", token.text())).map_err(|e| self.wrong(e))?;
            value.set_sensitive(true);
            request = request.header("authorization", value);
        }
        let request = request.body(Empty::<Bytes>::new());
        let request = request.map_err(|e| self.wrong(e))?;
        // Its end is that of the answer.
        let driving = tokio::spawn(connection);
        let answer = async {
            let answer = send.send_request(request).await.map_err(|e| self.wrong(e))?;
            let good = answer.status().is_success();
            let header = answer.headers().get("field").and_then(|value| value.to_str().ok());
            let meta = header.and_then(|text| serde_json::from_str(text).ok());
            let body = Limited::new(answer.into_body(), most.max(1 << 16)).collect().await;
            let body = body.map_err(|e| self.wrong(e))?.to_bytes();
            if good {
                return Ok((body, meta));
            }
            let said: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            Err(self.wrong(said["error"].as_str().unwrap_or("request refused")))
        };
        let answer = answer.await;
        driving.abort();
        answer
    }
}
