//! `onward dev`: a local server without tokens, with an example deployed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use onward_api::OnwardApi as _;
use onward_campaign_delivery::{
    EnvironmentSecrets, InlineProviderPolicy, ProviderRegistry, ProviderSpec,
};
use onward_embed::WasmComponentRuntime;
use onward_engine::client::EngineClient;
use onward_engine::node::GuestRuntimes;
use onward_server::AuthMode;
use onward_service::ApiService;
use onward_store::{Store, StorePolicy};

use super::server::{default_scope, serve_until_stopped};
use super::settings::{ServerSettingsArgs, SettingSource};
use crate::console;

/// The compiled example component that is deployed.
const ORDERS_COMPONENT: &[u8] = include_bytes!("../../../../examples/workflows/built/orders.wasm");

/// Lease of campaign jobs: short, so that a developer who kills a process does not wait minutes for
/// the takeover.
const CAMPAIGN_LEASE_MS: NonZeroU64 = NonZeroU64::new(10_000).expect("not zero");

/// Serve a local store for development: SQLite in .onward, loopback only, no token, examples
/// deployed
///
/// Exit codes: 0 the server was stopped, 2 it could not start or its store failed, 130 it was
/// stopped twice.
#[derive(clap::Args)]
pub(crate) struct DevServerArgs {
    /// Address to listen on, loopback only; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    listen: SocketAddr,
    /// Folder for the store and the outbox
    #[arg(long, value_name = "FOLDER", default_value = ".onward")]
    folder: PathBuf,
}

pub(crate) async fn run_dev_server(
    args: &DevServerArgs,
    runtimes: GuestRuntimes,
) -> anyhow::Result<ExitCode> {
    if !args.listen.ip().is_loopback() {
        bail!(
            "--listen {} is not a loopback address: use onward serve",
            args.listen
        );
    }
    std::fs::create_dir_all(&args.folder)
        .with_context(|| format!("cannot create {}", args.folder.display()))?;
    let path = args.folder.join("onward.db");
    let store = onward_embed::store::open_store(
        &format!("sqlite:{}", path.display()),
        StorePolicy::default(),
    )
    .await?;
    deploy_examples(&store).await?;
    let mut settings = ServerSettingsArgs::default().resolve_settings()?;
    settings.listen.value = args.listen;
    if settings.campaigns.lease_ms.source == SettingSource::Default {
        settings.campaigns.lease_ms.value = CAMPAIGN_LEASE_MS;
    }
    let outbox = args.folder.join("outbox");
    let providers = ProviderRegistry::new(
        folder_provider_specs(&outbox)?,
        InlineProviderPolicy::Allow,
        EnvironmentSecrets,
    );
    serve_until_stopped(&settings, runtimes, store, providers, AuthMode::Disabled, None, |address| {
        let ready = console::style_success("ready");
        console::print_message(format_args!("{ready}: http://{address}, store {}", path.display()));
        console::print_message(format_args!("  API     http://{address}/openapi.json"));
        console::print_message(format_args!("  health  http://{address}/healthz, /readyz, /metrics"));
        console::print_message(format_args!("  try     export ONWARD_SERVER=http://{address}"));
        console::print_message("          onward start order '{\"customer\":\"Ada\",\"item\":\"lamp\",\"quantity\":2}'");
        console::print_message("          onward ls");
        console::print_message(format_args!(
            "          onward campaign deploy FILE; provider `folder` writes to {}",
            outbox.display()
        ));
        Ok(())
    })
    .await
}

/// Returns the provider `folder`, which writes messages to files so that they can be inspected and
/// none is delivered.
fn folder_provider_specs(outbox: &Path) -> anyhow::Result<BTreeMap<String, ProviderSpec>> {
    let folder = serde_json::json!({ "folder": { "path": std::path::absolute(outbox)? } });
    Ok([("folder".to_owned(), serde_json::from_value(folder)?)].into())
}

/// Deploys the example component, unless any function is deployed.
async fn deploy_examples(store: &Arc<dyn Store>) -> anyhow::Result<()> {
    let service = ApiService::new(EngineClient::new(Arc::clone(store), default_scope()?))
        .with_component_runtime(Arc::new(WasmComponentRuntime::with_defaults()?));
    if service.list_functions().await?.is_empty() {
        service
            .deploy_component(ORDERS_COMPONENT.to_vec(), Vec::new())
            .await?;
    }
    Ok(())
}
