//! The HTTP server: routes, authentication, rate limits and the OpenAPI document.
//!
//! - `routes`: one handler per operation of [`ApiService`], described as OpenAPI.
//! - `auth`: bearer tokens, roles and request rate limits.
//! - `host_check`: refuses requests that web pages of other sites make a browser send.
//! - `connections`: accepts connections, with limits, timeouts and graceful shutdown.
//! - `request_limits`: checks and limits of every request; `request_body`: of its body.
//! - `unread_body`: discards what a refused request still sends.

mod auth;
mod connections;
mod guarded_stream;
mod head_scanner;
mod host_check;
mod http_types;
mod keyed_slots;
mod request_body;
mod request_checks;
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

use self::auth::{CallerKey, TokenAuthenticator};
use self::keyed_slots::KeyedSlots;
use self::request_body::BodyBudget;
use self::routes::MetricsPlace;

pub use auth::AuthMode;
pub use connections::ConnectionLimits;
pub use host_check::HostCheck;
pub use routes::openapi_document;

/// Interval at which the rate limit state of inactive callers is dropped.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);

/// Number of bytes that all request bodies under way may occupy together.
const BODY_BUDGET_BYTES: usize = 256 << 20;

/// Maximum number of open event streams, in total and for each token.
const STREAMS_MAX: usize = 4_096;
const STREAMS_PER_TOKEN_MAX: usize = 256;

/// Limits of connections to the address of its own that metrics can have. Few programs read them.
const METRICS_CONNECTIONS_MAX: usize = 64;

/// Settings of the HTTP server.
#[derive(Clone)]
pub struct Options {
    /// Which tokens are valid.
    pub auth_mode: AuthMode,
    /// The host names under which clients may address the server.
    pub host_check: HostCheck,
    /// Rate limit of each token in requests per second; `None` means no limit.
    pub requests_per_second: Option<NonZeroU32>,
    /// Limits of connections. The write timeout is also the time that a client has to send the next
    /// part of a body.
    pub connections: ConnectionLimits,
    /// Metrics that `/metrics` serves; `None` serves an empty document.
    pub metrics: Option<PrometheusHandle>,
}

/// The sockets of the HTTP server.
pub struct Listeners {
    /// Socket of the API.
    pub api: TcpListener,
    /// Socket of `/metrics`; `None` serves it with the API.
    pub metrics: Option<TcpListener>,
}

/// State that all handlers share.
pub(crate) struct ServerState {
    pub(crate) service: ApiService,
    pub(crate) authenticator: TokenAuthenticator,
    pub(crate) metrics: Option<PrometheusHandle>,
    pub(crate) body_budget: BodyBudget,
    pub(crate) streams: Arc<KeyedSlots<CallerKey>>,
    stage: watch::Receiver<ServerStage>,
}

impl ServerState {
    /// Waits until the server is stopping. A handler that waits for something must then respond, so
    /// that the client can continue on another server.
    pub(crate) async fn wait_for_stop(&self) {
        wait_until_stopping(self.stage.clone()).await;
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.stage.borrow() >= ServerStage::Draining
    }
}

/// Serves requests until `stage` reaches [`ServerStage::Stopping`], then finishes the requests in
/// flight.
pub async fn serve_http(
    listeners: Listeners,
    service: ApiService,
    options: Options,
    stage: watch::Receiver<ServerStage>,
) {
    let authenticator = TokenAuthenticator::new(options.auth_mode, options.requests_per_second);
    let service = service.with_server_stage(stage.clone());
    let limits = options.connections;
    let app = Arc::new(ServerState {
        service,
        authenticator,
        metrics: options.metrics,
        body_budget: BodyBudget::new(BODY_BUDGET_BYTES, limits.write_timeout),
        streams: KeyedSlots::new(STREAMS_MAX, STREAMS_PER_TOKEN_MAX),
        stage: stage.clone(),
    });
    let pruning = tokio::spawn({
        let app = Arc::clone(&app);
        async move {
            loop {
                tokio::time::sleep(PRUNE_INTERVAL).await;
                app.authenticator.prune_inactive_callers();
            }
        }
    });
    // The names of --allowed-host belong to the address of the API.
    let metrics_address = listeners.metrics.as_ref();
    let metrics_address = metrics_address.and_then(|listener| listener.local_addr().ok());
    let metrics_check = metrics_address.map(|address| HostCheck::new(address, &[]));
    let (place, metrics_check) = match metrics_check {
        Some(check) => (MetricsPlace::OwnAddress, check),
        None => (MetricsPlace::WithApi, options.host_check.clone()),
    };
    let metrics_router = routes::build_metrics_router(Arc::clone(&app), metrics_check);
    let router = routes::build_router(app, place, options.host_check);
    let serving_metrics = async {
        if let Some(listener) = listeners.metrics {
            let limits = ConnectionLimits {
                max_total: METRICS_CONNECTIONS_MAX,
                max_per_peer: METRICS_CONNECTIONS_MAX,
                ..limits
            };
            let stopped = wait_until_stopping(stage.clone());
            connections::serve_connections(listener, metrics_router, limits, stopped).await;
        }
    };
    let stopped = wait_until_stopping(stage.clone());
    let serving = connections::serve_connections(listeners.api, router, limits, stopped);
    tokio::join!(serving, serving_metrics);
    pruning.abort();
}

/// Waits until the server stops; a dropped sender stops it as well.
async fn wait_until_stopping(mut stage: watch::Receiver<ServerStage>) {
    drop(
        stage
            .wait_for(|stage| *stage >= ServerStage::Stopping)
            .await,
    );
}
