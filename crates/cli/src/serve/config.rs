//! `onward config show`: prints the effective settings of a server and their sources.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::settings::{ResolvedSetting, ServerSettingsArgs, SettingSource, redact_url};

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

pub(crate) fn show_config(
    ConfigSubcommand::Show(args): &ConfigSubcommand,
) -> anyhow::Result<ExitCode> {
    let settings = args.settings.resolve_settings()?;
    let hosts = |hosts: &ResolvedSetting<Vec<onward_embed::HostPattern>>| {
        json!(
            hosts
                .value
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        )
    };
    let campaigns = &settings.campaigns;
    let rows: [(&str, Value, SettingSource); 16] = [
        (
            "store",
            json!(settings.store.value.as_deref().map(redact_url)),
            settings.store.source,
        ),
        (
            "listen",
            json!(settings.listen.value.to_string()),
            settings.listen.source,
        ),
        (
            "tls-in-front",
            json!(settings.tls_in_front.value),
            settings.tls_in_front.source,
        ),
        (
            "node-name",
            json!(settings.node_name.value),
            settings.node_name.source,
        ),
        (
            "lease-ms",
            json!(settings.lease_ms.value),
            settings.lease_ms.source,
        ),
        (
            "drain-ms",
            json!(settings.drain_ms.value),
            settings.drain_ms.source,
        ),
        (
            "otlp-endpoint",
            json!(settings.otlp_endpoint.value.as_deref().map(redact_url)),
            settings.otlp_endpoint.source,
        ),
        (
            "requests-per-second",
            json!(settings.requests_per_second.value),
            settings.requests_per_second.source,
        ),
        (
            "idle-ms",
            json!(settings.idle_ms.value),
            settings.idle_ms.source,
        ),
        (
            "allow-hosts",
            hosts(&settings.allow_hosts),
            settings.allow_hosts.source,
        ),
        (
            "allow-private-hosts",
            hosts(&settings.allow_private_hosts),
            settings.allow_private_hosts.source,
        ),
        (
            "campaigns.lanes",
            json!(campaigns.lanes.value),
            campaigns.lanes.source,
        ),
        (
            "campaigns.tenant-max",
            json!(campaigns.tenant_max.value),
            campaigns.tenant_max.source,
        ),
        (
            "campaigns.lease-ms",
            json!(campaigns.lease_ms.value),
            campaigns.lease_ms.source,
        ),
        (
            "campaigns.inline-providers",
            json!(campaigns.inline_providers.value),
            campaigns.inline_providers.source,
        ),
        (
            "providers",
            json!(settings.providers.value),
            settings.providers.source,
        ),
    ];
    let mut out = io::stdout().lock();
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
            Value::Object(table) if table.is_empty() => format!("# there are no {name}"),
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
