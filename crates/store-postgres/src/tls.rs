//! TLS for connections: version 1.2 or 1.3, always with a certificate that this machine trusts for
//! the server's name.

use std::sync::Arc;

use onward_store::Error;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Creates a TLS connector that trusts the certificate authorities of this machine, or those in
/// `SSL_CERT_FILE`.
pub(crate) fn tls_connector() -> Result<MakeRustlsConnect, Error> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (trusted, _) = roots.add_parsable_certificates(found.certs);
    if trusted == 0 {
        return Err(Error::Unusable(
            "this machine trusts no certificate authority, so no server can be verified: install ca-certificates, or \
             name a file of certificates in SSL_CERT_FILE"
                .to_owned(),
        ));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|cause| Error::Unusable(format!("cannot set up TLS: {cause}")))?;
    Ok(MakeRustlsConnect::new(
        config.with_root_certificates(roots).with_no_client_auth(),
    ))
}
