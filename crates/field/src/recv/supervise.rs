//! A receiver from start to end: when it ends, and the events that it reports.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tidecast_event::field::receive::{News, Progress as Now, Received, Session, Started, Total};

use super::{Error, Event, Options, Progress, Receiver};
use crate::update::Update;

/// Interval of the checks for progress and for the end.
const LOOK: Duration = Duration::from_millis(100);
/// Between two reports of progress.
const REPORTS: Duration = Duration::from_millis(250);

/// Receives until `stay` returns false, or until the number of steps in the options is over; `tell` is called
/// with events.
///
/// # Errors
/// As [`Receiver::start`]; not all that came could be recorded ([`Error::Unrecorded`]).
pub fn supervise(
    options: &Options,
    stay: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Update<Started, News>),
) -> Result<Received, Error> {
    let mut receiver = Receiver::start(options)?;
    tell(Update::Started(started(options, receiver.addresses())));
    let began = Instant::now();
    let mut watch = Watch { began, told: None, steps: 0, left: options.steps, loss: 0.0, rates: None };
    while !watch.is_over() && stay() {
        match receiver.events().recv_timeout(LOOK) {
            Ok(event) => tell(watch.on_event(event)),
            Err(_) => {
                receiver.progress().and_then(|now| watch.progress(now)).into_iter().for_each(&mut *tell)
            }
        }
    }
    receiver.end();
    while let (false, Ok(event)) = (watch.is_over(), receiver.events().try_recv()) {
        tell(watch.on_event(event));
    }
    let received = received(&receiver, watch.steps, options);
    match receiver.unrecorded() {
        Some(why) => Err(Error::Unrecorded { why, received: Box::new(received) }),
        None => Ok(received),
    }
}

fn started(options: &Options, addresses: &[SocketAddr]) -> Started {
    let address = addresses.first().copied().unwrap_or(options.listen);
    let key_file =
        options.secret.as_ref().map(|_| options.key_file.clone().unwrap_or_else(|| "KEYFILE".into()));
    let how = match &key_file {
        Some(file) => format!("--key @{}", tidecast_text::quote(&file.display().to_string())),
        None => "--plain".to_owned(),
    };
    let host = match address.ip() {
        ip if ip.is_unspecified() => rustix::system::uname().nodename().to_string_lossy().into_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    let (port, streams) = (address.port(), options.streams);
    let send = format!("tidecast field send SOURCE --to {host}:{port} --streams {streams} {how}");
    Started {
        command: "field recv",
        address,
        ports: addresses.iter().map(SocketAddr::port).collect(),
        streams,
        name: options.name.clone(),
        send: options.foreign.is_none().then_some(send),
        key_file,
    }
}

fn received(receiver: &Receiver, steps: u64, options: &Options) -> Received {
    let streams = receiver.totals();
    let sum = |of: fn(&Total) -> u64| streams.iter().map(of).sum::<u64>();
    let (packets, lost, recovered) = (sum(|t| t.packets), sum(|t| t.lost), sum(|t| t.recovered));
    let (recorded, skipped) = options.record.as_ref().map(|_| receiver.recorded()).unzip();
    let (record, host_limits) = (options.record.clone(), Vec::new());
    Received { steps, packets, lost, recovered, streams, recorded, skipped, host_limits, record }
}

/// State of the reports so far.
struct Watch {
    began: Instant,
    /// When progress was told last.
    told: Option<Instant>,
    steps: u64,
    left: Option<u64>,
    /// The share of lost packets of the last step.
    loss: f64,
    /// When bytes were counted, how many there were, and the rate before that, bits per second.
    rates: Option<(Instant, u64, u64)>,
}

impl Watch {
    fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    fn on_event(&mut self, event: Event) -> Update<Started, News> {
        match event {
            Event::Step(closed) => {
                self.steps += 1;
                self.left = self.left.map(|left| left.saturating_sub(1));
                self.loss = (1.0 - closed.received as f64 / closed.expected.max(1) as f64).max(0.0);
                Update::News(News::Step(closed.into()))
            }
            Event::Session { title, shape, streams, first, here, rate, file } => {
                let shape = shape.to_string();
                Update::News(News::Session(Session { title, shape, streams, first, here, rate, file }))
            }
            Event::Note(text) => Update::Warning(text),
        }
    }

    fn progress(&mut self, now: Progress) -> Option<Update<Started, News>> {
        let rate = self.rate(now.bytes);
        if self.told.is_some_and(|told| told.elapsed() < REPORTS) {
            return None;
        }
        self.told = Some(Instant::now());
        Some(Update::News(News::Progress(Now {
            seconds: self.began.elapsed().as_secs_f64(),
            stage: "recv",
            done: now.filled,
            of: now.units,
            received: now.bytes,
            step: now.step,
            loss: self.loss,
            rate,
        })))
    }

    /// Bits a second over the last second or so.
    fn rate(&mut self, bytes: u64) -> u64 {
        let now = Instant::now();
        let (since, before, rate) = *self.rates.get_or_insert((now, bytes, 0));
        let seconds = (now - since).as_secs_f64();
        if seconds < 1.0 {
            return rate;
        }
        let rate = (bytes.saturating_sub(before) as f64 * 8.0 / seconds) as u64;
        self.rates = Some((now, bytes, rate));
        rate
    }
}
