//! `--store URL` or `--server URL`: a command looks into a store itself, or asks a server that does.

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

/// Where to look.
#[derive(clap::Args)]
pub(crate) struct ConnectionArgs {
    /// A store: sqlite:PATH, postgres://USER@HOST/DATABASE or memory: [env: ONWARD_STORE]
    #[arg(long = "store", value_name = "URL", conflicts_with = "server")]
    store: Option<String>,
    /// A server: http://HOST:PORT [env: ONWARD_SERVER, and ONWARD_TOKEN for the token]
    #[arg(long = "server", value_name = "URL")]
    server: Option<String>,
    /// A server and a token by the name that profiles.toml has for them [env: ONWARD_PROFILE]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["store", "server"])]
    profile: Option<String>,
}

/// Where to look, and whose things are meant.
#[derive(clap::Args)]
pub(crate) struct ScopedConnectionArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The tenant
    #[arg(long, env = "ONWARD_TENANT", hide_env_values = true)]
    tenant: Option<TenantId>,
    /// The project
    #[arg(long, env = "ONWARD_PROJECT", hide_env_values = true)]
    project: Option<ProjectId>,
    /// The environment
    #[arg(long, env = "ONWARD_ENVIRONMENT", hide_env_values = true)]
    environment: Option<EnvironmentId>,
}

/// What a command wants of a store. A server is what it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessMode {
    /// To read from one that is there.
    Read,
    /// To write to one that is there.
    Write,
    /// To write, also to one that is new.
    Create,
}

/// Where a command looks.
enum ConnectionTarget {
    Store(String),
    Server(ServerAccess),
}

/// What a command asks.
pub(crate) struct TargetConnection {
    api: Arc<dyn OnwardApi>,
    /// The store, where there is no server.
    pub(crate) store_client: Option<EngineClient>,
    /// The server, where there is no store.
    server_client: Option<ServerClient>,
}

impl TargetConnection {
    /// The server, for what only servers have a way to say.
    pub(crate) fn require_server(&self) -> anyhow::Result<&ServerClient> {
        self.server_client.as_ref().context("there is no server")
    }
}

impl std::ops::Deref for TargetConnection {
    type Target = dyn OnwardApi;

    fn deref(&self) -> &Self::Target {
        &*self.api
    }
}

impl ScopedConnectionArgs {
    /// Whose things are meant in a store, where there is no token that says so.
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

    /// Whether it is said where to look.
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
        want: AccessMode,
    ) -> anyhow::Result<TargetConnection> {
        let is_said = self.tenant.is_some() || self.project.is_some() || self.environment.is_some();
        self.connection
            .open_in_scope(want, self.to_scope()?, is_said)
            .await
    }
}

impl ConnectionArgs {
    /// The URL of the store, unless a server is to be asked.
    pub(crate) fn store_url(&self) -> anyhow::Result<Option<String>> {
        Ok(match self.resolve_target()? {
            ConnectionTarget::Store(url) => Some(url),
            ConnectionTarget::Server(_) => None,
        })
    }

    /// For whoever has the store, or the token.
    pub(crate) async fn open_connection(
        &self,
        want: AccessMode,
    ) -> anyhow::Result<TargetConnection> {
        let scope = Scope {
            tenant: "default".parse()?,
            project: "default".parse()?,
            environment: "default".parse()?,
        };
        self.open_in_scope(want, scope, false).await
    }

    /// A server knows whose things are meant unless that `is_said`.
    async fn open_in_scope(
        &self,
        want: AccessMode,
        scope: Scope,
        is_said: bool,
    ) -> anyhow::Result<TargetConnection> {
        match self.resolve_target()? {
            ConnectionTarget::Server(mut server) => {
                if is_said {
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
                let client = open_store(&url, want, scope).await?;
                let mut service = ApiService::new(client.clone()).with_full_access();
                // Nothing but a deployment looks into components.
                if want == AccessMode::Create {
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

async fn open_store(url: &str, want: AccessMode, scope: Scope) -> anyhow::Result<EngineClient> {
    let opened = match want {
        AccessMode::Read => onward_embed::store::open_existing_store(url).await?,
        AccessMode::Write => {
            drop(onward_embed::store::open_existing_store(url).await?);
            onward_embed::store::open_store(url, StorePolicy::default()).await?
        }
        AccessMode::Create => onward_embed::store::open_store(url, StorePolicy::default()).await?,
    };
    Ok(EngineClient::new(opened, scope))
}

/// A variable that says something.
fn env_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl ConnectionArgs {
    /// What is said on the command line counts, then what the environment says.
    fn resolve_target(&self) -> anyhow::Result<ConnectionTarget> {
        let at = |url: &str| ServerAccess {
            url: url.to_owned(),
            token: env_variable("ONWARD_TOKEN"),
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
                bail!("ONWARD_STORE and ONWARD_SERVER are both set: say --store or --server")
            }
            (Some(url), ..) => Ok(ConnectionTarget::Store(url)),
            (_, Some(url), _) => Ok(ConnectionTarget::Server(at(&url))),
            (.., Some(name)) => resolve_profile(&name),
            _ => bail!("where to look is not said: --store URL, --server URL or --profile NAME"),
        }
    }
}

/// A server in `profiles.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerProfile {
    server: String,
    token: Option<String>,
}

fn resolve_profile(name: &str) -> anyhow::Result<ConnectionTarget> {
    let path =
        profiles_path().context("there is no home folder, and XDG_CONFIG_HOME is not set")?;
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let profiles: BTreeMap<String, ServerProfile> =
        toml::from_str(&text).with_context(|| format!("{} makes no sense", path.display()))?;
    let Some(profile) = profiles.get(name) else {
        let names: Vec<&str> = profiles.keys().map(String::as_str).collect();
        bail!(
            "{} has no profile {name}; it has: {}",
            path.display(),
            names.join(", ")
        );
    };
    // A token of the environment is for another server, unless the profile has none.
    let token = profile
        .token
        .clone()
        .or_else(|| env_variable("ONWARD_TOKEN"));
    Ok(ConnectionTarget::Server(ServerAccess {
        url: profile.server.clone(),
        token,
        scope: None,
    }))
}

/// `$XDG_CONFIG_HOME/onward/profiles.toml`, or below the home folder.
fn profiles_path() -> Option<PathBuf> {
    let folder = env_variable("XDG_CONFIG_HOME").map(PathBuf::from);
    Some(
        folder
            .or_else(|| Some(PathBuf::from(env_variable("HOME")?).join(".config")))?
            .join("onward/profiles.toml"),
    )
}
