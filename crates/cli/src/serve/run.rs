//! `onward serve`: a node that works on a store and answers over HTTP, until it is stopped.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use onward_embed::{Builder, Engine, HostRule};
use onward_engine::client::{Client, Scope};
use onward_engine::projector::{self, Projector};
use onward_server::{Admission, Options, Service, token};
use onward_store::{Policy, Store};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::settings::{SettingArgs, Settings};
use crate::{descriptors, paint};

/// Serve a store: run its executions, and answer over HTTP
///
/// Who asks needs a token (`onward token create`). Beyond loopback it listens only if there is one, and if --tls-in-front says that something in front of it speaks
/// TLS: tokens must not travel in the open. Settings come from a file (--config), the environment and the command line; `onward config show` prints them.
///
/// The first SIGTERM or Ctrl-C lets requests finish, gives its shards up and ends; the second ends at once.
///
/// Exit codes: 0 it was stopped, 2 it could not serve, or its store failed, 130 it was stopped twice.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: SettingArgs,
}

/// How long requests may take that are under way when it is told to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// What a shell reports for a program that Ctrl-C ended.
const EXIT_INTERRUPTED: i32 = 128 + 2;

/// The buckets of everything that takes time.
const SECONDS: [f64; 13] = [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0];

/// How often histograms are tidied.
const UPKEEP: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = args.settings.settle()?;
    let Some(url) = settings.store.value.clone() else { bail!("which store to serve is not said: --store URL") };
    let store = onward_embed::store::open(&url, Policy::default()).await?;
    let is_open = !settings.listen.value.ip().is_loopback();
    let has_tokens = token::is_any(&*store).await?;
    if is_open && !has_tokens {
        bail!("{} is beyond loopback, and nobody has a token: onward token create", settings.listen.value);
    }
    if is_open && !settings.tls_in_front.value {
        bail!(
            "{} is beyond loopback, and tokens would travel in the open: --tls-in-front says that something in front speaks TLS",
            settings.listen.value
        );
    }
    if !has_tokens {
        paint::say("nobody has a token yet: onward token create --store … --role admin NAME");
    }
    let limit = Some(settings.requests_per_second.value);
    serve(&settings, store, Admission::Tokens, limit, |address| {
        paint::say(format_args!("{} on http://{address}", paint::good("serving")));
        Ok(())
    })
    .await
}

/// Works and answers until it is told to stop. `ready` is told where.
pub(super) async fn serve(
    settings: &Settings,
    store: Arc<dyn Store>,
    admission: Admission,
    requests_per_second: Option<std::num::NonZeroU32>,
    ready: impl FnOnce(std::net::SocketAddr) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    descriptors::allow_many();
    let metrics = recorder()?;
    let listener = TcpListener::bind(settings.listen.value)
        .await
        .with_context(|| format!("cannot listen on {}", settings.listen.value))?;
    let address = listener.local_addr()?;
    let mut engine = builder(settings, Arc::clone(&store))?.open().await?;
    let projecting = tokio::spawn(Projector::new(Arc::clone(&store), projector::Options::default()).run());
    let service = Service::new(Client::new(store, usual_scope()?)).with_code(engine.code()).beside(engine.node());
    let (stop, stopped) = watch::channel(false);
    let options = Options { admission, requests_per_second, metrics: Some(metrics) };
    let mut serving = tokio::spawn(onward_server::serve(listener, service, options, stopped));
    ready(address)?;
    tokio::select! {
        asked = asked_to_stop() => asked?,
        error = engine.failed() => return Err(error.into()),
        ended = &mut serving => {
            ended??;
            bail!("the server has ended, and nobody asked for it");
        }
    }
    paint::say("stopping; once more to stop at once");
    let again = tokio::spawn(async {
        if asked_to_stop().await.is_ok() {
            std::process::exit(EXIT_INTERRUPTED);
        }
    });
    stop.send_replace(true);
    if tokio::time::timeout(DRAIN, &mut serving).await.is_err() {
        serving.abort();
    }
    projecting.abort();
    engine.stop().await?;
    again.abort();
    Ok(ExitCode::SUCCESS)
}

fn recorder() -> anyhow::Result<PrometheusHandle> {
    let recorder = PrometheusBuilder::new().set_buckets(&SECONDS).context("metrics cannot be kept")?;
    let handle = recorder.install_recorder().context("metrics cannot be kept")?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}

fn builder(settings: &Settings, store: Arc<dyn Store>) -> anyhow::Result<Builder> {
    let rule = |private_networks| {
        move |pattern: &onward_embed::HostPattern| HostRule { pattern: pattern.clone(), private_networks }
    };
    let public = settings.allow_hosts.value.iter().map(rule(false));
    let hosts = public.chain(settings.allow_private_hosts.value.iter().map(rule(true)));
    let lease = Duration::from_millis(settings.lease_ms.value.get());
    Ok(Engine::on(store).scope(usual_scope()?).name(&settings.node_name.value).lease(lease).allow_hosts(hosts))
}

/// Whose things are meant where nothing is said.
pub(super) fn usual_scope() -> anyhow::Result<Scope> {
    Ok(Scope { tenant: "default".parse()?, project: "default".parse()?, environment: "default".parse()? })
}

async fn asked_to_stop() -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        asked = tokio::signal::ctrl_c() => Ok(asked?),
        _ = terminated.recv() => Ok(()),
    }
}
