//! `onward serve`: a node that runs the executions of a store and serves the HTTP API until it is
//! stopped.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use onward_base::Scope;
use onward_campaign_delivery::{EnvironmentSecrets, ProviderRegistry};
use onward_embed::{Engine, EngineBuilder, HostRule};
use onward_engine::client::EngineClient;
use onward_engine::node::GuestRuntimes;
use onward_engine::projector::{self, Projector};
use onward_server::{AuthMode, ConnectionLimits, HostCheck, Listeners, Options};
use onward_service::{ApiService, ServerStage, token};
use onward_store::{Store, StorePolicy};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::campaign_sender::CampaignSender;
use super::settings::{ServerSettings, ServerSettingsArgs};
use super::{otlp, prometheus};
use crate::shutdown::{self, ShutdownSignals};
use crate::{console, fd_limit};

/// Serve a store: run its executions, send its campaigns and serve the HTTP API
///
/// Requests need a bearer token (`onward token create`). A non-loopback address requires that a
/// token exists, and --tls-in-front, so that tokens are never sent unencrypted. Settings come from
/// a file (--config), the environment and the command line; `onward config show` prints them.
///
/// The first SIGTERM or Ctrl-C starts a graceful shutdown: /readyz reports it, running tasks get
/// --drain-timeout-ms to complete, the node releases its shards, and open requests complete. The
/// second exits immediately.
///
/// Exit codes: 0 the server was stopped, 2 it could not start or its store failed, 130 it was
/// stopped twice, or did not stop within 20 s after the drain timeout.
#[derive(clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    settings: ServerSettingsArgs,
}

/// How long open requests and the export of the remaining traces may take during shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client may make no progress in reading a response or sending a body.
const PROGRESS_TIMEOUT_MAX: Duration = Duration::from_secs(30);

pub(crate) async fn serve_store(
    args: &ServeArgs,
    runtimes: GuestRuntimes,
) -> anyhow::Result<ExitCode> {
    let settings = args.settings.resolve_settings()?;
    let Some(url) = settings.store.value.clone() else {
        bail!("no store given: use --store URL")
    };
    let store = onward_embed::store::open_store(&url, StorePolicy::default()).await?;
    let is_public = !settings.listen.value.ip().is_loopback();
    let has_tokens = token::has_any_token(&*store).await?;
    if is_public && !has_tokens {
        bail!(
            "cannot listen on {}, which is not a loopback address, without a token: create one with onward token create",
            settings.listen.value
        );
    }
    if is_public && !settings.tls_in_front.value {
        bail!(
            "cannot listen on {}, which is not a loopback address, without TLS: put a TLS proxy in front of the server and use --tls-in-front",
            settings.listen.value
        );
    }
    if !has_tokens {
        console::print_message(
            "the store has no token: create one with onward token create --store URL --role admin NAME",
        );
    }
    let limit = Some(settings.requests_per_second.value);
    let providers = ProviderRegistry::new(
        settings.providers.value.clone(),
        settings.campaigns.inline_providers.value.into(),
        EnvironmentSecrets,
    );
    serve_until_stopped(
        &settings,
        runtimes,
        store,
        providers,
        AuthMode::Tokens,
        limit,
        |address| {
            console::print_message(format_args!(
                "{} on http://{address}",
                console::style_success("serving")
            ));
            Ok(())
        },
    )
    .await
}

/// Runs the engine, the dispatcher and the HTTP server until a signal or a failure. Calls `ready`
/// with the address once it accepts requests.
pub(super) async fn serve_until_stopped(
    settings: &ServerSettings,
    runtimes: GuestRuntimes,
    store: Arc<dyn Store>,
    providers: ProviderRegistry,
    auth_mode: AuthMode,
    requests_per_second: Option<std::num::NonZeroU32>,
    ready: impl FnOnce(SocketAddr) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let connections = connection_limits(settings, fd_limit::raise_fd_limit());
    let metrics = prometheus::install_metrics_recorder()?;
    let listeners = bind_listeners(settings).await?;
    let address = listeners.api.local_addr()?;
    let mut builder = engine_builder(settings, Arc::clone(&store))?
        .with_guest_runtimes(runtimes)
        .with_address(&address.to_string());
    let mut trace_export = None;
    if let Some(endpoint) = &settings.otlp_endpoint.value {
        let (otlp, export) = otlp::start_otlp_export(endpoint, &settings.node_name.value)?;
        builder = builder.with_span_exporter(otlp);
        trace_export = Some(tokio::spawn(export));
    }
    let mut engine = builder.open().await?;
    let projecting = tokio::spawn(
        Projector::new(Arc::clone(&store), projector::ProjectorOptions::default()).run(),
    );
    let providers = Arc::new(providers);
    let mut campaigns =
        CampaignSender::start_sending(settings, &store, engine.node().id(), &providers);
    let service = ApiService::new(EngineClient::new(store, default_scope()?))
        .with_component_runtime(engine.component_runtime())
        .with_local_node(engine.node())
        .with_providers(providers);
    let (stage, staged) = watch::channel(ServerStage::Serving);
    let options = Options {
        auth_mode,
        host_check: build_host_check(settings, address),
        requests_per_second,
        connections,
        metrics: Some(metrics),
    };
    let mut serving = tokio::spawn(onward_server::serve_http(
        listeners, service, options, staged,
    ));
    let mut signals = ShutdownSignals::install_handlers()?;
    ready(address)?;
    tokio::select! {
        () = signals.next_signal() => {}
        error = engine.wait_for_failure() => return Err(error.into()),
        error = campaigns.wait_for_failure() => return Err(error),
        ended = &mut serving => {
            ended?;
            bail!("the HTTP server stopped unexpectedly");
        }
    }
    console::print_message("draining; send the signal again to exit immediately");
    signals.exit_on_next_signal(drain_timeout(settings))?;
    // The server keeps answering while it drains, so that load balancers can see /readyz first.
    stage.send_replace(ServerStage::Draining);
    campaigns.stop_sending();
    let drained = shutdown::stop_engine(engine, drain_timeout(settings)).await;
    let sent = campaigns.drain_sends().await;
    projecting.abort();
    stage.send_replace(ServerStage::Stopping);
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, &mut serving)
        .await
        .is_err()
    {
        serving.abort();
    }
    // The engine has stopped, so no span is added any more.
    if let Some(trace_export) = trace_export {
        finish_trace_export(trace_export).await;
    }
    drained?;
    sent?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the sockets of the API and, if they have an address of their own, of the metrics.
async fn bind_listeners(settings: &ServerSettings) -> anyhow::Result<Listeners> {
    let bind = async |address: SocketAddr| {
        TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))
    };
    let api = bind(settings.listen.value).await?;
    let metrics = match settings.metrics_address.value {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    if let Some(metrics) = &metrics {
        let address = metrics.local_addr()?;
        console::print_message(format_args!("metrics on {address}/metrics"));
    }
    Ok(Listeners { api, metrics })
}

/// Returns the limits of connections. At most half of the files that this process may open are
/// connections: the store and outgoing requests need the others.
fn connection_limits(settings: &ServerSettings, fd_limit: Option<u64>) -> ConnectionLimits {
    let configured = u64::from(settings.connections.max_connections.value.get());
    let max_total = fd_limit.map_or(configured, |limit| configured.min(limit / 2).max(1));
    let max_per_peer = match settings.connections.max_connections_per_peer.value {
        Some(max) => u64::from(max.get()),
        // All connections come from the proxy.
        None if settings.tls_in_front.value => max_total,
        None => max_total.div_ceil(2),
    };
    let idle_timeout = Duration::from_millis(settings.connections.idle_timeout_ms.value.get());
    ConnectionLimits {
        max_total: usize::try_from(max_total).unwrap_or(usize::MAX),
        max_per_peer: usize::try_from(max_per_peer).unwrap_or(usize::MAX),
        header_timeout: idle_timeout,
        write_timeout: idle_timeout.min(PROGRESS_TIMEOUT_MAX),
    }
}

/// Returns the check of the hosts that requests name, for a server that listens on `address`.
fn build_host_check(settings: &ServerSettings, address: SocketAddr) -> HostCheck {
    let allowed = settings.allowed_hosts.value.iter();
    let allowed: Vec<String> = allowed.map(ToString::to_string).collect();
    HostCheck::new(address, &allowed)
}

/// Waits until the remaining spans are exported, at most [`SHUTDOWN_TIMEOUT`].
async fn finish_trace_export(trace_export: JoinHandle<()>) {
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, trace_export)
        .await
        .is_err()
    {
        tracing::warn!("some traces could not be exported before the shutdown timeout");
    }
}

fn drain_timeout(settings: &ServerSettings) -> Duration {
    Duration::from_millis(settings.drain_timeout_ms.value)
}

fn engine_builder(
    settings: &ServerSettings,
    store: Arc<dyn Store>,
) -> anyhow::Result<EngineBuilder> {
    let rule = |private_networks| {
        move |pattern: &onward_embed::HostPattern| HostRule {
            pattern: pattern.clone(),
            private_networks,
        }
    };
    let public = settings.allow_hosts.value.iter().map(rule(false));
    let hosts = public.chain(settings.allow_private_hosts.value.iter().map(rule(true)));
    let lease = Duration::from_millis(settings.lease_ms.value.get());
    let engine = Engine::on_store(store)
        .with_scope(default_scope()?)
        .with_name(&settings.node_name.value);
    Ok(engine
        .with_lease(lease)
        .with_drain_timeout(drain_timeout(settings))
        .with_guest_memory(settings.guest_memory_mib.value.get() << 20)
        .with_code_limit((settings.max_code_kib.value.get() as usize) << 10)
        .allow_hosts(hosts)
        .with_workers())
}

/// Returns the scope that is used where none is given: `default` in all parts.
pub(super) fn default_scope() -> anyhow::Result<Scope> {
    Ok(Scope {
        tenant: "default".parse()?,
        project: "default".parse()?,
        environment: "default".parse()?,
    })
}
