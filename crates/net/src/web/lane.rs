//! One request at a time to a web seed: takes a run, fetches its blocks in order, and hands each to the settling threads.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidecast_swarm::{Block, Event, PeerId};
use tokio::sync::watch;
use tokio::time::timeout;

use super::source::Source;
use super::work::Work;
use crate::error::WebError;
use crate::input::Input;
use crate::last_payload::LastPayload;
use crate::pool::Buffer;
use crate::report::Notice;
use crate::shared::Shared;
use crate::web_seed::Seed;

/// A block must come within this time; else a server that sends a byte now and then would never time out. Other
/// sources are asked long before.
const BLOCK_MOST: Duration = Duration::from_mins(10);

/// An answer from the start of a file is kept open for this long, though nothing is asked for.
const LINGER: Duration = Duration::from_millis(500);

/// See the head of the file.
pub(super) struct Lane {
    pub(super) shared: Arc<Shared>,
    pub(super) seed: Arc<Seed>,
    pub(super) work: Arc<Mutex<Work>>,
    pub(super) peer: PeerId,
    pub(super) number: usize,
    pub(super) last_payload: LastPayload,
}

impl Lane {
    /// Fetches until something fails that concerns all of the server.
    pub(super) async fn run(self, mut source: Source, mut news: watch::Receiver<()>) -> Result<(), WebError> {
        loop {
            let from_start = self.seed.knows_no_ranges();
            // One request from the start of a file brings all that is asked for.
            let idle = from_start && self.number > 0;
            let follows = |a: &Block, b: &Block| self.follows(a, b);
            if idle || !self.work.lock().take(self.number, from_start, follows) {
                let wait = if from_start { LINGER } else { Duration::ZERO };
                let told = match timeout(wait, news.changed()).await {
                    Ok(told) => told,
                    Err(_) => {
                        source.rest();
                        news.changed().await
                    }
                };
                told.map_err(|_| WebError::Stopping)?;
                continue;
            }
            while let Some(block) = { self.work.lock().next(self.number) } {
                match self.fetch(&mut source, block).await {
                    Ok(()) => {}
                    Err(WebError::Stopping) => return Err(WebError::Stopping),
                    Err(error) => {
                        self.excuse(error).await?;
                        self.work.lock().give_back(self.number, block, |piece| self.seed.has(piece));
                    }
                }
            }
        }
    }

    fn follows(&self, a: &Block, b: &Block) -> bool {
        let goes_on = a.piece == b.piece && a.begin + a.len == b.begin;
        let end = a.begin + a.len == self.shared.manifest.piece_len(a.piece);
        goes_on || end && a.piece + 1 == b.piece && b.begin == 0
    }

    /// A file that a server lacks costs it those pieces only.
    async fn excuse(&self, error: WebError) -> Result<(), WebError> {
        let manifest = &self.shared.manifest;
        let WebError::Missing { file, .. } = &error else { return Err(error) };
        self.seed.misses(*file, &error)?;
        let doubtful = manifest.file_pieces(*file);
        tell(&self.shared, &self.seed, &error).await;
        let (peer, inbox) = (self.peer, &self.shared.inbox);
        for piece in doubtful.filter(|piece| !self.seed.has(*piece)) {
            let lost = Input::Event(Event::HasNot { peer, piece });
            inbox.send(lost).await.map_err(|_| WebError::Stopping)?;
        }
        Ok(())
    }

    /// Takes one block into a buffer, and on to the settling threads.
    async fn fetch(&self, source: &mut Source, block: Block) -> Result<(), WebError> {
        let Shared { pool, throttle, settler, inbox, .. } = &*self.shared;
        let mut data = pool.get().await.ok_or(WebError::Stopping)?;
        if let Some(throttle) = throttle {
            throttle.receive(u64::from(block.len)).await;
        }
        let what = || self.seed.url.clone();
        let late =
            |_| WebError::Wrong { url: what(), why: "a block was not complete after ten minutes".into() };
        timeout(BLOCK_MOST, self.fill(source, block, &mut data)).await.map_err(late)??;
        let slot = settler.slot().await.ok_or(WebError::Stopping)?;
        let peer = self.peer;
        let heard = inbox.send(Input::Event(Event::Received { peer, block })).await;
        heard.map_err(|_| WebError::Stopping)?;
        // No wait from here on: the engine knows of the block, so it must get its verdict.
        self.seed.came(block.len);
        self.last_payload.came();
        settler.block(slot, peer, block, data);
        Ok(())
    }

    async fn fill(&self, source: &mut Source, block: Block, data: &mut Buffer) -> Result<(), WebError> {
        let manifest = &self.shared.manifest;
        let (peer, inbox) = (self.peer, &self.shared.inbox);
        // If the engine is behind, it is notified the next time.
        let mut coming = || {
            self.last_payload.came();
            drop(inbox.try_send(Input::Event(Event::Coming { peer })));
        };
        let mut at = 0;
        for span in manifest.spans(block.piece, block.begin, block.len) {
            let end = at + span.len as usize;
            let Some(part) = data.get_mut(at..end) else { return Err(WebError::Stopping) };
            at = end;
            if span.pad {
                part.fill(0);
                continue;
            }
            let ahead = self.ahead(block, span.file, span.offset);
            source.fill(span.file, span.offset, part, ahead, &mut coming).await?;
        }
        Ok(())
    }

    /// The end of the contiguous part of the run in this file from an offset.
    fn ahead(&self, block: Block, file: u32, offset: u64) -> u64 {
        let manifest = &self.shared.manifest;
        let work = self.work.lock();
        let blocks = std::iter::once(block).chain(work.ahead(self.number));
        let mut end = offset;
        for span in blocks.flat_map(|b| manifest.spans(b.piece, b.begin, b.len)).filter(|span| !span.pad) {
            let begins = span.file == file && span.offset <= end;
            match (begins, end > offset) {
                (true, _) => end = end.max(span.offset + u64::from(span.len)),
                (false, true) => break,
                (false, false) => {}
            }
        }
        end
    }
}

/// Reports why a web seed sends nothing, or not all.
pub(super) async fn tell(shared: &Shared, seed: &Seed, error: &WebError) {
    tracing::debug!(url = seed.url, %error, "web seed");
    if !matches!(error, WebError::Stopping) {
        let notice = Notice::WebSeed { url: seed.url.clone(), why: error.to_string() };
        let _ = shared.inbox.send(Input::Notice(notice)).await;
    }
}
