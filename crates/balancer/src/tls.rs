//! Certificate and key from PEM files.
//!
//! Promises: TLS 1.2 and 1.3 with ring, HTTP/1.1 only. Refuses to know: who may connect.

use std::path::PathBuf;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Where the certificate and its key are.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate and those that sign it, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// What makes TLS of connections; else a sentence that says why not.
pub fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, String> {
    let unreadable = |path: &PathBuf, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(&files.certificate, &error))?;
    if chain.is_empty() {
        return Err(unreadable(&files.certificate, &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unreadable(&files.key, &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| unreadable(&files.certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
