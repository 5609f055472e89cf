//! Implements rustls's certificate verifiers, for both directions at once.

use std::fmt::Debug;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};

/// A certificate passes, or why not.
pub(crate) type PolicyResult = Result<(), rustls::Error>;
/// A signature is that of the certificate's key, or why not.
pub(crate) type Signed = Result<HandshakeSignatureValid, rustls::Error>;

/// Decides whether a certificate is accepted. Both ends have one, and host names are not checked.
pub(crate) trait CertificatePolicy: Debug + Send + Sync {
    /// A server's certificate, and its intermediates.
    fn server(&self, cert: &CertificateDer<'_>, more: &[CertificateDer<'_>], now: UnixTime) -> PolicyResult;
    /// Of a client.
    fn client(&self, cert: &CertificateDer<'_>, more: &[CertificateDer<'_>], now: UnixTime) -> PolicyResult;
    /// A signature of TLS 1.2.
    fn tls12(&self, message: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct) -> Signed;
    /// A signature of TLS 1.3.
    fn tls13(&self, message: &[u8], cert: &CertificateDer<'_>, dss: &DigitallySignedStruct) -> Signed;
    /// Signatures that can be checked.
    fn schemes(&self) -> Vec<SignatureScheme>;
    /// Names of authorities that are sent to clients.
    fn roots(&self) -> &[DistinguishedName] {
        &[]
    }
}

/// A [`CertificatePolicy`] as rustls wants it, for servers and for clients.
#[derive(Debug)]
pub(crate) struct Verifier<J>(pub(crate) J);

impl<J: CertificatePolicy> ServerCertVerifier for Verifier<J> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.0.server(end_entity, intermediates, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Signed {
        self.0.tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Signed {
        self.0.tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.schemes()
    }
}

impl<J: CertificatePolicy> ClientCertVerifier for Verifier<J> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.roots()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.0.client(end_entity, intermediates, now).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Signed {
        self.0.tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Signed {
        self.0.tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.schemes()
    }
}
