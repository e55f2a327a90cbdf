//! `onward token`: creates, lists and revokes the tokens that authorize requests to a server.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use onward_api::token::{CreateTokenResponse, TokenRole, TokenSummary};
use onward_base::Timestamp;
use onward_service::token;

use crate::connection::{AccessMode, ScopedConnectionArgs, TargetConnection};
use crate::console;

#[derive(Subcommand)]
pub(crate) enum TokenSubcommand {
    Create(TokenCreateArgs),
    Ls(TokenListArgs),
    Revoke(TokenRevokeArgs),
}

/// Create a token and print it; it cannot be printed again
///
/// Exit codes: 0 the token is valid from now on, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct TokenCreateArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Name of the token
    name: String,
    /// Role, which determines what the token allows
    #[arg(long, value_parser = ["viewer", "operator", "engineer", "admin", "worker"])]
    role: String,
    /// Expiry time, such as 2027-01-01T00:00:00Z [default: never]
    #[arg(long, value_name = "TIME")]
    expires: Option<Timestamp>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// List tokens without their secrets
///
/// Exit codes: 0 the tokens were listed, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct TokenListArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Revoke a token
///
/// Servers that have cached the token reject it after at most two seconds.
///
/// Exit codes: 0 the token is revoked, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct TokenRevokeArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Name of the token
    name: String,
}

pub(crate) async fn run_token_command(command: &TokenSubcommand) -> anyhow::Result<ExitCode> {
    match command {
        TokenSubcommand::Create(args) => create_token(args).await?,
        TokenSubcommand::Ls(args) => list_tokens(args).await?,
        TokenSubcommand::Revoke(args) => {
            match args.connection.open_connection(AccessMode::Write).await? {
                TargetConnection {
                    store_client: Some(client),
                    ..
                } => {
                    token::revoke_token(&**client.store(), client.scope(), &args.name).await?;
                }
                access => access.require_server()?.revoke_token(&args.name).await?,
            }
            console::print_message(format_args!(
                "token {} is revoked",
                console::escape_control_chars(&args.name)
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn create_token(args: &TokenCreateArgs) -> anyhow::Result<()> {
    let Some(role) = TokenRole::parse(&args.role) else {
        bail!("unknown role {} (--role)", args.role)
    };
    let created = match args.connection.open_connection(AccessMode::Create).await? {
        TargetConnection {
            store_client: Some(client),
            ..
        } => {
            let token = token::create_token(
                &**client.store(),
                client.scope(),
                &args.name,
                role,
                args.expires,
            )
            .await?;
            CreateTokenResponse {
                name: args.name.clone(),
                token,
            }
        }
        access => {
            let expires_at = args.expires.map(|at| at.to_string());
            let new = onward_api::token::CreateTokenRequest {
                name: args.name.clone(),
                role,
                expires_at,
            };
            access.require_server()?.create_token(&new).await?
        }
    };
    if args.json {
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(&created)?
        )?;
    } else {
        writeln!(console::text_output(), "{}", created.token)?;
        console::print_message(format_args!(
            "created token {} with role {}; keep it, it is not shown again",
            console::escape_control_chars(&created.name),
            args.role
        ));
    }
    Ok(())
}

async fn list_tokens(args: &TokenListArgs) -> anyhow::Result<()> {
    let tokens = match args.connection.open_connection(AccessMode::Read).await? {
        TargetConnection {
            store_client: Some(client),
            ..
        } => token::list_tokens(&**client.store(), client.scope()).await?,
        access => access.require_server()?.list_tokens().await?,
    };
    let mut out = console::output(args.json);
    if !args.json {
        writeln!(
            out,
            "{:<24}  {:<9}  {:<27}  expires",
            "token", "role", "since"
        )?;
    }
    for summary in &tokens {
        if args.json {
            writeln!(out, "{}", serde_json::to_string(summary)?)?;
        } else {
            let TokenSummary {
                name,
                role,
                created_at,
                expires_at,
            } = summary;
            let expires = expires_at.as_deref().unwrap_or("never");
            writeln!(
                out,
                "{:<24}  {:<9}  {created_at:<27}  {expires}",
                console::escape_control_chars(name),
                role.as_str()
            )?;
        }
    }
    Ok(())
}
