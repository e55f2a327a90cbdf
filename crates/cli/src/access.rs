//! `--store URL` or `--server URL`: a command looks into a store itself, or asks a server that does.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use onward_api::Onward;
use onward_api::client::{Access as ServerAccess, Client as ServerClient};
use onward_embed::Wasm;
use onward_engine::client::{Client, Scope};
use onward_runs::{EnvironmentId, ProjectId, TenantId};
use onward_server::Service;
use onward_store::Policy;
use serde::Deserialize;

/// Where to look.
#[derive(clap::Args)]
pub(crate) struct PlaceArgs {
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
pub(crate) struct WorkArgs {
    #[command(flatten)]
    place: PlaceArgs,
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
pub(crate) enum Want {
    /// To read from one that is there.
    Read,
    /// To write to one that is there.
    Write,
    /// To write, also to one that is new.
    Create,
}

/// Where a command looks.
enum Place {
    Store(String),
    Server(ServerAccess),
}

/// What a command asks.
pub(crate) struct Access {
    onward: Arc<dyn Onward>,
    /// The store, where there is no server.
    pub(crate) client: Option<Client>,
    /// The server, where there is no store.
    server: Option<ServerClient>,
}

impl Access {
    /// The server, for what only servers have a way to say.
    pub(crate) fn server(&self) -> anyhow::Result<&ServerClient> {
        self.server.as_ref().context("there is no server")
    }
}

impl std::ops::Deref for Access {
    type Target = dyn Onward;

    fn deref(&self) -> &Self::Target {
        &*self.onward
    }
}

impl WorkArgs {
    /// Whose things are meant in a store, where there is no token that says so.
    pub(crate) fn scope(&self) -> anyhow::Result<Scope> {
        Ok(Scope {
            tenant: self.tenant.clone().map_or_else(|| "default".parse(), Ok)?,
            project: self.project.clone().map_or_else(|| "default".parse(), Ok)?,
            environment: self.environment.clone().map_or_else(|| "default".parse(), Ok)?,
        })
    }

    /// Whether it is said where to look.
    pub(crate) fn is_said(&self) -> bool {
        let PlaceArgs { store, server, profile } = &self.place;
        let names = ["ONWARD_STORE", "ONWARD_SERVER", "ONWARD_PROFILE"];
        [store, server, profile].iter().any(|it| it.is_some()) || names.into_iter().any(|name| variable(name).is_some())
    }

    pub(crate) async fn open(&self, want: Want) -> anyhow::Result<Access> {
        let is_said = self.tenant.is_some() || self.project.is_some() || self.environment.is_some();
        self.place.open_for(want, self.scope()?, is_said).await
    }
}

impl PlaceArgs {
    /// The URL of the store, unless a server is to be asked.
    pub(crate) fn store_url(&self) -> anyhow::Result<Option<String>> {
        Ok(match self.find()? {
            Place::Store(url) => Some(url),
            Place::Server(_) => None,
        })
    }

    /// For whoever has the store, or the token.
    pub(crate) async fn open(&self, want: Want) -> anyhow::Result<Access> {
        let scope = Scope { tenant: "default".parse()?, project: "default".parse()?, environment: "default".parse()? };
        self.open_for(want, scope, false).await
    }

    /// A server knows whose things are meant unless that `is_said`.
    async fn open_for(&self, want: Want, scope: Scope, is_said: bool) -> anyhow::Result<Access> {
        match self.find()? {
            Place::Server(mut server) => {
                if is_said {
                    let Scope { tenant, project, environment } = scope;
                    server.scope = Some([tenant.to_string(), project.to_string(), environment.to_string()]);
                }
                let server = ServerClient::new(&server)?;
                Ok(Access { onward: Arc::new(server.clone()), client: None, server: Some(server) })
            }
            Place::Store(url) => {
                let client = store(&url, want, scope).await?;
                let mut service = Service::new(client.clone()).with_all();
                // Nothing but a deployment looks into components.
                if want == Want::Create {
                    service = service.with_code(Arc::new(Wasm::usual()?));
                }
                Ok(Access { onward: Arc::new(service), client: Some(client), server: None })
            }
        }
    }
}

async fn store(url: &str, want: Want, scope: Scope) -> anyhow::Result<Client> {
    let opened = match want {
        Want::Read => onward_embed::store::open_existing(url).await?,
        Want::Write => {
            drop(onward_embed::store::open_existing(url).await?);
            onward_embed::store::open(url, Policy::default()).await?
        }
        Want::Create => onward_embed::store::open(url, Policy::default()).await?,
    };
    Ok(Client::new(opened, scope))
}

/// A variable that says something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl PlaceArgs {
    /// What is said on the command line counts, then what the environment says.
    fn find(&self) -> anyhow::Result<Place> {
        let at = |url: &str| ServerAccess { url: url.to_owned(), token: variable("ONWARD_TOKEN"), scope: None };
        match (&self.store, &self.server, &self.profile) {
            (Some(url), ..) => return Ok(Place::Store(url.clone())),
            (_, Some(url), _) => return Ok(Place::Server(at(url))),
            (.., Some(name)) => return profile(name),
            _ => {}
        }
        match (variable("ONWARD_STORE"), variable("ONWARD_SERVER"), variable("ONWARD_PROFILE")) {
            (Some(_), Some(_), _) => bail!("ONWARD_STORE and ONWARD_SERVER are both set: say --store or --server"),
            (Some(url), ..) => Ok(Place::Store(url)),
            (_, Some(url), _) => Ok(Place::Server(at(&url))),
            (.., Some(name)) => profile(&name),
            _ => bail!("where to look is not said: --store URL, --server URL or --profile NAME"),
        }
    }
}

/// A server in `profiles.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    server: String,
    token: Option<String>,
}

fn profile(name: &str) -> anyhow::Result<Place> {
    let path = profiles().context("there is no home folder, and XDG_CONFIG_HOME is not set")?;
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let profiles: BTreeMap<String, Profile> =
        toml::from_str(&text).with_context(|| format!("{} makes no sense", path.display()))?;
    let Some(profile) = profiles.get(name) else {
        let names: Vec<&str> = profiles.keys().map(String::as_str).collect();
        bail!("{} has no profile {name}; it has: {}", path.display(), names.join(", "));
    };
    // A token of the environment is for another server, unless the profile has none.
    let token = profile.token.clone().or_else(|| variable("ONWARD_TOKEN"));
    Ok(Place::Server(ServerAccess { url: profile.server.clone(), token, scope: None }))
}

/// `$XDG_CONFIG_HOME/onward/profiles.toml`, or below the home folder.
fn profiles() -> Option<PathBuf> {
    let folder = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    Some(folder.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config")))?.join("onward/profiles.toml"))
}
