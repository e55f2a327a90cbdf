//! `onward serve`: a node that works on a store and answers over HTTP, until it is stopped.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use onward_embed::{Builder, Engine, HostRule};
use onward_engine::client::{Client, Scope};
use onward_engine::projector::{self, Projector};
use onward_outlets::House;
use onward_providers::Environment;
use onward_server::{Admission, Options, Service, Stage, token};
use onward_store::{Policy, Store};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::campaigns::Sending;
use super::settings::{SettingArgs, Settings};
use super::{measured, traces};
use crate::signals::Signals;
use crate::{descriptors, paint};

/// Serve a store: run its executions, and answer over HTTP
///
/// Who asks needs a token (`onward token create`). Beyond loopback it listens only if there is one, and if --tls-in-front says that something in front of it speaks
/// TLS: tokens must not travel in the open. Settings come from a file (--config), the environment and the command line; `onward config show` prints them.
///
/// The first SIGTERM or Ctrl-C makes /readyz say so, lets tasks under way end (for --drain-ms), gives its shards up and lets requests finish; the second ends at once.
///
/// Exit codes: 0 it was stopped, 2 it could not serve, or its store failed, 130 it was stopped twice.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    settings: SettingArgs,
}

/// How long requests may take that are under way when it stops to listen.
const ANSWER: Duration = Duration::from_secs(5);

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
    let house = House::new(settings.providers.value.clone(), settings.campaigns.inline_providers.value, Environment);
    serve(&settings, store, house, Admission::Tokens, limit, |address| {
        paint::say(format_args!("{} on http://{address}", paint::good("serving")));
        Ok(())
    })
    .await
}

/// Works and answers until it is told to stop. `ready` is told where.
pub(super) async fn serve(
    settings: &Settings,
    store: Arc<dyn Store>,
    house: House,
    admission: Admission,
    requests_per_second: Option<std::num::NonZeroU32>,
    ready: impl FnOnce(std::net::SocketAddr) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    descriptors::allow_many();
    let metrics = measured::recorder()?;
    let listener = TcpListener::bind(settings.listen.value)
        .await
        .with_context(|| format!("cannot listen on {}", settings.listen.value))?;
    let address = listener.local_addr()?;
    let mut builder = builder(settings, Arc::clone(&store))?.address(&address.to_string());
    let mut sending = None;
    if let Some(endpoint) = &settings.otlp_endpoint.value {
        let (otlp, send) = traces::otlp(endpoint, &settings.node_name.value)?;
        builder = builder.traces(otlp);
        sending = Some(tokio::spawn(send));
    }
    let mut engine = builder.open().await?;
    let projecting = tokio::spawn(Projector::new(Arc::clone(&store), projector::Options::default()).run());
    let house = Arc::new(house);
    let mut campaigns = Sending::begin(settings, &store, engine.node().id(), &house);
    let service = Service::new(Client::new(store, usual_scope()?)).with_code(engine.code()).beside(engine.node());
    let service = service.with_house(house);
    let (stage, staged) = watch::channel(Stage::Serving);
    let silence = Duration::from_millis(settings.idle_ms.value.get());
    let options = Options { admission, requests_per_second, silence, metrics: Some(metrics) };
    let mut serving = tokio::spawn(onward_server::serve(listener, service, options, staged));
    let mut signals = Signals::listen()?;
    ready(address)?;
    tokio::select! {
        () = signals.next() => {}
        error = engine.failed() => return Err(error.into()),
        error = campaigns.failed() => return Err(error),
        ended = &mut serving => {
            ended?;
            bail!("the server has ended, and nobody asked for it");
        }
    }
    paint::say("stopping; once more to stop at once");
    let again = signals.exit_at_next();
    // It answers as long as it drains: whoever sends requests here has to find out first.
    stage.send_replace(Stage::Leaving);
    campaigns.stop();
    let drained = engine.stop().await;
    let sent = campaigns.end().await;
    projecting.abort();
    stage.send_replace(Stage::Stopping);
    if tokio::time::timeout(ANSWER, &mut serving).await.is_err() {
        serving.abort();
    }
    // What is left of the traces is sent: nobody can add to it.
    if let Some(sending) = sending
        && tokio::time::timeout(ANSWER, sending).await.is_err()
    {
        tracing::warn!("some traces could not be sent in time");
    }
    again.abort();
    drained?;
    sent?;
    Ok(ExitCode::SUCCESS)
}

fn builder(settings: &Settings, store: Arc<dyn Store>) -> anyhow::Result<Builder> {
    let rule = |private_networks| {
        move |pattern: &onward_embed::HostPattern| HostRule { pattern: pattern.clone(), private_networks }
    };
    let public = settings.allow_hosts.value.iter().map(rule(false));
    let hosts = public.chain(settings.allow_private_hosts.value.iter().map(rule(true)));
    let lease = Duration::from_millis(settings.lease_ms.value.get());
    let drain = Duration::from_millis(settings.drain_ms.value);
    let engine = Engine::on(store).scope(usual_scope()?).name(&settings.node_name.value);
    Ok(engine.lease(lease).drain(drain).allow_hosts(hosts).workers())
}

/// Whose things are meant where nothing is said.
pub(super) fn usual_scope() -> anyhow::Result<Scope> {
    Ok(Scope { tenant: "default".parse()?, project: "default".parse()?, environment: "default".parse()? })
}
