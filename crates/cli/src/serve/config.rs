//! `onward config show`: prints the effective settings of a server and their sources.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::settings::{
    ResolvedSetting, ServerSettings, ServerSettingsArgs, SettingSource, redact_url,
};

use crate::console;

#[derive(Subcommand)]
pub(crate) enum ConfigSubcommand {
    Show(ConfigShowArgs),
}

/// Print the settings that `onward serve` would use, and the source of each
///
/// The command line takes precedence over the environment, and the environment over the file.
/// Passwords are not shown.
///
/// Exit codes: 0 the settings were printed, 2 they are invalid.
#[derive(clap::Args)]
pub(crate) struct ConfigShowArgs {
    #[command(flatten)]
    settings: ServerSettingsArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Name, value and source of a setting.
type SettingRow = (&'static str, Value, SettingSource);

pub(crate) fn show_config(
    ConfigSubcommand::Show(args): &ConfigSubcommand,
) -> anyhow::Result<ExitCode> {
    let settings = args.settings.resolve_settings()?;
    let rows = setting_rows(&settings);
    let mut out = console::output(args.json);
    if args.json {
        let all: Map<String, Value> = rows
            .into_iter()
            .map(|(name, value, source)| {
                (name.to_owned(), json!({ "value": value, "from": source }))
            })
            .collect();
        writeln!(out, "{}", Value::Object(all))?;
        return Ok(ExitCode::SUCCESS);
    }
    for (name, value, source) in rows {
        // Formatted as in the configuration file.
        let text = match &value {
            Value::Null => format!("# {name} is not set"),
            // Shown as a comment, because a TOML table would have to come last.
            Value::Object(table) if table.is_empty() => format!("# no {name}"),
            Value::Object(table) => format!(
                "# {name}: {}",
                table.keys().cloned().collect::<Vec<_>>().join(", ")
            ),
            value => format!("{name} = {value}"),
        };
        writeln!(out, "{text:<48} # {source}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns all settings in the order in which they are printed.
fn setting_rows(settings: &ServerSettings) -> [SettingRow; 22] {
    let campaigns = &settings.campaigns;
    let listen = json!(settings.listen.value.to_string());
    [
        url_row("store", &settings.store),
        ("listen", listen, settings.listen.source),
        plain_row("metrics-address", &settings.metrics_address),
        plain_row("tls-in-front", &settings.tls_in_front),
        plain_row("node-name", &settings.node_name),
        plain_row("lease-ms", &settings.lease_ms),
        plain_row("drain-timeout-ms", &settings.drain_timeout_ms),
        url_row("otlp-endpoint", &settings.otlp_endpoint),
        plain_row("requests-per-second", &settings.requests_per_second),
        plain_row("idle-timeout-ms", &settings.connections.idle_timeout_ms),
        plain_row("max-connections", &settings.connections.max_connections),
        plain_row(
            "max-connections-per-peer",
            &settings.connections.max_connections_per_peer,
        ),
        plain_row("guest-memory-mib", &settings.guest_memory_mib),
        plain_row("max-code-kib", &settings.max_code_kib),
        hosts_row("allowed-hosts", &settings.allowed_hosts),
        hosts_row("allow-hosts", &settings.allow_hosts),
        hosts_row("allow-private-hosts", &settings.allow_private_hosts),
        plain_row("campaigns.max-jobs", &campaigns.max_jobs),
        plain_row(
            "campaigns.max-jobs-per-tenant",
            &campaigns.max_jobs_per_tenant,
        ),
        plain_row("campaigns.lease-ms", &campaigns.lease_ms),
        plain_row("campaigns.inline-providers", &campaigns.inline_providers),
        plain_row("providers", &settings.providers),
    ]
}

fn plain_row(name: &'static str, setting: &ResolvedSetting<impl Serialize>) -> SettingRow {
    (name, json!(setting.value), setting.source)
}

/// The row of a URL, without its password.
fn url_row(name: &'static str, setting: &ResolvedSetting<Option<String>>) -> SettingRow {
    let url = setting.value.as_deref().map(redact_url);
    (name, json!(url), setting.source)
}

fn hosts_row(
    name: &'static str,
    setting: &ResolvedSetting<Vec<impl std::fmt::Display>>,
) -> SettingRow {
    let hosts: Vec<String> = setting.value.iter().map(ToString::to_string).collect();
    (name, json!(hosts), setting.source)
}
