//! Connection options of all commands: `--store URL` opens a store in this process, `--server URL`
//! sends requests to a server.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use onward_api::OnwardApi;
use onward_api::client::{ApiClient as ServerClient, ClientConfig as ServerAccess};
use onward_base::{EnvironmentId, ProjectId, Scope, TenantId};
use onward_embed::WasmComponentRuntime;
use onward_engine::client::EngineClient;
use onward_service::ApiService;
use onward_store::StorePolicy;
use serde::Deserialize;

use crate::dev_folder;

/// The store or server that a command uses.
#[derive(clap::Args)]
pub(crate) struct ConnectionArgs {
    /// Store: sqlite:PATH, postgres://USER@HOST/DATABASE or memory: [env: ONWARD_STORE]
    #[arg(long = "store", value_name = "URL", conflicts_with = "server")]
    store: Option<String>,
    /// Server: http://HOST:PORT; the token is read from ONWARD_TOKEN, or from the file that onward
    /// dev created in .onward [env: ONWARD_SERVER]
    #[arg(long = "server", value_name = "URL")]
    server: Option<String>,
    /// Profile in profiles.toml with the server and token to use [env: ONWARD_PROFILE]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["store", "server"])]
    profile: Option<String>,
}

/// The store or server that a command uses, and the scope in it.
#[derive(clap::Args)]
pub(crate) struct ScopedConnectionArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Tenant; on a server, the token's scope applies if none of --tenant, --project and
    /// --environment is given [default: default]
    #[arg(long, env = "ONWARD_TENANT", hide_env_values = true)]
    tenant: Option<TenantId>,
    /// Project; see --tenant [default: default]
    #[arg(long, env = "ONWARD_PROJECT", hide_env_values = true)]
    project: Option<ProjectId>,
    /// Environment; see --tenant [default: default]
    #[arg(long, env = "ONWARD_ENVIRONMENT", hide_env_values = true)]
    environment: Option<EnvironmentId>,
}

/// How a command opens a store. Connections to a server are the same in all modes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessMode {
    /// Read from an existing store.
    Read,
    /// Write to an existing store.
    Write,
    /// Write to a store; create it if it does not exist.
    Create,
}

/// The scope that a command requests of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestedScope {
    /// The scope that `--tenant`, `--project` and `--environment` give.
    Given,
    /// The scope of the token.
    OfToken,
}

/// The store or server that the options and the environment select.
enum ConnectionTarget {
    Store(String),
    Server(ServerAccess),
}

/// An open connection: the API of a store in this process, or of a server.
pub(crate) struct TargetConnection {
    api: Arc<dyn OnwardApi>,
    /// Client of the store; `None` if connected to a server.
    pub(crate) store_client: Option<EngineClient>,
    /// Client of the server; `None` if connected to a store.
    server_client: Option<ServerClient>,
}

impl TargetConnection {
    /// Returns the server client, for operations that are not part of [`OnwardApi`]. Fails if
    /// connected to a store.
    pub(crate) fn require_server(&self) -> anyhow::Result<&ServerClient> {
        self.server_client
            .as_ref()
            .context("not connected to a server: use --server URL or --profile NAME")
    }
}

impl std::ops::Deref for TargetConnection {
    type Target = dyn OnwardApi;

    fn deref(&self) -> &Self::Target {
        &*self.api
    }
}

impl ScopedConnectionArgs {
    /// Returns the scope to use in a store, where no token determines it. Each part defaults to
    /// `default`.
    pub(crate) fn to_scope(&self) -> anyhow::Result<Scope> {
        Ok(Scope {
            tenant: self.tenant.clone().map_or_else(|| "default".parse(), Ok)?,
            project: self.project.clone().map_or_else(|| "default".parse(), Ok)?,
            environment: self
                .environment
                .clone()
                .map_or_else(|| "default".parse(), Ok)?,
        })
    }

    /// Whether a store, server or profile is given, by option or environment variable.
    pub(crate) fn is_target_given(&self) -> bool {
        let ConnectionArgs {
            store,
            server,
            profile,
        } = &self.connection;
        let names = ["ONWARD_STORE", "ONWARD_SERVER", "ONWARD_PROFILE"];
        [store, server, profile].iter().any(|it| it.is_some())
            || names.into_iter().any(|name| env_variable(name).is_some())
    }

    pub(crate) async fn open_connection(
        &self,
        mode: AccessMode,
    ) -> anyhow::Result<TargetConnection> {
        let is_given =
            self.tenant.is_some() || self.project.is_some() || self.environment.is_some();
        let requested = if is_given {
            RequestedScope::Given
        } else {
            RequestedScope::OfToken
        };
        self.connection
            .open_in_scope(mode, self.to_scope()?, requested)
            .await
    }
}

impl ConnectionArgs {
    /// Returns the URL of the store, or `None` if a server is selected.
    pub(crate) fn store_url(&self) -> anyhow::Result<Option<String>> {
        Ok(match self.resolve_target()? {
            ConnectionTarget::Store(url) => Some(url),
            ConnectionTarget::Server(_) => None,
        })
    }

    /// Opens a connection for a command without scope options: the default scope of a store, or the
    /// scope of the token.
    pub(crate) async fn open_connection(
        &self,
        mode: AccessMode,
    ) -> anyhow::Result<TargetConnection> {
        let scope = Scope {
            tenant: "default".parse()?,
            project: "default".parse()?,
            environment: "default".parse()?,
        };
        self.open_in_scope(mode, scope, RequestedScope::OfToken)
            .await
    }

    /// Opens a store in `scope`. Sends `scope` to a server only if it was given; otherwise the
    /// token determines it.
    async fn open_in_scope(
        &self,
        mode: AccessMode,
        scope: Scope,
        requested: RequestedScope,
    ) -> anyhow::Result<TargetConnection> {
        match self.resolve_target()? {
            ConnectionTarget::Server(mut server) => {
                if requested == RequestedScope::Given {
                    let Scope {
                        tenant,
                        project,
                        environment,
                    } = scope;
                    server.scope = Some([
                        tenant.to_string(),
                        project.to_string(),
                        environment.to_string(),
                    ]);
                }
                let server = ServerClient::new(&server)?;
                Ok(TargetConnection {
                    api: Arc::new(server.clone()),
                    store_client: None,
                    server_client: Some(server),
                })
            }
            ConnectionTarget::Store(url) => {
                let client = open_store(&url, mode, scope).await?;
                let mut service = ApiService::new(client.clone()).with_full_access();
                // Only a deployment reads components.
                if mode == AccessMode::Create {
                    service = service
                        .with_component_runtime(Arc::new(WasmComponentRuntime::with_defaults()?));
                }
                Ok(TargetConnection {
                    api: Arc::new(service),
                    store_client: Some(client),
                    server_client: None,
                })
            }
        }
    }
}

async fn open_store(url: &str, mode: AccessMode, scope: Scope) -> anyhow::Result<EngineClient> {
    let opened = match mode {
        AccessMode::Read => onward_embed::store::open_existing_store(url).await?,
        AccessMode::Write => {
            let policy = StorePolicy::default();
            onward_embed::store::open_existing_store_for_writing(url, policy).await?
        }
        AccessMode::Create => onward_embed::store::open_store(url, StorePolicy::default()).await?,
    };
    Ok(EngineClient::new(opened, scope))
}

/// Returns an environment variable; `None` if it is unset or empty.
fn env_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl ConnectionArgs {
    /// Selects the target: options take precedence over environment variables. Fails if both
    /// ONWARD_STORE and ONWARD_SERVER are set.
    fn resolve_target(&self) -> anyhow::Result<ConnectionTarget> {
        let at = |url: &str| ServerAccess {
            url: url.to_owned(),
            token: env_variable("ONWARD_TOKEN").or_else(|| dev_folder::find_token(url)),
            scope: None,
        };
        match (&self.store, &self.server, &self.profile) {
            (Some(url), ..) => return Ok(ConnectionTarget::Store(url.clone())),
            (_, Some(url), _) => return Ok(ConnectionTarget::Server(at(url))),
            (.., Some(name)) => return resolve_profile(name),
            _ => {}
        }
        match (
            env_variable("ONWARD_STORE"),
            env_variable("ONWARD_SERVER"),
            env_variable("ONWARD_PROFILE"),
        ) {
            (Some(_), Some(_), _) => {
                bail!(
                    "ONWARD_STORE and ONWARD_SERVER are both set: use --store URL or --server URL"
                )
            }
            (Some(url), ..) => Ok(ConnectionTarget::Store(url)),
            (_, Some(url), _) => Ok(ConnectionTarget::Server(at(&url))),
            (.., Some(name)) => resolve_profile(&name),
            _ => bail!("no store or server given: use --store URL, --server URL or --profile NAME"),
        }
    }
}

/// An entry of `profiles.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerProfile {
    server: String,
    token: Option<String>,
}

fn resolve_profile(name: &str) -> anyhow::Result<ConnectionTarget> {
    let path = profiles_path()
        .context("cannot locate profiles.toml: neither XDG_CONFIG_HOME nor HOME is set")?;
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!(
            "cannot read {}: --profile needs a table [{name}] with `server` and `token` in this file",
            path.display()
        )
    })?;
    let profiles: BTreeMap<String, ServerProfile> =
        toml::from_str(&text).with_context(|| format!("{}: invalid profiles", path.display()))?;
    let Some(profile) = profiles.get(name) else {
        let names: Vec<&str> = profiles.keys().map(String::as_str).collect();
        bail!(
            "profile {name} not found in {}; its profiles: {}",
            path.display(),
            names.join(", ")
        );
    };
    // The token in the environment is meant for another server, unless the profile has none.
    let token = profile
        .token
        .clone()
        .or_else(|| env_variable("ONWARD_TOKEN"))
        .or_else(|| dev_folder::find_token(&profile.server));
    Ok(ConnectionTarget::Server(ServerAccess {
        url: profile.server.clone(),
        token,
        scope: None,
    }))
}

/// Returns `$XDG_CONFIG_HOME/onward/profiles.toml`, by default below `~/.config`.
fn profiles_path() -> Option<PathBuf> {
    let folder = env_variable("XDG_CONFIG_HOME").map(PathBuf::from);
    Some(
        folder
            .or_else(|| Some(PathBuf::from(env_variable("HOME")?).join(".config")))?
            .join("onward/profiles.toml"),
    )
}
