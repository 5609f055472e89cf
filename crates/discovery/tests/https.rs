//! Announcing over TLS: to a tracker whose certificate is trusted, and not to one whose is not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use common::{ask, options};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tidecast_discovery::tracker::{Event, announce};
use tidecast_discovery::{Error, TrackerUrl};
use tidecast_tls::Accepting;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A TLS tracker that always answers with `answer`; its certificate is for 127.0.0.1.
async fn tls_tracker(answer: &'static [u8]) -> (SocketAddr, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).unwrap();
    let cert = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(accepting) = Accepting::read(stream).await else { continue };
            let Ok(mut stream) = accepting.answer(config.clone()).await else { continue };
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(answer).await;
            let _ = stream.shutdown().await;
        }
    });
    (addr, cert)
}

fn trusting(cert: CertificateDer<'static>) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cert).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

#[tokio::test]
async fn a_trusted_certificate_and_another() {
    let answer = b"HTTP/1.1 200 OK\r\n\r\nd8:intervali60e5:peers6:\x0a\0\0\x01\0\x50e";
    let (addr, cert) = tls_tracker(answer).await;
    let url = TrackerUrl::parse(&format!("https://{addr}/announce")).unwrap();
    let mut trust = options();
    trust.tls = Some(Arc::new(trusting(cert)));
    let got = announce(&url, &ask(1, 1, 1, Event::Started), &trust).await.unwrap();
    assert_eq!(got.peers, ["10.0.0.1:80".parse().unwrap()]);

    // The system's authorities do not know it.
    let error = announce(&url, &ask(1, 1, 1, Event::Started), &options()).await.unwrap_err();
    assert!(matches!(&error, Error::Http { why, .. } if why.contains("certificate")), "{error}");
}

#[tokio::test]
async fn a_redirect_away_from_tls_is_not_followed() {
    let answer = b"HTTP/1.1 302 F\r\nLocation: http://127.0.0.1:9/announce\r\n\r\n";
    let (addr, cert) = tls_tracker(answer).await;
    let url = TrackerUrl::parse(&format!("https://{addr}/announce")).unwrap();
    let mut trust = options();
    trust.tls = Some(Arc::new(trusting(cert)));
    let error = announce(&url, &ask(1, 1, 1, Event::Started), &trust).await.unwrap_err();
    assert!(matches!(&error, Error::Redirect { why, .. } if why.contains("TLS")), "{error}");
}
