//! The handle of an operation, and the thread that runs it.

use std::future::poll_fn;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidecast_event::{Context as _, Error, Event, Failed, NoNews, Progress, Stage, Warning, round};
use tidecast_metainfo::Manifest;
use tidecast_node::{Message, MessageSink, Rates, Stop, Stopper, read_manifest};

use crate::feed::{Feed, State};

/// An operation that runs, on threads of its own.
///
/// It begins with an event [`Started`](Event::Started) that has `S`, and returns `D`; some send
/// [`News`](Event::News) `N` of their own. Await it from any async runtime, or use the methods whose names
/// end in `_blocking` without one. Unread events need little memory: a progress event is replaced by the next
/// one, and beyond a few hundred warnings and news the rest is only counted.
///
/// Dropping the handle stops the operation, as [`stop`](Operation::stop) does.
pub struct Operation<S, D, N = NoNews> {
    feed: Arc<Feed<S, D, N>>,
    stopper: Stopper,
}

impl<S: Clone, D: Clone, N: Clone> Operation<S, D, N> {
    /// The next event; None after the last one, which is [`Done`](Event::Done) or [`Error`](Event::Error).
    pub async fn next(&mut self) -> Option<Event<S, D, N>> {
        poll_fn(|context| self.feed.poll(context, State::next)).await
    }

    /// As [`next`](Operation::next), for code that is not async.
    pub fn next_blocking(&mut self) -> Option<Event<S, D, N>> {
        self.feed.block(State::next)
    }

    /// As [`next_blocking`](Operation::next_blocking), but pending when nothing comes in that time.
    pub fn next_timeout(&mut self, wait: Duration) -> Poll<Option<Event<S, D, N>>> {
        self.feed.block_for(wait, State::next)
    }

    /// Waits until the work has begun: of [`share`](crate::share()) and [`seed`](crate::seed()), until others can connect.
    ///
    /// # Errors
    /// It ended before.
    pub async fn ready(&self) -> Result<S, Error> {
        poll_fn(|context| self.feed.poll(context, State::started)).await
    }

    /// As [`ready`](Operation::ready), for code that is not async.
    ///
    /// # Errors
    /// As there.
    pub fn ready_blocking(&self) -> Result<S, Error> {
        self.feed.block(State::started)
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// Why it failed. One that was stopped has the kind [`Interrupted`](crate::Kind::Interrupted), but for a seed, which ends so.
    pub async fn wait(self) -> Result<D, Error> {
        poll_fn(|context| self.feed.poll(context, State::end)).await
    }

    /// As [`wait`](Operation::wait), for code that is not async.
    ///
    /// # Errors
    /// As there.
    pub fn wait_blocking(self) -> Result<D, Error> {
        self.feed.block(State::end)
    }

    /// Warnings and news that were dropped because they were not read.
    pub fn lost(&self) -> u64 {
        self.feed.lost()
    }
}

impl<S, D, N> Operation<S, D, N> {
    /// Asks it to end cleanly, as Ctrl-C does in the program. Does not wait.
    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// A handle to stop it from elsewhere: a signal handler, a timer, another thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }
}

impl<S, D, N> Drop for Operation<S, D, N> {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

/// The work's side of an operation: it reports progress, and receives the request to stop.
pub(crate) struct Work<S, D, N = NoNews> {
    feed: Arc<Feed<S, D, N>>,
    pub(crate) stop: Stop,
    began: Instant,
    rates: Mutex<Rates>,
}

impl<S: Clone, D: Clone, N: Clone> Work<S, D, N> {
    /// The first event.
    pub(crate) fn started(&self, started: S) {
        self.feed.push(Event::Started(started));
    }

    /// Something that only this operation tells.
    pub(crate) fn news(&self, news: N) {
        self.feed.push(Event::News(news));
    }

    /// Reports a fault that does not end the work.
    pub(crate) fn warning(&self, text: impl Into<String>) {
        self.feed.push(Event::Warning(Warning::new(text)));
    }

    /// The events of an end of a field.
    pub(crate) fn update(&self, update: tidecast_field::Update<S, N>) {
        match update {
            tidecast_field::Update::Started(started) => self.started(started),
            tidecast_field::Update::Warning(text) => self.warning(text),
            tidecast_field::Update::News(news) => self.news(news),
        }
    }

    /// How far it is; time and rates are added.
    pub(crate) fn progress(&self, mut now: Progress) {
        now.seconds = self.seconds();
        self.rates.lock().note(Instant::now(), &mut now);
        self.feed.push(match now.stage {
            Stage::Check => Event::Check(now),
            _ => Event::Progress(now),
        });
    }

    /// Seconds since the start, to the millisecond.
    pub(crate) fn seconds(&self) -> f64 {
        round(self.began.elapsed().as_secs_f64())
    }

    /// Reads a manifest. Its file may be a pipe (`<(...)`) without a writer: a stop ends the wait for one.
    pub(crate) async fn manifest(&self, from: &Path) -> Result<Manifest, Error> {
        let from = from.to_owned();
        let reading = tokio::task::spawn_blocking(move || read_manifest(&from));
        tokio::select! {
            read = reading => read.context("a thread of Tidecast failed")?,
            () = self.stop.wait() => Err(Error::interrupted("interrupted")),
        }
    }

    fn end(&self, end: Result<D, Error>) {
        let last = match &end {
            Ok(done) => Event::Done(done.clone()),
            Err(error) => Event::Error(Failed::of(error, self.seconds())),
        };
        self.feed.end(last, end);
    }
}

impl<S: Clone, D: Clone, N: Clone> MessageSink for Work<S, D, N> {
    fn send(&self, message: Message) {
        self.feed.push(match message {
            Message::Warning(warning) => Event::Warning(warning),
            Message::Resumed(resumed) => Event::Resumed(resumed),
            Message::Phase(phase) => Event::Phase(phase),
        });
    }
}

/// Waiting callers get a result even if the thread panics.
struct EndOnDrop<S: Clone, D: Clone, N: Clone>(Rc<Work<S, D, N>>);

impl<S: Clone, D: Clone, N: Clone> Drop for EndOnDrop<S, D, N> {
    fn drop(&mut self) {
        self.0.end(Err(Error::fault("a thread of Tidecast failed")));
    }
}

/// Starts work on a runtime over `threads` (0: one for each core).
pub(crate) fn start<S, D, N>(
    threads: usize,
    work: impl AsyncFnOnce(&Work<S, D, N>) -> Result<D, Error> + Send + 'static,
) -> Operation<S, D, N>
where
    S: Clone + Send + 'static,
    D: Clone + Send + 'static,
    N: Clone + Send + 'static,
{
    let (stopper, stop) = Stop::new();
    let feed = Arc::new(Feed::new());
    let operation = Operation { feed: feed.clone(), stopper };
    let (began, waiting) = (Instant::now(), feed.clone());
    let body = move || {
        // Rates are this thread's own, so all of it is made here.
        let own = Rc::new(Work { feed, stop, began, rates: Mutex::default() });
        let ends = EndOnDrop(own.clone());
        let end = block_on(threads, work(&own));
        own.end(end);
        drop(ends);
    };
    if let Err(error) = std::thread::Builder::new().name("tidecast".into()).spawn(body) {
        let error = Error::fault(error).context("cannot start threads");
        waiting.end(Event::Error(Failed::of(&error, 0.0)), Err(error));
    }
    operation
}

fn block_on<T>(threads: usize, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let done = tidecast_net::block_on(threads, work);
    done.map_err(|error| Error::fault(error).context("cannot start threads"))?
}
