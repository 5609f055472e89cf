//! A lower bound for the transfer of one file on this host: the cost of the kernel, the cipher and SHA-256 that
//! every verified transfer has, without anything else. One thread sends over loopback, another receives, hashes and
//! writes.
//!
//! `transfer_floor plain|tls SOURCE TARGET`. Plain bytes go out by sendfile(2); `tls` reads them and seals records of 16 KiB by
//! AES-128-GCM.

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use tidecast_hash::leaf_digests;
use tidecast_paths::PageBuffer;

type Tried<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Bytes that are read, sent, hashed and written at a time: they stay in a core's own cache.
const BATCH: usize = 256 << 10;
/// Bytes of a record, as TLS has them at most.
const RECORD: usize = 16 << 10;
/// Overhead of a TLS 1.3 record: its head, and its tag.
const HEAD: usize = 5;
const TAG: usize = 16;

fn main() -> Tried {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [guard, source, target] = words.as_slice() else {
        return Err("transfer_floor plain|tls SOURCE TARGET".into());
    };
    let (source, target) = (File::open(source)?, File::create(target)?);
    let size = usize::try_from(source.metadata()?.len())?;
    let sealed = guard == "tls";
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let out = TcpStream::connect(listener.local_addr()?)?;
    let (into, _) = listener.accept()?;
    let sender =
        thread::spawn(move || if sealed { seal(source, out, size) } else { send(&source, &out, size) });
    if sealed {
        open(into, target, size)?
    } else {
        receive(into, target, size)?
    }
    sender.join().map_err(|_| "the sender panicked")?
}

fn send(source: &File, out: &TcpStream, size: usize) -> Tried {
    let mut left = size;
    while left > 0 {
        match rustix::fs::sendfile(out, source, None, left.min(BATCH))? {
            0 => return Err("the source has become shorter".into()),
            sent => left -= sent,
        }
    }
    Ok(())
}

fn receive(mut into: TcpStream, mut target: File, size: usize) -> Tried {
    let mut buffer = PageBuffer::new(BATCH);
    for batch in batches(size) {
        let plain = &mut buffer[..batch];
        into.read_exact(plain)?;
        settle(plain, &mut target)?;
    }
    Ok(())
}

fn seal(mut source: File, mut out: TcpStream, size: usize) -> Tried {
    let mut cipher = Cipher::new()?;
    let mut wire = PageBuffer::new(BATCH / RECORD * (HEAD + RECORD + TAG));
    for batch in batches(size) {
        let mut end = 0;
        for record in records(batch) {
            let (body, behind) = wire[end + HEAD..].split_at_mut(record);
            source.read_exact(body)?;
            behind[..TAG].copy_from_slice(&cipher.seal(body)?);
            end += HEAD + record + TAG;
        }
        out.write_all(&wire[..end])?;
    }
    Ok(())
}

fn open(mut into: TcpStream, mut target: File, size: usize) -> Tried {
    let mut cipher = Cipher::new()?;
    let mut wire = PageBuffer::new(BATCH / RECORD * (HEAD + RECORD + TAG));
    let mut plain = PageBuffer::new(BATCH);
    for batch in batches(size) {
        let length: usize = records(batch).map(|record| HEAD + record + TAG).sum();
        into.read_exact(&mut wire[..length])?;
        for (from, to) in wire[..length].chunks_mut(HEAD + RECORD + TAG).zip(plain.chunks_mut(RECORD)) {
            let opened = cipher.open(&mut from[HEAD..])?;
            to[..opened.len()].copy_from_slice(opened);
        }
        settle(&plain[..batch], &mut target)?;
    }
    Ok(())
}

/// Leaves are hashed like those of pieces, and written.
fn settle(plain: &[u8], target: &mut File) -> Tried {
    std::hint::black_box(leaf_digests(plain));
    Ok(target.write_all(plain)?)
}

fn batches(size: usize) -> impl Iterator<Item = usize> {
    (0..size).step_by(BATCH).map(move |begin| BATCH.min(size - begin))
}

fn records(batch: usize) -> impl Iterator<Item = usize> {
    (0..batch).step_by(RECORD).map(move |begin| RECORD.min(batch - begin))
}

/// A key that both ends know, and the number of the next record.
struct Cipher {
    key: LessSafeKey,
    record: u64,
}

impl Cipher {
    fn new() -> Tried<Self> {
        Ok(Self {
            key: LessSafeKey::new(
                UnboundKey::new(&AES_128_GCM, &[7; 16]).map_err(|_| "the cipher takes no such key")?,
            ),
            record: 0,
        })
    }

    fn seal(&mut self, body: &mut [u8]) -> Tried<[u8; TAG]> {
        let nonce = self.nonce();
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::empty(), body)
            .map_err(|_| "it cannot be sealed")?;
        Ok(tag.as_ref().try_into()?)
    }

    fn open<'a>(&mut self, record: &'a mut [u8]) -> Tried<&'a [u8]> {
        let nonce = self.nonce();
        Ok(self.key.open_in_place(nonce, Aad::empty(), record).map_err(|_| "a record was changed")?)
    }

    fn nonce(&mut self) -> Nonce {
        self.record += 1;
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.record.to_le_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}
