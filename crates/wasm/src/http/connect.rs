//! Connects only to an address that was checked. The host name is not resolved a second time, so
//! DNS rebinding has no effect.

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

use super::address::{AddressClass, classify_address};
use super::pattern::normalize_host;
use super::{HostRule, HttpError, default_port};

/// Resolves host names. A trait, so that a test can choose the addresses of a name.
pub trait HostResolver: Send + Sync {
    /// Returns all addresses of a host.
    fn resolve_host(
        &self,
        host: String,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct SystemResolver;

impl HostResolver for SystemResolver {
    fn resolve_host(
        &self,
        host: String,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((host, 0)).await?;
            Ok(addresses.map(|address| address.ip()).collect())
        })
    }
}

#[derive(Clone)]
pub(super) struct GuestConnector {
    pub(super) rules: Arc<[HostRule]>,
    pub(super) resolver: Arc<dyn HostResolver>,
}

type ConnectError = Box<dyn Error + Send + Sync>;

impl Service<Uri> for GuestConnector {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect_checked(&uri).await })
    }
}

impl GuestConnector {
    async fn connect_checked(&self, uri: &Uri) -> Result<TokioIo<TcpStream>, ConnectError> {
        let host = normalize_host(uri.host().ok_or("the URL has no host")?);
        let usual = default_port(uri.scheme_str());
        let port = uri.port_u16().unwrap_or(usual);
        let allows_private =
            |rule: &HostRule| rule.private_networks && rule.pattern.matches(&host, port, usual);
        let private_networks = match self.rules.iter().any(allows_private) {
            true => PrivateNetworks::Allowed,
            false => PrivateNetworks::Denied,
        };
        let addresses = match host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.resolver.resolve_host(host.clone()).await?,
        };
        for address in &addresses {
            check_address(&host, *address, private_networks)?;
        }
        let mut failure = ConnectError::from(format!("`{host}` has no address"));
        for address in addresses {
            match TcpStream::connect(SocketAddr::new(address, port)).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(TokioIo::new(stream));
                }
                // The address is for the operator's log only: it may be an internal one.
                Err(error) => {
                    tracing::debug!(%host, %address, %error, "a guest's request has no connection");
                    failure = format!("`{host}`: {error}").into();
                }
            }
        }
        Err(failure)
    }
}

/// Whether a rule lets guests reach private addresses of a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PrivateNetworks {
    Allowed,
    Denied,
}

/// Fails if guests must not reach the address. One forbidden address among several is enough to
/// refuse the host, because the attacker who added it may control which one is used.
fn check_address(
    host: &str,
    address: IpAddr,
    private_networks: PrivateNetworks,
) -> Result<(), HttpError> {
    match classify_address(address) {
        AddressClass::Public => Ok(()),
        AddressClass::Private(_) if private_networks == PrivateNetworks::Allowed => Ok(()),
        AddressClass::Private(reason) | AddressClass::Forbidden(reason) => {
            tracing::info!(%host, %address, reason, "a guest's request was refused");
            Err(HttpError::AddressDenied {
                host: host.to_owned(),
                address,
                reason,
            })
        }
    }
}
