use std::io::Write;
use std::time::{Duration, Instant};

use tidecast_node::{Message, MessageSink};
use tidecast_paths::Root;

use super::*;

struct Deaf;

impl MessageSink for Deaf {
    fn send(&self, _: Message) {}
}

/// Starts a shell as a keeper, and sends these interrupts, the first after the shell runs.
fn start_shell(script: &str, interrupts: usize) -> Result<(), Error> {
    let base = tempfile::tempdir().unwrap();
    let root = Root::open(&base.path().canonicalize().unwrap()).unwrap();
    let of = Home::within(&root, true, "0123456789abcdef".into()).unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let sender = std::thread::spawn(move || {
        for _ in 0..interrupts {
            std::thread::sleep(Duration::from_millis(300));
            writer.write_all(b".").unwrap();
        }
        writer
    });
    let messages = MessageSender::new(&Deaf);
    let start = Start {
        program: "/bin/sh".into(),
        arguments: ["-c", script].map(Into::into).to_vec(),
        secret: None,
        interrupts: Box::new(&reader),
        messages: &messages,
    };
    let launched = launch(&of, &start);
    drop(sender.join());
    launched
}

#[test]
fn a_second_interrupt_ends_a_start_that_the_first_does_not() {
    let begun = Instant::now();
    // As a server that waits for a disk: the signal changes nothing.
    let ended = start_shell("trap '' TERM; printf '{\"event\":'; exec sleep 60", 2);
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    assert!(begun.elapsed() < ENDING, "{:?}", begun.elapsed());
    assert_eq!(tidecast_event::Error::from(Error::Interrupted).kind(), Kind::Interrupted);
}

#[test]
fn an_interrupt_ends_a_start_and_is_its_error() {
    let ended = start_shell("exec sleep 60", 1);
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    let ended = start_shell("echo '{\"event\":\"started\"}'; exec sleep 60", 1);
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    let ended = start_shell("exit 1", 0);
    assert!(matches!(ended, Err(Error::NotStarted(_))), "{ended:?}");
    start_shell("echo '{\"event\":\"started\"}'; echo; printf '{\"event\":'", 0).unwrap();
    let ended = start_shell("printf '{\"event\":\"error\",\"code\":2,\"message\":\"bad\"}\\n'; exit 2", 0);
    assert!(
        matches!(&ended, Err(Error::Start { kind: Kind::Usage, message }) if message == "bad"),
        "{ended:?}"
    );
}

#[test]
fn output_comes_by_lines_and_the_time_is_bounded() {
    let (pipe, mut writer) = std::io::pipe().unwrap();
    let (interrupts, interrupt) = std::io::pipe().unwrap();
    let mut output = Output::new(pipe);
    let soon = || Some(Instant::now() + Duration::from_millis(50));
    writer.write_all(b"one\ntwo\nth").unwrap();
    assert_eq!(output.next(interrupts.as_fd(), None).unwrap(), Next::Line(b"one\n".into()));
    assert_eq!(output.next(interrupts.as_fd(), None).unwrap(), Next::Line(b"two\n".into()));
    assert_eq!(output.next(interrupts.as_fd(), soon()).unwrap(), Next::Late);
    // A closed pipe never interrupts, and does not keep the output from being read.
    drop(interrupt);
    assert_eq!(output.next(interrupts.as_fd(), soon()).unwrap(), Next::Late);
    writer.write_all(b"ree\n").unwrap();
    assert_eq!(output.next(interrupts.as_fd(), None).unwrap(), Next::Line(b"three\n".into()));
    drop(writer);
    assert_eq!(output.next(interrupts.as_fd(), None).unwrap(), Next::End);
}
