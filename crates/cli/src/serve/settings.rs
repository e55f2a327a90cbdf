//! Server settings from a file, the environment and the command line; each later source takes
//! precedence over the earlier ones.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context as _;
use onward_campaign_delivery::NamedProvider;
use onward_embed::HostPattern;
use serde::{Deserialize, Serialize};

use super::campaign_sender::{CampaignSettings, CampaignSettingsArgs, CampaignSettingsTable};

/// Server settings on the command line.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct ServerSettingsArgs {
    /// Configuration file in TOML [env: ONWARD_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Store, required: sqlite:PATH, postgres://USER@HOST/DATABASE or memory: [env: ONWARD_STORE]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Address to listen on [env: ONWARD_LISTEN] [default: 127.0.0.1:7400]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Address of its own for /metrics, which --listen then no longer serves [env:
    /// ONWARD_METRICS_ADDRESS]
    #[arg(long, value_name = "ADDRESS")]
    metrics_address: Option<SocketAddr>,
    /// Confirm that a proxy in front of this server terminates TLS; required for a non-loopback
    /// address [env: ONWARD_TLS_IN_FRONT] [default: false]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "true|false")]
    tls_in_front: Option<bool>,
    /// Name of this node, as other nodes and operators see it [env: ONWARD_NODE_NAME] [default: pid
    /// and the process id]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Lease in milliseconds: how long other nodes wait before they take over from this one [env:
    /// ONWARD_LEASE_MS] [default: 5000]
    #[arg(long, value_name = "MS")]
    lease_ms: Option<NonZeroU64>,
    /// Drain timeout in milliseconds: how long running tasks may take when this node stops or hands
    /// shards to another [env: ONWARD_DRAIN_TIMEOUT_MS] [default: 10000]
    #[arg(long, value_name = "MS")]
    drain_timeout_ms: Option<u64>,
    /// OTLP/HTTP collector for traces of executions, such as http://127.0.0.1:4318 [env:
    /// ONWARD_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Rate limit: requests per second for each token [env: ONWARD_REQUESTS_PER_SECOND] [default:
    /// 5000]
    #[arg(long, value_name = "N")]
    requests_per_second: Option<NonZeroU32>,
    /// Idle timeout of a connection in milliseconds: it is closed if the head of its next request
    /// has not arrived by then [env: ONWARD_IDLE_TIMEOUT_MS] [default: 120000]
    #[arg(long, value_name = "MS")]
    idle_timeout_ms: Option<NonZeroU64>,
    /// Maximum number of open connections; at most half of the limit of open files [env:
    /// ONWARD_MAX_CONNECTIONS] [default: 8192]
    #[arg(long, value_name = "N")]
    max_connections: Option<NonZeroU32>,
    /// Maximum number of open connections of one peer address [env:
    /// ONWARD_MAX_CONNECTIONS_PER_PEER] [default: half of --max-connections; with --tls-in-front,
    /// where the peer is the proxy, all]
    #[arg(long, value_name = "N")]
    max_connections_per_peer: Option<NonZeroU32>,
    /// Accept requests whose header Host has this name, besides localhost, 127.0.0.1 and ::1. A
    /// server on a non-loopback address accepts all names, unless this is given [env:
    /// ONWARD_ALLOWED_HOSTS]
    #[arg(long = "allowed-host", value_name = "NAME", value_delimiter = ',')]
    allowed_hosts: Option<Vec<ServerHostName>>,
    /// Memory that all guests may use together, in MiB; one tenant gets at most three quarters of
    /// it [env: ONWARD_GUEST_MEMORY_MIB] [default: half of the machine's memory]
    #[arg(long, value_name = "MIB")]
    guest_memory_mib: Option<NonZeroU64>,
    /// Maximum size of the code of a component in KiB, without its data [env:
    /// ONWARD_MAX_CODE_KIB] [default: 10240]
    #[arg(long, value_name = "KIB")]
    max_code_kib: Option<NonZeroU32>,
    /// Allow tasks to send requests to this host: api.example.com, *.example.com, host:8443. Their
    /// component has to allow the host too [env: ONWARD_ALLOW_HOSTS]
    #[arg(long = "allow-host", value_name = "HOST", value_delimiter = ',')]
    allow_hosts: Option<Vec<HostPattern>>,
    /// Like --allow-host, for a host in a private network: 10.0.0.7, localhost:8080 [env:
    /// ONWARD_ALLOW_PRIVATE_HOSTS]
    #[arg(
        long = "allow-private-host",
        value_name = "HOST",
        value_delimiter = ','
    )]
    allow_private_hosts: Option<Vec<HostPattern>>,
    #[command(flatten)]
    campaigns: CampaignSettingsArgs,
}

/// The configuration file.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ServerSettingsFile {
    store: Option<String>,
    listen: Option<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    tls_in_front: Option<bool>,
    node_name: Option<String>,
    lease_ms: Option<NonZeroU64>,
    drain_timeout_ms: Option<u64>,
    otlp_endpoint: Option<String>,
    requests_per_second: Option<NonZeroU32>,
    idle_timeout_ms: Option<NonZeroU64>,
    max_connections: Option<NonZeroU32>,
    max_connections_per_peer: Option<NonZeroU32>,
    allowed_hosts: Option<Vec<String>>,
    guest_memory_mib: Option<NonZeroU64>,
    max_code_kib: Option<NonZeroU32>,
    allow_hosts: Option<Vec<String>>,
    allow_private_hosts: Option<Vec<String>>,
    campaigns: Option<CampaignSettingsTable>,
    /// The providers that send campaigns, by name.
    providers: Option<BTreeMap<String, NamedProvider>>,
}

/// A host name under which clients address this server, without a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerHostName(String);

/// Reason why a text is not a [`ServerHostName`].
#[derive(Debug, thiserror::Error)]
#[error("expected a host name without scheme and port, such as onward.example.com")]
pub(crate) struct InvalidServerHostName;

impl FromStr for ServerHostName {
    type Err = InvalidServerHostName;

    fn from_str(text: &str) -> Result<Self, InvalidServerHostName> {
        let address = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'));
        let is_name = |character: char| {
            character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '_')
        };
        let is_valid = match address {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !text.is_empty() && text.chars().all(is_name),
        };
        is_valid
            .then(|| Self(text.to_owned()))
            .ok_or(InvalidServerHostName)
    }
}

impl fmt::Display for ServerHostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Source of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SettingSource {
    /// The built-in default.
    Default,
    File,
    Environment,
    CommandLine,
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::CommandLine => "command line",
        })
    }
}

/// A setting and its source.
pub(crate) struct ResolvedSetting<T> {
    pub(crate) value: T,
    pub(crate) source: SettingSource,
}

/// The effective settings of a server, each with its source.
pub(crate) struct ServerSettings {
    pub(crate) store: ResolvedSetting<Option<String>>,
    pub(crate) listen: ResolvedSetting<SocketAddr>,
    pub(crate) metrics_address: ResolvedSetting<Option<SocketAddr>>,
    pub(crate) tls_in_front: ResolvedSetting<bool>,
    pub(crate) node_name: ResolvedSetting<String>,
    pub(crate) lease_ms: ResolvedSetting<NonZeroU64>,
    pub(crate) drain_timeout_ms: ResolvedSetting<u64>,
    pub(crate) otlp_endpoint: ResolvedSetting<Option<String>>,
    pub(crate) requests_per_second: ResolvedSetting<NonZeroU32>,
    pub(crate) connections: ConnectionSettings,
    pub(crate) guest_memory_mib: ResolvedSetting<NonZeroU64>,
    pub(crate) max_code_kib: ResolvedSetting<NonZeroU32>,
    pub(crate) allowed_hosts: ResolvedSetting<Vec<ServerHostName>>,
    pub(crate) allow_hosts: ResolvedSetting<Vec<HostPattern>>,
    pub(crate) allow_private_hosts: ResolvedSetting<Vec<HostPattern>>,
    pub(crate) campaigns: CampaignSettings,
    pub(crate) providers: ResolvedSetting<BTreeMap<String, NamedProvider>>,
}

/// The effective limits of connections.
pub(crate) struct ConnectionSettings {
    pub(crate) idle_timeout_ms: ResolvedSetting<NonZeroU64>,
    pub(crate) max_connections: ResolvedSetting<NonZeroU32>,
    pub(crate) max_connections_per_peer: ResolvedSetting<Option<NonZeroU32>>,
}

/// Default address to listen on.
const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7400);
const DEFAULT_LEASE_MS: NonZeroU64 = NonZeroU64::new(5_000).expect("not zero");
const DEFAULT_DRAIN_TIMEOUT_MS: u64 = 10_000;
const DEFAULT_REQUESTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(5_000).expect("not zero");
/// Longer than proxies keep idle connections, so that the proxy closes them: if this server did, it
/// could close one just as the proxy reuses it.
const DEFAULT_IDLE_TIMEOUT_MS: NonZeroU64 = NonZeroU64::new(120_000).expect("not zero");

/// Default maximum number of open connections.
const DEFAULT_MAX_CONNECTIONS: NonZeroU32 = NonZeroU32::new(8_192).expect("not zero");

const DEFAULT_MAX_CODE_KIB: NonZeroU32 = NonZeroU32::new(10 << 10).expect("not zero");

/// Half of the memory of the machine, or of the container if that is less.
fn default_guest_memory_mib() -> NonZeroU64 {
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total_memory_bytes(&text))
        .unwrap_or(UNKNOWN_MEMORY_BYTES);
    let container = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(u64::MAX);
    NonZeroU64::new((machine.min(container) / 2) >> 20).unwrap_or(NonZeroU64::MIN)
}

/// Memory of a machine that does not tell how much it has.
const UNKNOWN_MEMORY_BYTES: u64 = 4 << 30;

/// Reads the total memory from the text of `/proc/meminfo`.
fn total_memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

impl ServerSettingsArgs {
    /// Returns options that set only the host names, for a command without the others.
    pub(crate) fn with_allowed_hosts(allowed_hosts: Option<Vec<ServerHostName>>) -> Self {
        Self {
            allowed_hosts,
            ..Self::default()
        }
    }

    /// Resolves the effective settings from command line, environment, file and defaults.
    #[expect(clippy::too_many_lines, reason = "one table: a row for each setting")]
    pub(crate) fn resolve_settings(&self) -> anyhow::Result<ServerSettings> {
        let (args, file) = (self.clone(), self.read_config_file()?);
        let name = || format!("pid {}", std::process::id());
        let connections = resolve_connection_settings(&args, &file)?;
        Ok(ServerSettings {
            store: resolve_optional(args.store, "ONWARD_STORE", file.store)?,
            listen: resolve_parsed(args.listen, "ONWARD_LISTEN", file.listen, DEFAULT_LISTEN)?,
            metrics_address: resolve_optional(
                args.metrics_address,
                "ONWARD_METRICS_ADDRESS",
                file.metrics_address,
            )?,
            tls_in_front: resolve_parsed(
                args.tls_in_front,
                "ONWARD_TLS_IN_FRONT",
                file.tls_in_front,
                false,
            )?,
            node_name: resolve_setting(
                args.node_name,
                "ONWARD_NODE_NAME",
                file.node_name,
                name,
                |text| Ok(text.to_owned()),
            )?,
            lease_ms: resolve_parsed(
                args.lease_ms,
                "ONWARD_LEASE_MS",
                file.lease_ms,
                DEFAULT_LEASE_MS,
            )?,
            drain_timeout_ms: resolve_parsed(
                args.drain_timeout_ms,
                "ONWARD_DRAIN_TIMEOUT_MS",
                file.drain_timeout_ms,
                DEFAULT_DRAIN_TIMEOUT_MS,
            )?,
            otlp_endpoint: resolve_optional(
                args.otlp_endpoint,
                "ONWARD_OTLP_ENDPOINT",
                file.otlp_endpoint,
            )?,
            requests_per_second: resolve_parsed(
                args.requests_per_second,
                "ONWARD_REQUESTS_PER_SECOND",
                file.requests_per_second,
                DEFAULT_REQUESTS_PER_SECOND,
            )?,
            connections,
            allowed_hosts: resolve_hosts(
                args.allowed_hosts,
                "ONWARD_ALLOWED_HOSTS",
                file.allowed_hosts.as_deref(),
            )?,
            guest_memory_mib: resolve_parsed(
                args.guest_memory_mib,
                "ONWARD_GUEST_MEMORY_MIB",
                file.guest_memory_mib,
                default_guest_memory_mib(),
            )?,
            max_code_kib: resolve_parsed(
                args.max_code_kib,
                "ONWARD_MAX_CODE_KIB",
                file.max_code_kib,
                DEFAULT_MAX_CODE_KIB,
            )?,
            allow_hosts: resolve_hosts(
                args.allow_hosts,
                "ONWARD_ALLOW_HOSTS",
                file.allow_hosts.as_deref(),
            )?,
            allow_private_hosts: resolve_hosts(
                args.allow_private_hosts,
                "ONWARD_ALLOW_PRIVATE_HOSTS",
                file.allow_private_hosts.as_deref(),
            )?,
            campaigns: args
                .campaigns
                .resolve_settings(&file.campaigns.unwrap_or_default())?,
            providers: resolve_providers(file.providers),
        })
    }

    /// Reads the configuration file of `--config` or `ONWARD_CONFIG`; without one, it is empty.
    fn read_config_file(&self) -> anyhow::Result<ServerSettingsFile> {
        let path = self
            .config
            .clone()
            .or_else(|| env_variable("ONWARD_CONFIG").map(PathBuf::from));
        let file = path.as_deref().map(read_settings_file).transpose()?;
        Ok(file.unwrap_or_default())
    }
}

fn resolve_connection_settings(
    args: &ServerSettingsArgs,
    file: &ServerSettingsFile,
) -> anyhow::Result<ConnectionSettings> {
    Ok(ConnectionSettings {
        idle_timeout_ms: resolve_parsed(
            args.idle_timeout_ms,
            "ONWARD_IDLE_TIMEOUT_MS",
            file.idle_timeout_ms,
            DEFAULT_IDLE_TIMEOUT_MS,
        )?,
        max_connections: resolve_parsed(
            args.max_connections,
            "ONWARD_MAX_CONNECTIONS",
            file.max_connections,
            DEFAULT_MAX_CONNECTIONS,
        )?,
        max_connections_per_peer: resolve_optional(
            args.max_connections_per_peer,
            "ONWARD_MAX_CONNECTIONS_PER_PEER",
            file.max_connections_per_peer,
        )?,
    })
}

/// Resolves a setting without a default.
fn resolve_optional<T>(
    argument: Option<T>,
    variable_name: &str,
    in_file: Option<T>,
) -> anyhow::Result<ResolvedSetting<Option<T>>>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    resolve_setting(
        argument.map(Some),
        variable_name,
        in_file.map(Some),
        || None,
        |text| Ok(Some(text.parse()?)),
    )
}

/// Resolves a setting that is parsed in the same way in the environment and on the command line.
fn resolve_parsed<T>(
    argument: Option<T>,
    variable_name: &str,
    in_file: Option<T>,
    default: T,
) -> anyhow::Result<ResolvedSetting<T>>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    resolve_setting(
        argument,
        variable_name,
        in_file,
        || default,
        |text| Ok(text.parse()?),
    )
}

/// Resolves a list of hosts; in the environment it is separated by commas.
fn resolve_hosts<H>(
    argument: Option<Vec<H>>,
    variable_name: &str,
    in_file: Option<&[String]>,
) -> anyhow::Result<ResolvedSetting<Vec<H>>>
where
    H: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let in_file = in_file.map(parse_hosts).transpose()?;
    resolve_setting(argument, variable_name, in_file, Vec::new, |text| {
        parse_hosts(&split_list(text))
    })
}

/// Resolves the providers, which only the file can define.
fn resolve_providers(
    in_file: Option<BTreeMap<String, NamedProvider>>,
) -> ResolvedSetting<BTreeMap<String, NamedProvider>> {
    let source = match in_file {
        Some(_) => SettingSource::File,
        None => SettingSource::Default,
    };
    ResolvedSetting {
        value: in_file.unwrap_or_default(),
        source,
    }
}

pub(super) fn resolve_setting<T>(
    argument: Option<T>,
    variable_name: &str,
    in_file: Option<T>,
    default: impl FnOnce() -> T,
    parse: impl FnOnce(&str) -> anyhow::Result<T>,
) -> anyhow::Result<ResolvedSetting<T>> {
    if let Some(value) = argument {
        return Ok(ResolvedSetting {
            value,
            source: SettingSource::CommandLine,
        });
    }
    if let Some(text) = env_variable(variable_name) {
        let value = parse(&text)
            .with_context(|| format!("invalid environment variable {variable_name}"))?;
        return Ok(ResolvedSetting {
            value,
            source: SettingSource::Environment,
        });
    }
    Ok(match in_file {
        Some(value) => ResolvedSetting {
            value,
            source: SettingSource::File,
        },
        None => ResolvedSetting {
            value: default(),
            source: SettingSource::Default,
        },
    })
}

fn read_settings_file(path: &Path) -> anyhow::Result<ServerSettingsFile> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).map_err(|error: toml::de::Error| {
        // The error must not quote the line: it may contain a password.
        let line = error
            .span()
            .map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        anyhow::anyhow!("line {line}: {}", error.message())
            .context(format!("{}: invalid configuration", path.display()))
    })
}

fn split_list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

fn parse_hosts<H>(hosts: &[String]) -> anyhow::Result<Vec<H>>
where
    H: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    let parse = |host: &String| host.parse().with_context(|| format!("invalid host {host}"));
    hosts.iter().map(parse).collect()
}

fn env_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns a URL with its password replaced by `***`.
pub(crate) fn redact_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Not a URL, but it may be one whose scheme was forgotten.
        return match url.rsplit_once('@') {
            Some((user, rest)) if user.contains(':') => format!("***@{rest}"),
            _ => url.to_owned(),
        };
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let Some((user, host)) = authority.rsplit_once('@') else {
        return redact_query(url);
    };
    let user = user
        .split_once(':')
        .map_or_else(|| user.to_owned(), |(name, _)| format!("{name}:***"));
    redact_query(&format!("{scheme}://{user}@{host}{path}"))
}

/// Redacts the query parameter `password`, which Postgres URLs allow as well.
fn redact_query(url: &str) -> String {
    let Some((front, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    let hide = |part: &str| match part.split_once('=') {
        Some((name, _)) if name.eq_ignore_ascii_case("password") => format!("{name}=***"),
        _ => part.to_owned(),
    };
    format!(
        "{front}?{}",
        query.split('&').map(hide).collect::<Vec<_>>().join("&")
    )
}

#[cfg(test)]
mod tests {
    use super::{redact_url, total_memory_bytes};

    #[test]
    fn the_memory_of_the_machine_is_read() {
        let text = "MemTotal:       24576000 kB\nMemFree: 1 kB\n";
        assert_eq!(total_memory_bytes(text), Some(24_576_000 << 10));
        assert_eq!(total_memory_bytes("MemFree: 1 kB"), None);
    }

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            (
                "postgres://me:secret@db/onward",
                "postgres://me:***@db/onward",
            ),
            (
                "postgres://me@db/onward?password=secret&sslmode=require",
                "postgres://me@db/onward?password=***&sslmode=require",
            ),
            (
                "postgres://me:s@c:r@db/onward",
                "postgres://me:***@db/onward",
            ),
            ("sqlite:/tmp/a.db", "sqlite:/tmp/a.db"),
            ("me:secret@collector:4318", "***@collector:4318"),
        ] {
            assert_eq!(redact_url(url), shown);
        }
    }
}
