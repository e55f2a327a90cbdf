//! The server: what can be asked of Onward, over HTTP.
//!
//! - [`Service`] answers from a store, and knows nothing of HTTP.
//! - `routes` says the same over HTTP, and describes itself as OpenAPI.
//! - `access` knows who asks, and what they may.

mod auth;
mod connections;
mod http_types;
mod request_limits;
mod routes;
mod service;
pub mod token;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::auth::TokenAuthenticator;

pub use auth::AuthMode;
pub use routes::openapi_document;
pub use service::{ApiService, preview_message};

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

/// How far a server has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerStage {
    /// It answers.
    Serving,
    /// It answers, and says that it will not for long.
    Draining,
    /// It answers what was asked before.
    Stopping,
}

/// What handlers share.
pub(crate) struct ServerState {
    pub(crate) service: ApiService,
    pub(crate) authenticator: TokenAuthenticator,
    pub(crate) metrics: Option<PrometheusHandle>,
    draining: AtomicBool,
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
        self.draining.load(Ordering::Relaxed)
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
    let leaving = AtomicBool::new(false);
    let service = service.with_server_stage(stage.clone());
    let app = Arc::new(ServerState {
        service,
        authenticator: gate,
        metrics: options.metrics,
        draining: leaving,
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
        // Whoever could say so being gone means the same.
        drop(
            stage
                .wait_for(|stage| *stage >= ServerStage::Draining)
                .await,
        );
        app.draining.store(true, Ordering::Relaxed);
        drop(
            stage
                .wait_for(|stage| *stage >= ServerStage::Stopping)
                .await,
        );
    };
    connections::serve_connections(listener, router, options.header_timeout, stopped).await;
    tidying.abort();
}
