//! The stream: both directions at once, ends, breaks, and peers of another protocol.
#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;

use tidecast_identity::{NodeKey, Tls, placeholder_name};
use tidecast_tls::{Accepting, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};

type Ours = Stream<DuplexStream>;

fn tls() -> Tls {
    Tls::new(&NodeKey::generate().unwrap()).unwrap()
}

async fn answer(io: DuplexStream) -> std::io::Result<Ours> {
    let accepting = Accepting::read(io).await?;
    assert!(accepting.client_hello().alpn().unwrap().next().is_some());
    accepting.answer(tls().server()).await
}

/// Over a pipe of this many bytes.
async fn pair(pipe: usize) -> (Ours, Ours) {
    let (near, far) = duplex(pipe);
    let (near, far) = tokio::join!(Stream::connect(tls().client(), placeholder_name(), near), answer(far));
    (near.unwrap(), far.unwrap())
}

fn noise(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 / 3 + i / 251) as u8).collect()
}

#[tokio::test]
async fn both_directions_flow_at_once_and_end() {
    for pipe in [7, 1000, 1 << 20] {
        let (near, far) = pair(pipe).await;
        assert_eq!(near.session().agreed().alpn_protocol(), far.session().agreed().alpn_protocol());
        assert!(near.session().agreed().peer_certificates().is_some());
        let data = noise(300_000);
        let one_end = async |stream: Ours| {
            let (mut reader, mut writer) = split(stream);
            let mut heard = Vec::new();
            let say = async {
                for part in data.chunks(70_000) {
                    writer.write_all(part).await.unwrap();
                    writer.flush().await.unwrap();
                }
                writer.shutdown().await.unwrap();
                assert_eq!(writer.write(b"more").await.unwrap_err().kind(), ErrorKind::NotConnected);
            };
            let (read, ()) = tokio::join!(reader.read_to_end(&mut heard), say);
            read.unwrap();
            assert!(heard == data);
        };
        tokio::join!(one_end(near), one_end(far));
    }
}

#[tokio::test]
async fn a_break_is_no_end() {
    let (mut near, mut far) = pair(1000).await;
    near.write_all(b"words").await.unwrap();
    near.flush().await.unwrap();
    drop(near);
    let mut heard = Vec::new();
    assert_eq!(far.read_to_end(&mut heard).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(heard, b"words");
    let (near, far) = duplex(1000);
    drop(near);
    let error = answer(far).await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::UnexpectedEof, "tls handshake eof"));
}

#[tokio::test]
async fn who_speaks_something_else_hears_an_alert() {
    for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[22, 3, 1, 0, 4, 1, 0, 0, 0], &[21, 3, 3, 0, 2, 2, 40]] {
        let (mut near, far) = duplex(1000);
        near.write_all(words).await.unwrap();
        near.shutdown().await.unwrap();
        let error = answer(far).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{words:?}: {error}");
        assert!(error.get_ref().unwrap().is::<rustls::Error>());
        let mut heard = Vec::new();
        near.read_to_end(&mut heard).await.unwrap();
        assert!(heard.first().is_none_or(|kind| *kind == 21), "{heard:?}");
    }
}

#[tokio::test]
async fn who_is_not_who_was_expected_is_told_so() {
    let (near, far) = duplex(1000);
    let config = tls().client_of(tls().id()).unwrap();
    let (near, far) = tokio::join!(Stream::connect(config, placeholder_name(), near), answer(far));
    let wrong = near.unwrap_err();
    let wrong = wrong.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()).unwrap();
    assert!(matches!(wrong, rustls::Error::InvalidCertificate(_)), "{wrong}");
    let told = far.unwrap_err();
    let told = told.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()).unwrap();
    assert!(matches!(told, rustls::Error::AlertReceived(_)), "{told}");
}
