//! Runs a launcher: keeps its last output, and never lets it outlive the broadcast.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tidecast_event::bcast::Unreached;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};

use super::{Job, TICKET_VARIABLE};
use crate::unreached;

/// The number of lines of standard error that are kept, and the bytes of each.
const LINES: usize = 12;
const LINE: u64 = 400;
/// The wait for the rest of the output when a launcher has ended.
const DRAIN: Duration = Duration::from_millis(500);

/// The last lines that a launcher wrote to standard error.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputTail(Arc<Mutex<VecDeque<String>>>);

impl OutputTail {
    fn add(&self, line: String) {
        let mut lines = self.0.lock();
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The coordinator to which a worker could not connect, if the output reports that.
    pub(crate) fn unreached(&self) -> Option<Unreached> {
        self.0.lock().iter().find_map(|line| unreached::find(line))
    }

    /// The lines as one text.
    pub(crate) fn text(&self) -> String {
        self.0.lock().iter().cloned().collect::<Vec<_>>().join("; ")
    }
}

/// Starts a launcher and waits for its end; returns why it ended.
pub(crate) async fn run(job: &Job, ticket: &str, words: &OutputTail) -> String {
    let (program, arguments) = match job.argv.split_first() {
        Some((program, arguments)) => (program, arguments),
        None => return "no command to start".into(),
    };
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
    // Ctrl-C must reach only the coordinator, which stops the workers.
    command.process_group(0).kill_on_drop(true);
    if job.by_stdin {
        command.stdin(Stdio::piped());
    } else {
        command.stdin(Stdio::null()).env(TICKET_VARIABLE, ticket);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return tidecast_text::start_error(program, &error),
    };
    let group = Group(child.id());
    if let Some(mut stdin) = child.stdin.take() {
        // A launcher that does not read it reports its own error.
        let _ = stdin.write_all(format!("{ticket}\n").as_bytes()).await;
    }
    let reading = child.stderr.take().map(|stderr| tokio::spawn(read(stderr, words.clone())));
    let status = wait(&mut child).await;
    drop(group);
    if let Some(reading) = reading {
        let _ = tokio::time::timeout(DRAIN, reading).await;
    }
    match words.text() {
        said if said.is_empty() => format!("{program} ended ({status})"),
        said => format!("{said} ({program} ended: {status})"),
    }
}

async fn wait(child: &mut Child) -> String {
    match child.wait().await {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    }
}

/// Keeps the last lines of the output, of any length.
async fn read(stderr: ChildStderr, words: OutputTail) {
    let mut stderr = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match (&mut stderr).take(LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
                if !text.is_empty() {
                    words.add(text);
                }
            }
        }
    }
}

/// Kills a launcher and the processes that it started here, however the wait for it ends.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let pid = self.0.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn job(script: &str, by_stdin: bool) -> Job {
        let argv = ["sh", "-c", script].map(str::to_owned).into();
        Job { argv, hosts: vec![0], by_stdin, anywhere: true, list: None }
    }

    #[tokio::test]
    async fn last_words_are_kept() {
        let words = OutputTail::default();
        let script = "for i in $(seq 100); do echo line $i >&2; done; exit 7";
        let why = run(&job(script, true), "secret", &words).await;
        assert!(why.contains("line 100") && !why.contains("line 50") && why.contains('7'), "{why}");
    }

    #[tokio::test]
    async fn the_ticket_arrives_either_way() {
        let words = OutputTail::default();
        run(&job("read t; echo got $t >&2", true), "secret1", &words).await;
        run(&job("echo got $TIDECAST_GROUP >&2", false), "secret2", &words).await;
        assert_eq!(words.text(), "got secret1; got secret2");
    }

    #[tokio::test]
    async fn what_cannot_start_says_so() {
        let job = Job { argv: vec!["/no/such/program".into()], ..job("", true) };
        assert!(run(&job, "", &OutputTail::default()).await.contains("/no/such/program"));
    }

    #[tokio::test]
    async fn an_abandoned_launcher_dies_with_its_children() {
        let words = OutputTail::default();
        let job = job("sleep 1000 & echo $! >&2; wait", true);
        {
            let running = run(&job, "", &words);
            let mut running = std::pin::pin!(running);
            while words.text().is_empty() {
                tokio::select! {
                    _ = &mut running => {}
                    () = tokio::time::sleep(Duration::from_millis(5)) => {}
                }
            }
        }
        let child = Pid::from_raw(words.text().parse().unwrap()).unwrap();
        // It may be a zombie for a moment, until init takes it.
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.as_raw_nonzero()));
            stat.map_or(true, |s| s.contains(") Z "))
        };
        for _ in 0..1000 {
            if gone() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(gone());
    }
}
