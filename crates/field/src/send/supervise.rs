//! A sending from start to end: the events that it reports, and the result when receivers do not accept it.

use tidecast_event::field::send::{News, Progress as Now, Sent, Started};
use tidecast_text::count;

use super::source::Source;
use super::{BlackHole, Error, Options, Progress, Receiver, ReceiverState, run};
use crate::packet::Packing;
use crate::update::Update;

/// Sends a source as [`run`] does, until it is over or `stay` returns false; `tell` is called with events.
///
/// # Errors
/// As [`run`]; it was stopped before the last step ([`Error::Stopped`]), or receivers have not taken it ([`Error::Missed`]).
pub fn supervise(
    source: &mut dyn Source,
    options: &Options,
    stay: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Update<Started, News>),
) -> Result<Sent, Error> {
    let (shape, steps, name) = (source.shape(), source.steps(), source.name().to_owned());
    if let Some(steps) = steps.filter(|steps| options.first >= *steps) {
        return Err(Error::First { name, steps: count(steps, "step"), first: options.first });
    }
    let (nx, ny, nz) = shape.sides();
    tell(Update::Started(Started {
        command: "field send",
        name: name.clone(),
        shape: [nx, ny, nz],
        steps,
        streams: options.streams_for(shape),
        to: options.to.clone(),
        rate: options.rate,
        asked: options.streams,
    }));
    let end = options.count.map(|count| options.first.saturating_add(count));
    if let Some((all, end)) = steps.zip(end).filter(|(all, end)| end > all) {
        let (all, first) = (count(all, "step"), options.first);
        tell(Update::Warning(format!("{name} has only {all}; --steps {first}:{end} ends there")));
    }
    let (mut watch, notes) = (Watch::default(), source.notes());
    let last = run(source, options, stay, &mut |now| {
        let warnings = watch.warnings(now).into_iter().chain(notes.take());
        warnings.for_each(|text| tell(Update::Warning(text)));
        tell(Update::News(News::Progress(watch.progress(now))));
    });
    notes.take().into_iter().for_each(|text| tell(Update::Warning(text)));
    let last = last?;
    let goes_on = !options.again && options.sync.is_none();
    let sent = sent(&last, options.rate);
    if steps.is_none() && stay() && goes_on && options.count.is_some_and(|asked| last.steps < asked) {
        let steps = count(last.steps, "step");
        tell(Update::Warning(format!("{name} ended after {steps}, before the end of --steps")));
    }
    // An endless source is ended so; one with an end is interrupted.
    if !stay() && goes_on && steps.is_some() {
        return Err(Error::Stopped(Box::new(sent)));
    }
    match missed(&last.receivers, options) {
        Some((what, refused)) => Err(Error::Missed { what, refused, sent: Box::new(sent) }),
        None => Ok(sent),
    }
}

fn sent(last: &Progress, asked: Option<u64>) -> Sent {
    Sent {
        steps: last.steps,
        bytes: last.bytes,
        packets: last.packets,
        sending_seconds: last.seconds,
        rate: (last.bytes as f64 * 8.0 / last.seconds.max(1e-9)).round(),
        asked,
        received: last.received,
        lost: last.lost,
        loss: last.loss(),
        datagram: last.datagram,
        accepted: last.accepted,
        streams: last.streams,
    }
}

/// Data that receivers did not accept, and whether one has refused it.
fn missed(receivers: &[Receiver], options: &Options) -> Option<(String, bool)> {
    // The paper's own receivers send no reports.
    let silent = options.key.is_none() && options.packing == Packing::Xyz;
    let missed = |one: &&Receiver| {
        one.fate != ReceiverState::Accepted && !(silent && one.fate == ReceiverState::NoAnswer)
    };
    let missed: Vec<_> = receivers.iter().filter(missed).collect();
    let worst = missed.iter().map(|one| one.fate).max()?;
    let how = match options.key {
        Some(_) => "the receiver is not running, is unreachable, or uses another key or --plain",
        None => "the receiver is not running, is unreachable, or requires a key",
    };
    let say = |Receiver { at, fate, streams }: &Receiver| match fate {
        ReceiverState::Refused => format!(
            "the receiver at {at} refused the stream and logged the reason; it may have fewer --streams, no memory for the volume, or another sender"
        ),
        ReceiverState::Disconnected => format!("the receiver at {at} disconnected before the end"),
        _ => format!("no receiver answered at {at} ({}): {how}", count(*streams as u64, "stream")),
    };
    let all: Vec<_> = missed.into_iter().map(say).collect();
    Some((all.join("; "), worst == ReceiverState::Refused))
}

/// State of the reports so far.
#[derive(Default)]
struct Watch {
    /// Reports since receivers were asked.
    reports: u32,
    absent: bool,
    refused: bool,
    black_hole: Option<BlackHole>,
    last: (f64, u64),
}

impl Watch {
    /// New warnings.
    fn warnings(&mut self, now: &Progress) -> Vec<String> {
        let mut warnings: Vec<String> = self.black_hole_warning(now).into_iter().collect();
        self.reports += 1;
        let lacks = now.accepted < now.streams;
        // In the first second receivers are just being asked.
        if self.reports > 4 && now.seconds > 0.0 && lacks && !std::mem::replace(&mut self.absent, true) {
            let here = if now.accepted == 0 { "none".into() } else { now.accepted.to_string() };
            warnings.push(format!("{here} of {} streams have a receiver; sending continues", now.streams));
        }
        self.absent &= lacks;
        if now.refused > 0 && !std::mem::replace(&mut self.refused, true) {
            warnings.push(
                "a receiver refused this session; its volume may have another size, or another sender may be using it"
                    .into(),
            );
        }
        warnings
    }

    /// Once of each size that it does not arrive.
    fn black_hole_warning(&mut self, now: &Progress) -> Option<String> {
        let hole = now.black_hole.filter(|hole| self.black_hole != Some(*hole))?;
        self.black_hole = Some(hole);
        // Receivers are asked again.
        self.reports = 0;
        let (size, to, smaller) = (hole.size, hole.to, hole.smaller()?);
        Some(format!(
            "datagrams of {size} bytes do not arrive at {to}, smaller ones do: a link on the path has a smaller MTU than this host and drops \
             the ICMP messages about it; sending at most {smaller} bytes"
        ))
    }

    fn progress(&mut self, now: &Progress) -> Now {
        let (seconds, bytes) = std::mem::replace(&mut self.last, (now.seconds, now.bytes));
        let rate = now.bytes.saturating_sub(bytes) as f64 * 8.0 / (now.seconds - seconds).max(1e-3);
        Now {
            step: now.step,
            batch: now.batch,
            steps: now.steps,
            bytes: now.bytes,
            packets: now.packets,
            rate: rate.round(),
            asked: now.rate,
            accepted: now.accepted,
            streams: now.streams,
            received: now.received,
            lost: now.lost,
            seconds: now.seconds,
            loss: now.loss(),
        }
    }
}
