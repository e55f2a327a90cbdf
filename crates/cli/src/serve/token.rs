//! `onward token`: who may ask a server, and for what.

use std::io::{self, Write as _};
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

/// Make a token, and print it: it cannot be read again
///
/// Exit codes: 0 it is good from now on, 2 it was not made.
#[derive(clap::Args)]
pub(crate) struct TokenCreateArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// What people call it
    name: String,
    /// What it allows
    #[arg(long, value_parser = ["viewer", "operator", "engineer", "admin", "worker"])]
    role: String,
    /// Until when, such as 2027-01-01T00:00:00Z; for ever unless told
    #[arg(long, value_name = "TIME")]
    expires: Option<Timestamp>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// List tokens, without what they read
///
/// Exit codes: 0 they were listed, 2 they could not be.
#[derive(clap::Args)]
pub(crate) struct TokenListArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Take a token back
///
/// Servers that have seen it know after two seconds at most.
///
/// Exit codes: 0 it is no longer good, 2 it could not be taken back.
#[derive(clap::Args)]
pub(crate) struct TokenRevokeArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// What it is called
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
                "{} is no longer good",
                console::escape_control_chars(&args.name)
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn create_token(args: &TokenCreateArgs) -> anyhow::Result<()> {
    let Some(role) = TokenRole::parse(&args.role) else {
        bail!("{} is not a role", args.role)
    };
    let made = match args.connection.open_connection(AccessMode::Create).await? {
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
        writeln!(io::stdout(), "{}", serde_json::to_string(&made)?)?;
    } else {
        writeln!(io::stdout(), "{}", made.token)?;
        console::print_message(format_args!(
            "token {} may do what {} may; keep it, it is not shown again",
            console::escape_control_chars(&made.name),
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
    let mut out = io::stdout().lock();
    if !args.json {
        writeln!(
            out,
            "{:<24}  {:<9}  {:<27}  expires",
            "token", "role", "since"
        )?;
    }
    for info in &tokens {
        if args.json {
            writeln!(out, "{}", serde_json::to_string(info)?)?;
        } else {
            let TokenSummary {
                name,
                role,
                created_at,
                expires_at,
            } = info;
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
