//! TLS 1.3 between nodes that know each other's keys.
//!
//! Promises: a handshake succeeds only with a peer that proves to have the key that is asked for, or, for the side that accepts, a key
//! the map lists (or any key, where strangers are let in). No certificates, no names, no dates, no resumption: every connection is
//! proved afresh. Refuses to know: sockets.
//!
//! Keys are shown bare (RFC 7250). The protocol is named in the handshake (ALPN), so that a connection made to another port of a node,
//! or by another of its protocols, is never taken for one of these.

use super::identity::{Identity, hash_of};
use super::trust::{KeySha256, Trust};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, CommonState, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};

/// The protocol's name and version in the handshake.
const PROTOCOL: &[u8] = b"ashlar-rpc/1";
/// Stands where TLS wants a name. Nobody looks at it.
pub(super) fn name() -> ServerName<'static> {
    ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

/// ring's algorithms, AES-128 first: a fifth faster than AES-256, and no weaker link than the curve.
pub(super) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        use ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256};
        let cipher_suites = vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
        Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() })
    });
    PROVIDER.clone()
}

/// For connections to the holder of `key`.
pub(super) fn client(identity: &Identity, key: KeySha256) -> ClientConfig {
    let verifier = Arc::new(Holder { key, algorithms: provider().signature_verification_algorithms });
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("ring speaks TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(identity.key.clone())));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config
}

/// For connections from members, or from any holder of a key if there is no `trust`.
pub(super) fn server(identity: &Identity, trust: Option<Arc<dyn Trust>>) -> ServerConfig {
    let verifier = Arc::new(Members { trust, algorithms: provider().signature_verification_algorithms });
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("ring speaks TLS 1.3")
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(identity.key.clone())));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.send_tls13_tickets = 0;
    config
}

/// The key that the other side of a finished handshake has proved, if it speaks our protocol.
pub(super) fn proved_key(connection: &CommonState) -> Option<KeySha256> {
    let key = connection.peer_certificates()?.first()?;
    (connection.alpn_protocol() == Some(PROTOCOL)).then(|| hash_of(key))
}

/// Accepts one key.
struct Holder {
    key: KeySha256,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Holder {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match more.is_empty() && hash_of(shown) == self.key {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(not_accepted()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(not_accepted())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(message, key, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Accepts the keys of members, or any.
struct Members {
    trust: Option<Arc<dyn Trust>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Members {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let known = self.trust.as_ref().is_none_or(|trust| trust.node_of(hash_of(shown)).is_some());
        match more.is_empty() && known {
            true => Ok(ClientCertVerified::assertion()),
            false => Err(not_accepted()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(not_accepted())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(message, key, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn verify_signature(
    message: &[u8],
    key: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let key = SubjectPublicKeyInfoDer::from(key.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
}

fn not_accepted() -> Error {
    Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder").finish_non_exhaustive()
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").finish_non_exhaustive()
    }
}
