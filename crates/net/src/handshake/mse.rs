//! The obfuscated opening (MSE) on a plain connection: the machines of `tidecast_mse` over a socket.

use std::sync::Arc;

use bytes::BytesMut;
use rand::RngExt as _;
use tidecast_mse::{Error, Initiator, MAX_PAD, Offer, Random, Responder, Session, Swarms};

use crate::cpu::Cpu;
use crate::error::ConnError;
use crate::transport::{Reader, Writer, enciphered};

/// Bytes read at once.
const CHUNK: usize = 2 << 10;

/// A connection after the MSE handshake, and the payload received so far.
pub(crate) type Opened = (Reader, Writer, BytesMut);

/// Opens a connection to a peer that may demand encryption. `first` goes along.
pub(super) async fn call(
    mut reader: Reader,
    mut writer: Writer,
    (info_hash, first): ([u8; 20], &[u8]),
    cpu: &Arc<Cpu>,
) -> Result<Opened, ConnError> {
    let mut out = Vec::new();
    let mut machine = Initiator::new(info_hash, Offer::Either, first, &random(), &mut out);
    writer.write_all(&out).await?;
    let receive = |bytes: &[u8], out: &mut Vec<u8>| machine.receive(bytes, out);
    let session = drive(&mut reader, &mut writer, BytesMut::new(), receive).await?;
    Ok(behind(session, reader, writer, cpu))
}

/// Answers a peer whose first bytes, `begun`, are not a plain handshake.
pub(super) async fn answer(
    mut reader: Reader,
    mut writer: Writer,
    (begun, swarms): (BytesMut, &Swarms),
    cpu: &Arc<Cpu>,
) -> Result<Opened, ConnError> {
    let mut machine = Responder::new(random());
    let receive = |bytes: &[u8], out: &mut Vec<u8>| machine.receive(bytes, swarms, out);
    let session = drive(&mut reader, &mut writer, begun, receive).await?;
    Ok(behind(session, reader, writer, cpu))
}

async fn drive(
    reader: &mut Reader,
    writer: &mut Writer,
    mut buf: BytesMut,
    mut receive: impl FnMut(&[u8], &mut Vec<u8>) -> Result<Option<Session>, Error>,
) -> Result<Session, ConnError> {
    let mut out = Vec::new();
    loop {
        let session = receive(&buf, &mut out)?;
        buf.clear();
        writer.write_all(&out).await?;
        out.clear();
        if let Some(session) = session {
            return Ok(session);
        }
        buf.reserve(CHUNK);
        if reader.read_buf(&mut buf).await? == 0 {
            return Err(ConnError::Closed);
        }
    }
}

fn behind(session: Session, reader: Reader, writer: Writer, cpu: &Arc<Cpu>) -> Opened {
    let buf = BytesMut::from(session.received.as_slice());
    let (reader, writer) = match session.cipher {
        Some(cipher) => enciphered(reader, writer, cipher, cpu),
        None => (reader, writer),
    };
    (reader, writer, buf)
}

fn random() -> Random {
    let mut rng = rand::rng();
    let mut pad = vec![0; rng.random_range(0..=MAX_PAD)];
    rng.fill(pad.as_mut_slice());
    Random { secret: rng.random(), pad }
}
