//! `onward dev`: everything on a laptop, without a token, with something to try.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use onward_api::OnwardApi as _;
use onward_campaign_delivery::{EnvironmentSecrets, ProviderRegistry, ProviderSpec};
use onward_embed::WasmComponentRuntime;
use onward_engine::client::EngineClient;
use onward_server::AuthMode;
use onward_service::ApiService;
use onward_store::{Store, StorePolicy};

use super::server::{default_scope, serve_until_stopped};
use super::settings::{ServerSettingsArgs, SettingSource};
use crate::console;

/// The example that is there to be tried.
const ORDERS_COMPONENT: &[u8] = include_bytes!("../../../../examples/workflows/built/orders.wasm");

/// How long a campaign stands still when a process was killed: whoever tries that out does not wait for minutes.
const CAMPAIGN_LEASE_MS: NonZeroU64 = NonZeroU64::new(10_000).expect("not zero");

/// Serve a store of your own on this machine: SQLite in .onward, loopback only, no token needed, examples deployed
///
/// Exit codes: 0 it was stopped, 2 it could not serve, or its store failed, 130 it was stopped twice.
#[derive(clap::Args)]
pub(crate) struct DevServerArgs {
    /// Where to listen, on loopback; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    listen: SocketAddr,
    /// Where its files are
    #[arg(long, value_name = "FOLDER", default_value = ".onward")]
    folder: PathBuf,
}

pub(crate) async fn run_dev_server(args: &DevServerArgs) -> anyhow::Result<ExitCode> {
    if !args.listen.ip().is_loopback() {
        bail!(
            "{} is beyond loopback: onward serve is for that",
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
    if settings.campaigns.lease_ms.source == SettingSource::Usual {
        settings.campaigns.lease_ms.value = CAMPAIGN_LEASE_MS;
    }
    let outbox = args.folder.join("outbox");
    let house = ProviderRegistry::new(folder_provider_specs(&outbox)?, true, EnvironmentSecrets);
    serve_until_stopped(&settings, store, house, AuthMode::Disabled, None, |address| {
        let word = console::style_success("ready");
        console::print_message(format_args!("{word}: http://{address}, store {}", path.display()));
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

/// What campaigns are sent by unless their files say otherwise: nobody is reached, and everything can be looked at.
fn folder_provider_specs(outbox: &Path) -> anyhow::Result<BTreeMap<String, ProviderSpec>> {
    let folder = serde_json::json!({ "folder": { "path": std::path::absolute(outbox)? } });
    Ok([("folder".to_owned(), serde_json::from_value(folder)?)].into())
}

/// The examples, unless something of that name is there.
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
