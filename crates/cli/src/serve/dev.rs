//! `onward dev`: a local server with its own token, and with an example deployed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use onward_api::OnwardApi as _;
use onward_api::component::ComponentDeployment;
use onward_campaign_delivery::{EnvironmentSecrets, NamedProvider, ProviderRegistry};
use onward_embed::WasmComponentRuntime;
use onward_engine::client::EngineClient;
use onward_engine::node::GuestRuntimes;
use onward_server::AuthMode;
use onward_service::{ApiService, token};
use onward_store::{Store, StorePolicy};

use super::server::{default_scope, serve_until_stopped};
use super::settings::{ServerHostName, ServerSettingsArgs, SettingSource};
use crate::console;
use crate::dev_folder::{self, DevFolder};

/// The compiled example component that is deployed.
const ORDERS_COMPONENT: &[u8] = include_bytes!("../../../../examples/workflows/built/orders.wasm");

/// Lease of campaign jobs: short, so that a developer who kills a process does not wait minutes for
/// the takeover.
const CAMPAIGN_LEASE_MS: NonZeroU64 = NonZeroU64::new(10_000).expect("not zero");

/// Serve a local store for development: SQLite in .onward, loopback only, examples deployed
///
/// Requests need the token in .onward/token, which is created for this user only. Commands that run
/// in this folder or below it find it by themselves; other clients read it from ONWARD_TOKEN.
///
/// Exit codes: 0 the server was stopped, 2 it could not start or its store failed, 130 it was
/// stopped twice.
#[derive(clap::Args)]
pub(crate) struct DevServerArgs {
    /// Address to listen on, loopback only; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7400")]
    listen: SocketAddr,
    /// Folder for the store, the token and the outbox
    #[arg(long, value_name = "FOLDER", default_value = dev_folder::DEFAULT_FOLDER)]
    folder: PathBuf,
    /// Accept requests whose header Host has this name, besides localhost, 127.0.0.1 and ::1
    /// [env: ONWARD_ALLOWED_HOSTS]
    #[arg(long = "allowed-host", value_name = "NAME", value_delimiter = ',')]
    allowed_hosts: Option<Vec<ServerHostName>>,
    /// Allow campaign files to define providers: a user of the token then decides which hosts this
    /// process connects to and which of its secrets it sends there
    #[arg(long)]
    allow_inline_providers: bool,
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
    let folder = DevFolder::create(&args.folder)?;
    let owner_token = folder.load_or_create_token()?;
    let store = onward_embed::store::open_store(
        &format!("sqlite:{}", folder.store_path().display()),
        StorePolicy::default(),
    )
    .await?;
    deploy_examples(&store).await?;
    let settings = ServerSettingsArgs::with_allowed_hosts(args.allowed_hosts.clone());
    let mut settings = settings.resolve_settings()?;
    settings.listen.value = args.listen;
    if settings.campaigns.lease_ms.source == SettingSource::Default {
        settings.campaigns.lease_ms.value = CAMPAIGN_LEASE_MS;
    }
    let allow_inline = args.allow_inline_providers || settings.campaigns.inline_providers.value;
    let providers = ProviderRegistry::new(
        folder_provider_specs(&folder.outbox_path())?,
        allow_inline.into(),
        EnvironmentSecrets,
    );
    let auth_mode = AuthMode::TokensAndOwner(token::token_digest(&owner_token));
    let ready = |address| {
        folder.write_address(address)?;
        print_usage(&folder, address);
        Ok(())
    };
    serve_until_stopped(
        &settings, runtimes, store, providers, auth_mode, None, ready,
    )
    .await
}

/// Prints how to use the server that listens on `address`.
fn print_usage(folder: &DevFolder, address: SocketAddr) {
    let (store, token) = (folder.store_path(), folder.token_path());
    let (store, token, outbox) = (store.display(), token.display(), folder.outbox_path());
    let ready = console::style_success("ready");
    for line in [
        format!("{ready}: http://{address}, store {store}"),
        format!("  API     http://{address}/openapi.json"),
        format!("  health  http://{address}/healthz, /readyz, /metrics"),
        format!("  token   {token}; commands find it in this folder, other clients need"),
        format!("          export ONWARD_TOKEN=$(cat {token})"),
        format!("  try     export ONWARD_SERVER=http://{address}"),
        "          onward start order '{\"customer\":\"Ada\",\"item\":\"lamp\",\"quantity\":2}'"
            .to_owned(),
        "          onward ls".to_owned(),
        "          curl -H \"authorization: Bearer $ONWARD_TOKEN\" $ONWARD_SERVER/v1/executions"
            .to_owned(),
        format!(
            "          onward campaign deploy FILE; provider `folder` writes to {}",
            outbox.display()
        ),
    ] {
        console::print_message(line);
    }
}

/// Returns the provider `folder`, which writes messages to files so that they can be inspected and
/// none is delivered.
fn folder_provider_specs(outbox: &Path) -> anyhow::Result<BTreeMap<String, NamedProvider>> {
    let folder = serde_json::json!({ "folder": { "path": std::path::absolute(outbox)? } });
    Ok([("folder".to_owned(), serde_json::from_value(folder)?)].into())
}

/// Deploys the example component, unless any function is deployed.
async fn deploy_examples(store: &Arc<dyn Store>) -> anyhow::Result<()> {
    let service = ApiService::new(EngineClient::new(Arc::clone(store), default_scope()?))
        .with_component_runtime(Arc::new(WasmComponentRuntime::with_defaults()?));
    if service.list_functions().await?.is_empty() {
        service
            .deploy_component(ComponentDeployment {
                code: ORDERS_COMPONENT.to_vec(),
                ..ComponentDeployment::default()
            })
            .await?;
    }
    Ok(())
}
