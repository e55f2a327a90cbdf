//! Connects to an address that was judged, and to no other: what a name resolves to a second time does not matter.

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::address::{Class, classify};
use super::pattern::normal;
use super::{HostRule, HttpError, usual_port};

/// Addresses of names. A parameter, so that a test can say what a name resolves to.
pub trait Resolve: Send + Sync {
    /// The addresses of a host.
    fn resolve(&self, host: String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;
}

/// The resolver of the machine.
#[derive(Debug, Clone, Copy)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: String) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((host, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        })
    }
}

#[derive(Clone)]
pub(super) struct Connector {
    pub(super) rules: Arc<[HostRule]>,
    pub(super) resolver: Arc<dyn Resolve>,
}

type Failure = Box<dyn Error + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Failure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect(&uri).await })
    }
}

impl Connector {
    async fn connect(&self, uri: &Uri) -> Result<TokioIo<TcpStream>, Failure> {
        let host = normal(uri.host().ok_or("the URL has no host")?);
        let usual = usual_port(uri.scheme_str());
        let port = uri.port_u16().unwrap_or(usual);
        let private = self.rules.iter().any(|rule| rule.private_networks && rule.pattern.matches(&host, port, usual));
        let addresses = match host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.resolver.resolve(host.clone()).await?,
        };
        for address in &addresses {
            judge(&host, *address, private)?;
        }
        let mut failure = Failure::from(format!("`{host}` has no address"));
        for address in addresses {
            match TcpStream::connect(SocketAddr::new(address, port)).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(TokioIo::new(stream));
                }
                Err(error) => failure = format!("{address}: {error}").into(),
            }
        }
        Err(failure)
    }
}

/// One bad address among several is enough: whoever put it there may decide which is used.
fn judge(host: &str, address: IpAddr, private: bool) -> Result<(), HttpError> {
    match classify(address) {
        Class::Public => Ok(()),
        Class::Private(_) if private => Ok(()),
        Class::Private(reason) | Class::Forbidden(reason) => {
            Err(HttpError::Address { host: host.to_owned(), address, reason })
        }
    }
}
