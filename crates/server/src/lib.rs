//! The HTTP server: routes, authentication, rate limits and the OpenAPI document.
//!
//! - `routes`: one handler per operation of [`ApiService`], described as OpenAPI.
//! - `auth`: bearer tokens, roles and request rate limits.
//! - `connections`: accepts connections, with timeouts and graceful shutdown.

mod auth;
mod connections;
mod http_types;
mod request_limits;
mod routes;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use onward_service::{ApiService, ServerStage};
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::auth::TokenAuthenticator;

pub use auth::AuthMode;
pub use routes::openapi_document;

/// How often those are forgotten who have not asked for a while.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);

/// How a server works.
#[derive(Clone)]
pub struct Options {
    /// Who may ask.
    pub auth_mode: AuthMode,
    /// Requests a second of each token; as many as it can unless told.
    pub requests_per_second: Option<NonZeroU32>,
    /// How long a connection may say nothing before it is closed.
    pub header_timeout: Duration,
    /// What is measured.
    pub metrics: Option<PrometheusHandle>,
}

/// What handlers share.
pub(crate) struct ServerState {
    pub(crate) service: ApiService,
    pub(crate) authenticator: TokenAuthenticator,
    pub(crate) metrics: Option<PrometheusHandle>,
    stage: watch::Receiver<ServerStage>,
}

impl ServerState {
    /// Waits until nothing more is asked: whoever waits for something that may take long should be told to ask elsewhere.
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

/// Answers requests until `stage` says otherwise, and those that were under way then.
pub async fn serve_http(
    listener: TcpListener,
    service: ApiService,
    options: Options,
    mut stage: watch::Receiver<ServerStage>,
) {
    let gate = TokenAuthenticator::new(options.auth_mode, options.requests_per_second);
    let service = service.with_server_stage(stage.clone());
    let app = Arc::new(ServerState {
        service,
        authenticator: gate,
        metrics: options.metrics,
        stage: stage.clone(),
    });
    let router = routes::build_router(Arc::clone(&app));
    let tidying = tokio::spawn({
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
    tidying.abort();
}
