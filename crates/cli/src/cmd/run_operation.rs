//! Runs an operation of the library as a command: prints its events, and stops it on Ctrl-C and SIGTERM.

use tidecast::event::NoNews;
use tidecast::{Event, Operation};
use tidecast_node::{Message, MessageSink as _};
use tokio::sync::watch;

use super::Context;
use crate::failure::Failure;
use crate::report::{Reporter, fields_of};
use crate::stop::{Stop, block_on, hangups};

/// Runs a command that serves others: SIGHUP does not end it.
pub(crate) fn serve<S: Clone + serde::Serialize, D: Clone>(
    begin: impl FnOnce() -> Operation<S, D>,
    reporter: &mut Reporter,
    started: impl FnMut(&S, &Reporter),
) -> Result<D, Failure> {
    serve_with_news(begin, reporter, started, |news: NoNews, _| match news {})
}

/// As [`serve`], for an operation with its own kind of news.
pub(crate) fn serve_with_news<S: Clone + serde::Serialize, D: Clone, N: Clone>(
    begin: impl FnOnce() -> Operation<S, D, N>,
    reporter: &mut Reporter,
    started: impl FnMut(&S, &Reporter),
    news: impl FnMut(N, &mut Reporter),
) -> Result<D, Failure> {
    try_run(|| hangups().map(|_| begin()), reporter, started, news)
}

/// As [`serve`], for an operation that receives the count of SIGHUPs.
pub(crate) fn daemon<S: Clone + serde::Serialize, D: Clone>(
    begin: impl FnOnce(watch::Receiver<u64>) -> Operation<S, D>,
    reporter: &mut Reporter,
    started: impl FnMut(&S, &Reporter),
) -> Result<D, Failure> {
    try_run(|| hangups().map(begin), reporter, started, |news: NoNews, _| match news {})
}

/// Runs a command that ends when its work is done.
pub(crate) fn run<S: Clone + serde::Serialize, D: Clone>(
    begin: impl FnOnce() -> Operation<S, D>,
    reporter: &mut Reporter,
    started: impl FnMut(&S, &Reporter),
) -> Result<D, Failure> {
    run_with_news(begin, reporter, started, |news: NoNews, _| match news {})
}

/// As [`run`], for an operation with its own kind of news.
pub(crate) fn run_with_news<S: Clone + serde::Serialize, D: Clone, N: Clone>(
    begin: impl FnOnce() -> Operation<S, D, N>,
    reporter: &mut Reporter,
    started: impl FnMut(&S, &Reporter),
    news: impl FnMut(N, &mut Reporter),
) -> Result<D, Failure> {
    try_run(|| Ok(begin()), reporter, started, news)
}

fn try_run<S: Clone + serde::Serialize, D: Clone, N: Clone>(
    begin: impl FnOnce() -> anyhow::Result<Operation<S, D, N>>,
    reporter: &mut Reporter,
    started: impl FnMut(&S, &Reporter),
    news: impl FnMut(N, &mut Reporter),
) -> Result<D, Failure> {
    block_on(1, async {
        let stop = Stop::listen()?;
        run_until(begin()?, &stop, reporter, started, news).await
    })
}

/// Prints an operation's events until it ends; `started` prints more when it has begun.
pub(crate) async fn run_until<S: Clone + serde::Serialize, D: Clone, N: Clone>(
    mut operation: Operation<S, D, N>,
    stop: &Stop,
    reporter: &mut Reporter,
    mut started: impl FnMut(&S, &Reporter),
    mut news: impl FnMut(N, &mut Reporter),
) -> Result<D, Failure> {
    let mut asked = false;
    loop {
        let event = tokio::select! {
            event = operation.next() => event,
            () = stop.wait(), if !asked => {
                asked = true;
                operation.stop();
                continue;
            }
        };
        match event {
            Some(Event::Started(of)) => {
                // Without the field `command` it is the answer of a query, which is printed as the result.
                let fields = fields_of(&of);
                if fields.contains_key("command") {
                    reporter.began(fields);
                }
                started(&of, reporter);
            }
            Some(Event::Progress(now) | Event::Check(now)) => reporter.advance(&now),
            Some(Event::Warning(warning)) => reporter.send(Message::Warning(warning)),
            Some(Event::Resumed(resumed)) => reporter.send(Message::Resumed(resumed)),
            Some(Event::Phase(phase)) => reporter.send(Message::Phase(phase)),
            Some(Event::News(of)) => news(of, reporter),
            // The result is printed by the caller, after all events.
            Some(_) => {}
            None => break,
        }
    }
    reporter.clear();
    Ok(operation.wait().await?)
}

impl Context<'_> {
    /// Threads for an operation; `None`: one for each core.
    pub(crate) fn threads_for_operation(&self) -> Option<usize> {
        Some(self.threads()).filter(|threads| *threads > 0)
    }
}
