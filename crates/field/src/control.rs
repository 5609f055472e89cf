//! Control messages: hello, report, bye, go. Each is one datagram, of one length, and ends in a tag unless the stream is plain.

use crate::geometry::{Order, Shape, Slab};
use crate::key::ControlKey;
use crate::packet::{Datagram, Error, MAX_DATAGRAM, Packing, VALUE, control_head};
use crate::parity;

/// The version of the format that this program speaks.
pub const VERSION: u16 = 1;
/// The most streams of a session.
pub const MAX_STREAMS: u32 = 4096;
/// Bytes of a name.
pub const NAME: usize = 64;

/// A control message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// A sender's hello on each stream: describes the session.
    Hello(Hello),
    /// The receiver's answer to a hello.
    Report(Report),
    /// From a sender: the session is over.
    Bye(Bye),
    /// From a controller to senders: the batch to send now.
    Go(Go),
}

/// The contents of a session, as announced on this stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Hello {
    /// This stream's number, of all.
    pub stream: u32,
    /// Streams in all.
    pub streams: u32,
    /// The first stream of this receiver.
    pub first: u32,
    /// How many this receiver has.
    pub here: u32,
    /// How values are packed.
    pub packing: Packing,
    /// Whether values and parity are encrypted: only with a key, and packed as [`Packing::Run`]. Else they have a tag if there is a key.
    pub encrypted: bool,
    /// In which order they come.
    pub order: Order,
    /// The session: a random number.
    pub session: u64,
    /// The challenge of the receiver's last report; 0 before there was one.
    pub challenge: u64,
    /// The whole volume.
    pub shape: Shape,
    /// Values in each packet of a slab but the last.
    pub values: u32,
    /// Number of the first step, of those that go round.
    pub first_step: u64,
    /// How many steps go round; never 0.
    pub steps: u64,
    /// The batch under way.
    pub batch: u32,
    /// Data packets in a block of parity, and parity packets for one.
    pub parity: Option<parity::Rate>,
    /// Bits a second, of datagrams, of all streams.
    pub rate: u64,
    /// Name of the field.
    pub name: String,
}

impl Hello {
    /// The slab of this stream. It cannot fail for a hello that was read.
    ///
    /// # Errors
    /// See [`Shape::slab`].
    pub fn slab(&self) -> Result<Slab, crate::geometry::Error> {
        self.shape.slab(self.stream, self.streams)
    }

    /// The number of the step that a batch sends.
    pub fn step(&self, batch: u32) -> u64 {
        self.first_step.saturating_add(u64::from(batch) % self.steps.max(1))
    }

    fn check(&self) -> Result<(), Error> {
        let streams = self.stream < self.streams && self.streams <= MAX_STREAMS;
        let here = self.first.checked_add(self.here).is_some_and(|behind| behind <= self.streams);
        if !streams || !here || !(self.first..self.first + self.here).contains(&self.stream) {
            return Err(Error::Field("stream"));
        }
        let widest = self.values as usize <= MAX_DATAGRAM / VALUE;
        if self.values == 0 || !widest || self.packing.datagram(self.values, false) > MAX_DATAGRAM {
            return Err(Error::Field("values in a packet"));
        }
        for stream in self.first..self.first + self.here {
            self.shape.slab(stream, self.streams).map_err(|_| Error::Field("shape"))?;
        }
        if self.steps == 0 {
            return Err(Error::Field("number of steps"));
        }
        let parity = self.parity.is_none_or(|rate| rate.is_possible(self.values as usize * VALUE));
        parity.then_some(()).ok_or(Error::Field("parity"))
    }
}

/// The receiver's progress in accepting a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// Not yet: the sender is to send the hello again with the challenge.
    NotYet,
    /// Values of this session are taken.
    Yes,
    /// It cannot be: the volume is too large, or a plain session is under way.
    Refused,
    /// The receiver, which has received values, ends: `batch` is the newest step that it has closed. Sent
    /// without a hello.
    Ended,
}

/// A receiver's answer to a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The hello's session.
    pub session: u64,
    /// To be returned in the next hello.
    pub challenge: u64,
    /// Whether the session is the one that counts.
    pub accepted: Accepted,
    /// The highest batch received; 0 before the first.
    pub batch: u32,
    /// Packets of this stream, of values and parity, received in this session.
    pub received: u64,
    /// Data packets of this stream lost, of the steps that are closed.
    pub lost: u64,
    /// Bytes of this stream received.
    pub bytes: u64,
}

/// The end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bye {
    /// Which one.
    pub session: u64,
    /// The challenge of the receiver's last report.
    pub challenge: u64,
}

/// A controller's word to senders: finished or not, go to this batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Go {
    /// When the controller began, nanoseconds since 1970: of two, the newer is heeded.
    pub token: u64,
    /// The batch to send now.
    pub batch: u32,
}

impl Message {
    /// Reads a whole datagram; with a key, only one with the right tag.
    ///
    /// # Errors
    /// It is not a control message, its tag is wrong, or a field is out of range.
    pub fn read(datagram: &[u8], key: Option<&ControlKey>) -> Result<Self, Error> {
        let bytes = match key {
            Some(key) => key.open(datagram).ok_or(Error::Field("tag"))?,
            None => datagram,
        };
        let Datagram::Control { kind, body } = Datagram::read(bytes)? else {
            return Err(Error::Field("kind"));
        };
        let mut fields = Fields(body);
        let message = match kind {
            1 => Self::Hello(hello(&mut fields)?),
            2 => Self::Report(report(&mut fields)?),
            3 => Self::Bye(Bye { session: fields.u64()?, challenge: fields.u64()? }),
            4 => Self::Go(Go { token: fields.u64()?, batch: fields.u32()? }),
            _ => return Err(Error::Field("kind")),
        };
        if key.is_none() && matches!(&message, Self::Hello(hello) if hello.encrypted) {
            return Err(Error::Field("packing"));
        }
        fields.0.is_empty().then_some(message).ok_or(Error::Length)
    }

    /// As a datagram, with a tag if there is a key.
    pub fn write(&self, key: Option<&ControlKey>) -> Vec<u8> {
        let (kind, body) = match self {
            Self::Hello(hello) => (1, write_hello(hello)),
            Self::Report(report) => (2, write_report(report)),
            Self::Bye(bye) => (3, [bye.session.to_le_bytes(), bye.challenge.to_le_bytes()].concat()),
            Self::Go(go) => (4, [&go.token.to_le_bytes()[..], &go.batch.to_le_bytes()].concat()),
        };
        let mut datagram = [&control_head(kind)[..], &body].concat();
        if let Some(key) = key {
            datagram.extend(key.tag(&datagram));
        }
        datagram
    }
}

fn hello(fields: &mut Fields<'_>) -> Result<Hello, Error> {
    if fields.u16()? != VERSION {
        return Err(Error::Field("version"));
    }
    let (stream, streams) = (fields.u16()?.into(), fields.u16()?.into());
    let (first, here) = (fields.u16()?.into(), fields.u16()?.into());
    let (packing, encrypted) = match fields.u8()? {
        0 => (Packing::Xyz, false),
        1 => (Packing::Run, false),
        2 => (Packing::Run, true),
        _ => return Err(Error::Field("packing")),
    };
    let order = match fields.u8()? {
        0 => Order::Zslab,
        1 => Order::Morton,
        _ => return Err(Error::Field("order")),
    };
    let (session, challenge) = (fields.u64()?, fields.u64()?);
    let shape = Shape::new(fields.u32()?, fields.u32()?, fields.u32()?).map_err(|_| Error::Field("shape"))?;
    let values = fields.u32()?;
    let (first_step, steps) = (fields.u64()?, fields.u64()?);
    let batch = fields.u32()?;
    let parity = match (fields.u32()?, fields.u32()?) {
        (0, _) => None,
        (data, parity) => Some(parity::Rate { data, parity }),
    };
    let rate = fields.u64()?;
    let name = fields.take::<NAME>()?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut name: String = String::from_utf8_lossy(name).chars().filter(|c| !c.is_control()).collect();
    // A byte that is not UTF-8 has become three.
    name.truncate(name.floor_char_boundary(NAME));
    let hello = Hello {
        stream,
        streams,
        first,
        here,
        packing,
        encrypted,
        order,
        session,
        challenge,
        shape,
        values,
        first_step,
        steps,
        batch,
        parity,
        rate,
        name,
    };
    hello.check().map(|()| hello)
}

fn write_hello(hello: &Hello) -> Vec<u8> {
    let mut to = VERSION.to_le_bytes().to_vec();
    for number in [hello.stream, hello.streams, hello.first, hello.here] {
        to.extend((number as u16).to_le_bytes());
    }
    to.push(match (hello.packing, hello.encrypted) {
        (Packing::Xyz, _) => 0,
        (Packing::Run, false) => 1,
        (Packing::Run, true) => 2,
    });
    to.push(match hello.order {
        Order::Zslab => 0,
        Order::Morton => 1,
    });
    to.extend(hello.session.to_le_bytes());
    to.extend(hello.challenge.to_le_bytes());
    let (nx, ny, nz) = hello.shape.sides();
    for number in [nx, ny, nz, hello.values] {
        to.extend(number.to_le_bytes());
    }
    to.extend(hello.first_step.to_le_bytes());
    to.extend(hello.steps.to_le_bytes());
    let parity = hello.parity.map_or((0, 0), |rate| (rate.data, rate.parity));
    for number in [hello.batch, parity.0, parity.1] {
        to.extend(number.to_le_bytes());
    }
    to.extend(hello.rate.to_le_bytes());
    to.extend(padded_name(&hello.name));
    to
}

/// A name as it is written: cut at a character, NUL-padded.
pub fn padded_name(name: &str) -> [u8; NAME] {
    let mut padded = [0; NAME];
    let name = &name.as_bytes()[..name.floor_char_boundary(NAME)];
    padded[..name.len()].copy_from_slice(name);
    padded
}

fn report(fields: &mut Fields<'_>) -> Result<Report, Error> {
    Ok(Report {
        session: fields.u64()?,
        challenge: fields.u64()?,
        accepted: match fields.u8()? {
            0 => Accepted::NotYet,
            1 => Accepted::Yes,
            2 => Accepted::Refused,
            3 => Accepted::Ended,
            _ => return Err(Error::Field("answer")),
        },
        batch: fields.u32()?,
        received: fields.u64()?,
        lost: fields.u64()?,
        bytes: fields.u64()?,
    })
}

fn write_report(report: &Report) -> Vec<u8> {
    let mut to = [report.session.to_le_bytes(), report.challenge.to_le_bytes()].concat();
    to.push(match report.accepted {
        Accepted::NotYet => 0,
        Accepted::Yes => 1,
        Accepted::Refused => 2,
        Accepted::Ended => 3,
    });
    to.extend(report.batch.to_le_bytes());
    for number in [report.received, report.lost, report.bytes] {
        to.extend(number.to_le_bytes());
    }
    to
}

/// Reads number after number.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], Error> {
        let (field, rest) = self.0.split_first_chunk().ok_or(Error::Short)?;
        self.0 = rest;
        Ok(field)
    }

    fn u8(&mut self) -> Result<u8, Error> {
        self.take().map(|bytes: &[u8; 1]| bytes[0])
    }

    fn u16(&mut self) -> Result<u16, Error> {
        self.take().map(|bytes| u16::from_le_bytes(*bytes))
    }

    fn u32(&mut self) -> Result<u32, Error> {
        self.take().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Result<u64, Error> {
        self.take().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Secret;
    use proptest::prelude::*;

    fn some() -> Hello {
        Hello {
            stream: 3,
            streams: 32,
            first: 0,
            here: 16,
            packing: Packing::Run,
            encrypted: false,
            order: Order::Morton,
            session: 77,
            challenge: 78,
            shape: Shape::new(1024, 1024, 1024).unwrap(),
            values: 2236,
            first_step: 100,
            steps: 50,
            batch: 7,
            parity: Some(parity::Rate { data: 1000, parity: 100 }),
            rate: 10_000_000_000,
            name: "density".into(),
        }
    }

    #[test]
    fn a_name_that_is_no_utf8_stays_within_its_place() {
        let mut bytes = Message::Hello(Hello { name: String::new(), ..some() }).write(None);
        let name = bytes.len() - NAME;
        bytes[name..].fill(0xff);
        let Ok(Message::Hello(hello)) = Message::read(&bytes, None) else { panic!("it is a hello") };
        assert!(!hello.name.is_empty() && hello.name.len() <= NAME);
        let again = Message::Hello(hello);
        assert_eq!(Message::read(&again.write(None), None), Ok(again));
    }

    #[test]
    fn each_message_comes_back() {
        let report = Report {
            session: 1,
            challenge: 2,
            accepted: Accepted::Refused,
            batch: 3,
            received: 4,
            lost: 5,
            bytes: 6,
        };
        let messages = [
            Message::Hello(some()),
            Message::Hello(Hello {
                parity: None,
                packing: Packing::Xyz,
                values: 560,
                name: String::new(),
                ..some()
            }),
            Message::Report(report),
            Message::Bye(Bye { session: 1, challenge: 2 }),
            Message::Go(Go { token: 1, batch: 2 }),
        ];
        let key = Secret::random().control();
        for message in messages {
            for key in [None, Some(&key)] {
                let bytes = message.write(key);
                assert_eq!(Message::read(&bytes, key), Ok(message.clone()));
                assert!(Message::read(&bytes[..bytes.len() - 1], key).is_err());
                assert!(Message::read(&[&bytes[..], &[0]].concat(), key).is_err());
            }
            assert!(Message::read(&message.write(None), Some(&key)).is_err(), "no tag");
        }
        let encrypted = Message::Hello(Hello { encrypted: true, ..some() });
        assert_eq!(Message::read(&encrypted.write(Some(&key)), Some(&key)), Ok(encrypted.clone()));
        assert_eq!(
            Message::read(&encrypted.write(None), None),
            Err(Error::Field("packing")),
            "without a key"
        );
        assert_eq!((some().step(49), some().step(50)), (149, 100));
    }

    #[test]
    fn names_are_cut_at_a_character() {
        let long = "ä".repeat(40);
        let Ok(Message::Hello(hello)) =
            Message::read(&Message::Hello(Hello { name: long, ..some() }).write(None), None)
        else {
            panic!()
        };
        assert_eq!(hello.name, "ä".repeat(32));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let wrong = [
            Hello { stream: 32, ..some() },
            Hello { stream: 16, ..some() },
            Hello { here: 33, ..some() },
            Hello { streams: 5000, ..some() },
            Hello { values: 0, ..some() },
            Hello { values: 20_000, ..some() },
            Hello { packing: Packing::Xyz, values: 5000, ..some() },
            Hello { steps: 0, ..some() },
            Hello { shape: Shape::new(1024, 1024, 16).unwrap(), ..some() },
            Hello { shape: Shape::new(65536, 65536, 65536).unwrap(), ..some() },
            Hello { parity: Some(parity::Rate { data: 1000, parity: 0 }), ..some() },
            Hello { parity: Some(parity::Rate { data: u32::MAX, parity: u32::MAX }), ..some() },
        ];
        for hello in wrong {
            let bytes = Message::Hello(hello.clone()).write(None);
            assert!(matches!(Message::read(&bytes, None), Err(Error::Field(_))), "{hello:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(kind in 0u32..6, body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let bytes = [&control_head(kind)[..], &body].concat();
            if let Ok(message) = Message::read(&bytes, None) {
                prop_assert_eq!(Message::read(&message.write(None), None), Ok(message));
            }
        }
    }
}
