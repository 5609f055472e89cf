//! The output of programs of batch systems.

use std::io::{self, Read as _};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The maximum output of a program, and its timeout.
const MAX_OUTPUT: u64 = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

/// The standard output of a program of a batch system, if it succeeds in time.
///
/// # Errors
/// It cannot be started, fails, or takes longer than 10 s.
pub fn program_output(words: &[String]) -> io::Result<String> {
    let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let until = Instant::now() + PATIENCE;
    let (tell, told) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        // The thread ends with the program, or is abandoned.
        thread::spawn(move || {
            let mut text = String::new();
            let read = out.take(MAX_OUTPUT).read_to_string(&mut text);
            let _ = tell.send(read.map(|_| text));
        });
    }
    let text = told.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return text,
            Some(status) => return Err(io::Error::other(format!("it failed with {status}"))),
            None if Instant::now() >= until => {
                child.kill()?;
                child.wait()?;
                return Err(io::ErrorKind::TimedOut.into());
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_program_prints_or_fails() {
        let run = |script: &str| program_output(&["sh", "-c", script].map(str::to_owned));
        assert_eq!(run("echo n[1-2]").unwrap(), "n[1-2]\n");
        assert!(run("echo n; exit 3").unwrap_err().to_string().contains('3'));
        assert!(program_output(&["/no/such/program".to_owned()]).is_err() && program_output(&[]).is_err());
    }
}
