//! Connections with implicit TLS, encrypted from the first byte.
//!
//! The SMTP library supports them as well, but not with immediate writes (`TCP_NODELAY`).

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use lettre::transport::smtp::client::AsyncTokioStream;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::smtp::smtp_error::SmtpConfigError;

/// Establishes TLS on connections to one server.
pub(crate) struct ImplicitTlsConnector {
    connector: TlsConnector,
    host: ServerName<'static>,
}

/// Builds a connector that trusts the certificate authorities of the machine, and those in the
/// file.
pub(crate) fn build_implicit_tls(
    host: &str,
    ca_file: Option<&Path>,
) -> Result<ImplicitTlsConnector, SmtpConfigError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        add_certificates(&mut roots, path).map_err(|cause| SmtpConfigError::Certificates {
            path: path.to_owned(),
            cause,
        })?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|cause| SmtpConfigError::TlsSetup(cause.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| SmtpConfigError::InvalidServerName(host.to_owned()))?;
    Ok(ImplicitTlsConnector {
        connector: TlsConnector::from(Arc::new(config)),
        host: name,
    })
}

fn add_certificates(
    roots: &mut RootCertStore,
    path: &Path,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    for certificate in CertificateDer::pem_file_iter(path)? {
        roots.add(certificate?)?;
    }
    Ok(())
}

impl ImplicitTlsConnector {
    pub(crate) async fn wrap_stream(&self, stream: TcpStream) -> io::Result<ImplicitTlsStream> {
        Ok(ImplicitTlsStream(
            self.connector.connect(self.host.clone(), stream).await?,
        ))
    }
}

/// A TLS stream in the form that the SMTP library accepts.
#[derive(Debug)]
pub(crate) struct ImplicitTlsStream(TlsStream<TcpStream>);

impl AsyncTokioStream for ImplicitTlsStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().0.peer_addr()
    }
}

impl AsyncRead for ImplicitTlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for ImplicitTlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
