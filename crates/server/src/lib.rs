//! The server: what can be asked of Onward, over HTTP.
//!
//! - [`Service`] answers from a store, and knows nothing of HTTP.
//! - `routes` says the same over HTTP, and describes itself as OpenAPI.
//! - `access` knows who asks, and what they may.

mod access;
mod answer;
mod connections;
mod routes;
mod service;
pub mod token;
mod within;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::access::Gate;

pub use access::Admission;
pub use routes::openapi;
pub use service::{Service, previewed};

/// How often those are forgotten who have not asked for a while.
const TIDY: Duration = Duration::from_secs(60);

/// How a server works.
#[derive(Clone)]
pub struct Options {
    /// Who may ask.
    pub admission: Admission,
    /// Requests a second of each token; as many as it can unless told.
    pub requests_per_second: Option<NonZeroU32>,
    /// How long a connection may say nothing before it is closed.
    pub silence: Duration,
    /// What is measured.
    pub metrics: Option<PrometheusHandle>,
}

/// How far a server has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It answers.
    Serving,
    /// It answers, and says that it will not for long.
    Leaving,
    /// It answers what was asked before.
    Stopping,
}

/// What handlers share.
pub(crate) struct App {
    pub(crate) service: Service,
    pub(crate) gate: Gate,
    pub(crate) metrics: Option<PrometheusHandle>,
    leaving: AtomicBool,
    stage: watch::Receiver<Stage>,
}

impl App {
    /// Waits until nothing more is asked: whoever waits for something that may take long should be told to ask elsewhere.
    pub(crate) async fn stops(&self) {
        drop(self.stage.clone().wait_for(|stage| *stage >= Stage::Stopping).await);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }
}

/// Answers requests until `stage` says otherwise, and those that were under way then.
pub async fn serve(listener: TcpListener, service: Service, options: Options, mut stage: watch::Receiver<Stage>) {
    let gate = Gate::new(options.admission, options.requests_per_second);
    let leaving = AtomicBool::new(false);
    let service = service.until(stage.clone());
    let app = Arc::new(App { service, gate, metrics: options.metrics, leaving, stage: stage.clone() });
    let router = routes::router(Arc::clone(&app));
    let tidying = tokio::spawn({
        let app = Arc::clone(&app);
        async move {
            loop {
                tokio::time::sleep(TIDY).await;
                app.gate.tidy();
            }
        }
    });
    let stopped = async move {
        // Whoever could say so being gone means the same.
        drop(stage.wait_for(|stage| *stage >= Stage::Leaving).await);
        app.leaving.store(true, Ordering::Relaxed);
        drop(stage.wait_for(|stage| *stage >= Stage::Stopping).await);
    };
    connections::take(listener, router, options.silence, stopped).await;
    tidying.abort();
}
