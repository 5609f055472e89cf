//! Ranges of files of a web seed: kept connections, redirects, and checks of replies.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use tidecast_discovery::web::{Answer, Connection, Reach};
use tidecast_discovery::{Scheme, TrackerUrl};
use tidecast_metainfo::{ContentRange, clean_web_seed};

use crate::error::WebError;
use crate::shared::Shared;
use crate::web_seed::Seed;

/// Redirects followed for one request.
const REDIRECTS: usize = 5;
/// Connections kept: to the server itself, and to where it redirects.
const KEPT: usize = 2;
/// A gap between two requested parts of a file is read and dropped, up to this size.
const GAP: u64 = 256 << 10;
/// The engine is notified of arriving data this often.
const COMING: Duration = Duration::from_secs(1);

/// See the head of the file.
pub(super) struct Source {
    shared: Arc<Shared>,
    seed: Arc<Seed>,
    kept: Vec<Connection>,
    /// Where the last file that was asked for is, after redirects.
    found: Option<(u32, TrackerUrl)>,
    /// How far away the server itself is.
    reach: Option<Reach>,
    body: Option<Body>,
}

/// The body of an answer: bytes of a file from an offset on.
struct Body {
    file: u32,
    url: TrackerUrl,
    at: u64,
    end: u64,
    answer: Answer,
    rest: Bytes,
    connection: Connection,
}

impl Source {
    pub(super) fn new(shared: Arc<Shared>, seed: Arc<Seed>) -> Self {
        Self { shared, seed, kept: Vec::new(), found: None, reach: None, body: None }
    }

    /// Nothing is asked for at the moment: an answer that is still coming is not read on.
    pub(super) fn rest(&mut self) {
        self.body = None;
    }

    /// Asks for the first byte of a file; the address that answered.
    pub(super) async fn probe(&mut self, file: u32) -> Result<SocketAddr, WebError> {
        self.open(file, 0, 1).await?;
        let body = self.body.as_mut().ok_or(WebError::Stopping)?;
        let (addr, mut byte) = (body.connection.addr(), [0]);
        // Of a server that ignores ranges, the answer is read on later.
        if !self.seed.knows_no_ranges() {
            self.fill(file, 0, &mut byte, 1, &mut || ()).await?;
        }
        Ok(addr)
    }

    /// Reads bytes of a file at an offset; up to `end` more are read from there next.
    pub(super) async fn fill(
        &mut self,
        file: u32,
        offset: u64,
        mut buf: &mut [u8],
        end: u64,
        coming: &mut impl FnMut(),
    ) -> Result<(), WebError> {
        let gap = if self.seed.knows_no_ranges() { u64::MAX } else { GAP };
        let goes_on = |body: &Body| {
            body.file == file && body.at <= offset && offset - body.at <= gap && offset < body.end
        };
        if !self.body.as_ref().is_some_and(goes_on) {
            self.open(file, offset, end.max(offset + buf.len() as u64)).await?;
        }
        let mut told = Instant::now();
        while !buf.is_empty() {
            let Some(body) = &mut self.body else { return Err(WebError::Stopping) };
            if body.rest.is_empty() {
                match body.more().await {
                    Ok(()) => {}
                    Err(error) => {
                        self.body = None;
                        return Err(error);
                    }
                }
            }
            if told.elapsed() >= COMING {
                told = Instant::now();
                coming();
            }
            let skip = offset.saturating_sub(body.at).min(body.rest.len() as u64) as usize;
            body.rest.advance(skip);
            body.at += skip as u64;
            if self.seed.knows_no_ranges() && !self.seed.may_drop(skip as u64) {
                return Err(WebError::NoRanges { url: body.url.to_string() });
            }
            if body.at < offset {
                continue;
            }
            let len = body.rest.len().min(buf.len());
            let (part, left) = buf.split_at_mut(len);
            body.rest.copy_to_slice(part);
            body.at += len as u64;
            buf = left;
        }
        self.close_read().await;
        Ok(())
    }

    /// Keeps the connection of a body that has been read to its end.
    async fn close_read(&mut self) {
        let Some(mut body) = self.body.take_if(|body| body.at >= body.end && body.rest.is_empty()) else {
            return;
        };
        // The end of the body must be seen, or no request can follow.
        let over = matches!(body.answer.next(&body.url).await, Ok(None));
        if over && self.kept.len() < KEPT {
            self.kept.push(body.connection);
        }
    }

    /// Asks for a part of a file.
    async fn open(&mut self, file: u32, offset: u64, end: u64) -> Result<(), WebError> {
        self.body = None;
        let known = self.found.as_ref().filter(|(of, _)| *of == file).map(|(_, url)| url.clone());
        let redirected = known.is_some();
        let url = match known {
            Some(url) => url,
            None => self.url(file)?,
        };
        match self.follow(file, url, redirected, offset..end).await {
            // The target of a redirect may be valid for a while only.
            Err(WebError::Missing { .. }) if redirected => {
                self.found = None;
                let url = self.url(file)?;
                self.follow(file, url, false, offset..end).await
            }
            other => other,
        }
    }

    fn url(&self, file: u32) -> Result<TrackerUrl, WebError> {
        let text = self.shared.manifest.web_url(&self.seed.url, file).ok_or(WebError::Stopping)?;
        let url = TrackerUrl::parse(&text).map_err(|e| wrong(&text, &unusable(&e)))?;
        match url.scheme() {
            Scheme::Http | Scheme::Https => Ok(url),
            Scheme::Udp => Err(wrong(&text, "not an HTTP URL")),
        }
    }

    /// `moved`: the URL is where a redirect led to before.
    async fn follow(
        &mut self,
        file: u32,
        url: TrackerUrl,
        moved: bool,
        bytes: Range<u64>,
    ) -> Result<(), WebError> {
        let Range { start: offset, end } = bytes;
        let mut at = url;
        for hop in 0..=REDIRECTS {
            let (answer, connection) = self.ask(&at, offset..end, hop > 0 || moved).await?;
            if let Some(location) = &answer.location {
                at = redirect(&at, location)?;
                continue;
            }
            if hop > 0 {
                self.found = Some((file, at.clone()));
            }
            let (from, to) = self.judge(file, &at, &answer, offset, end)?;
            let rest = Bytes::new();
            self.body = Some(Body { file, url: at, at: from, end: to, answer, rest, connection });
            return Ok(());
        }
        Err(wrong(at.as_str(), "more than five redirects in a row"))
    }

    /// One request. A kept connection may have been closed meanwhile: then another is opened.
    async fn ask(
        &mut self,
        url: &TrackerUrl,
        bytes: Range<u64>,
        redirected: bool,
    ) -> Result<(Answer, Connection), WebError> {
        if let Some(place) = self.kept.iter().position(|c| c.reaches(url)) {
            let mut connection = self.kept.swap_remove(place);
            if let Ok(answer) = connection.get(url, bytes.clone()).await {
                return Ok((answer, connection));
            }
        }
        self.kept.clear();
        let mut addrs = url.resolve().await?;
        if redirected {
            let least = self.reach.unwrap_or(Reach::World);
            addrs.retain(|addr| Reach::of(addr.ip()) >= least);
            if addrs.is_empty() {
                return Err(wrong(
                    url.as_str(),
                    "redirect from a public address to this host or a private network not followed",
                ));
            }
        }
        let mut connection = Connection::open(url, &addrs, |addr| self.shared.source_for(addr.ip())).await?;
        if !redirected {
            self.reach = Some(Reach::of(connection.addr().ip()));
        }
        let answer = connection.get(url, bytes).await?;
        Ok((answer, connection))
    }

    /// Which bytes of the file the answer brings.
    fn judge(
        &self,
        file: u32,
        url: &TrackerUrl,
        answer: &Answer,
        offset: u64,
        end: u64,
    ) -> Result<(u64, u64), WebError> {
        let text = || url.to_string();
        let len = self.shared.manifest.file(file).map_or(0, |f| f.len());
        let other = |n: u64| {
            wrong(url.as_str(), &format!("the file has {n} bytes on the server and {len} in the manifest"))
        };
        let range = answer.range.as_deref().and_then(|text| text.parse::<ContentRange>().ok());
        // Some servers give the encoding for files that are compressed themselves, and send them as they are.
        let is_itself = match answer.status {
            206 => range.as_ref().is_some_and(|range| range.total == Some(len)),
            _ => answer.length == Some(len),
        };
        match answer.status {
            200 | 206 if answer.encoded && !is_itself => {
                Err(wrong(url.as_str(), "the server sent compressed data, which was not requested"))
            }
            206 => {
                let Some(range) = range else {
                    return Err(wrong(url.as_str(), "status 206 without a valid Content-Range"));
                };
                if range.total.is_some_and(|total| total != len) {
                    return Err(other(range.total.unwrap_or_default()));
                }
                if range.first != offset || range.last >= end.max(1) {
                    let said = format!(
                        "the server sent bytes {}-{} instead of {offset}-{}",
                        range.first,
                        range.last,
                        end - 1
                    );
                    return Err(wrong(url.as_str(), &said));
                }
                Ok((offset, range.last + 1))
            }
            200 => {
                if let Some(there) = answer.length.filter(|there| *there != len) {
                    return Err(other(there));
                }
                let whole = offset == 0 && end == len;
                if !whole && self.seed.ignores_ranges() && offset > 0 {
                    return Err(wrong(url.as_str(), "the server ignores ranges (status 200)"));
                }
                Ok((0, len))
            }
            status @ (401 | 402 | 403 | 404 | 405 | 410 | 414 | 416 | 451) => {
                Err(WebError::Missing { file, url: text(), status })
            }
            status => Err(WebError::Busy { url: text(), status, after: answer.retry_after }),
        }
    }
}

impl Body {
    /// Waits for more of it.
    async fn more(&mut self) -> Result<(), WebError> {
        let left = self.end - self.at;
        match self.answer.next(&self.url).await? {
            Some(bytes) => {
                // Data beyond the end is not read.
                let len = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                self.rest = bytes.slice(..len);
                if len == 0 { Err(self.short()) } else { Ok(()) }
            }
            None => Err(self.short()),
        }
    }

    fn short(&self) -> WebError {
        let why = format!("the reply ended {} bytes early", self.end - self.at);
        wrong(self.url.as_str(), &why)
    }
}

/// Where a redirect leads to.
fn redirect(from: &TrackerUrl, location: &str) -> Result<TrackerUrl, WebError> {
    let refuse = |why: &str| wrong(from.as_str(), &format!("redirect not followed: {why}"));
    // As browsers do: without the fragment, and escaped where needed.
    let whole = clean_web_seed(location.as_bytes());
    let location = whole.as_deref().unwrap_or(location).split('#').next().unwrap_or_default();
    let to = from.join(location).map_err(|e| refuse(&unusable(&e)))?;
    match (from.scheme(), to.scheme()) {
        (_, Scheme::Udp) => Err(refuse("it changes the protocol")),
        (Scheme::Https, Scheme::Http) => Err(refuse("it leaves TLS")),
        _ => Ok(to),
    }
}

fn unusable(error: &tidecast_discovery::Error) -> String {
    match error {
        tidecast_discovery::Error::Url { why, .. } => format!("invalid URL: {why}"),
        other => other.to_string(),
    }
}

fn wrong(url: &str, why: &str) -> WebError {
    WebError::Wrong { url: url.to_owned(), why: why.to_owned() }
}
