//! The HTTP server: routes, authentication, rate limits and the OpenAPI document.
//!
//! - `routes`: one handler per operation of [`ApiService`], described as OpenAPI.
//! - `auth`: bearer tokens, roles and request rate limits.
//! - `host_check`: refuses requests that web pages of other sites make a browser send.
//! - `connections`: accepts connections, with timeouts and graceful shutdown.

mod auth;
mod connections;
mod host_check;
mod http_types;
mod request_limits;
mod routes;
mod unread_body;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use onward_service::{ApiService, ServerStage};
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::auth::TokenAuthenticator;

pub use auth::AuthMode;
pub use host_check::HostCheck;
pub use routes::openapi_document;

/// Interval at which the rate limit state of inactive callers is dropped.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);

/// Settings of the HTTP server.
#[derive(Clone)]
pub struct Options {
    /// Which tokens are valid.
    pub auth_mode: AuthMode,
    /// The host names under which clients may address the server.
    pub host_check: HostCheck,
    /// Rate limit of each token in requests per second; `None` means no limit.
    pub requests_per_second: Option<NonZeroU32>,
    /// Time that a connection has to send the complete head of its next request before the server
    /// closes it.
    pub header_timeout: Duration,
    /// Metrics that `/metrics` serves; `None` serves an empty document.
    pub metrics: Option<PrometheusHandle>,
}

/// State that all handlers share.
pub(crate) struct ServerState {
    pub(crate) service: ApiService,
    pub(crate) authenticator: TokenAuthenticator,
    pub(crate) metrics: Option<PrometheusHandle>,
    stage: watch::Receiver<ServerStage>,
}

impl ServerState {
    /// Waits until the server is stopping. A handler that waits for something must then respond, so
    /// that the client can continue on another server.
    pub(crate) async fn wait_for_stop(&self) {
        drop(
            self.stage
                .clone()
                .wait_for(|stage| *stage >= ServerStage::Stopping)
                .await,
        );
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.stage.borrow() >= ServerStage::Draining
    }
}

/// Serves requests until `stage` reaches [`ServerStage::Stopping`], then finishes the requests in
/// flight.
pub async fn serve_http(
    listener: TcpListener,
    service: ApiService,
    options: Options,
    mut stage: watch::Receiver<ServerStage>,
) {
    let authenticator = TokenAuthenticator::new(options.auth_mode, options.requests_per_second);
    let service = service.with_server_stage(stage.clone());
    let app = Arc::new(ServerState {
        service,
        authenticator,
        metrics: options.metrics,
        stage: stage.clone(),
    });
    let router = routes::build_router(Arc::clone(&app), options.host_check);
    let pruning = tokio::spawn({
        let app = Arc::clone(&app);
        async move {
            loop {
                tokio::time::sleep(PRUNE_INTERVAL).await;
                app.authenticator.prune_rate_limits();
            }
        }
    });
    let stopped = async move {
        // A dropped sender stops the server as well.
        drop(
            stage
                .wait_for(|stage| *stage >= ServerStage::Stopping)
                .await,
        );
    };
    connections::serve_connections(listener, router, options.header_timeout, stopped).await;
    pruning.abort();
}
