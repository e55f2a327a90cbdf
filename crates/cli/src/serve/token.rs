//! `onward token`: who may ask a server, and for what.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use onward_api::token::{MadeToken, Role, TokenInfo};
use onward_journal::Timestamp;
use onward_server::token;

use crate::access::{Access, Want, WorkArgs};
use crate::paint;

#[derive(Subcommand)]
pub(crate) enum Command {
    Create(Create),
    Ls(Ls),
    Revoke(Revoke),
}

/// Make a token, and print it: it cannot be read again
///
/// Exit codes: 0 it is good from now on, 2 it was not made.
#[derive(clap::Args)]
pub(crate) struct Create {
    #[command(flatten)]
    work: WorkArgs,
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
pub(crate) struct Ls {
    #[command(flatten)]
    work: WorkArgs,
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
pub(crate) struct Revoke {
    #[command(flatten)]
    work: WorkArgs,
    /// What it is called
    name: String,
}

pub(crate) async fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create(args) => create(args).await?,
        Command::Ls(args) => list(args).await?,
        Command::Revoke(args) => {
            match args.work.open(Want::Write).await? {
                Access { client: Some(client), .. } => {
                    token::revoke(&**client.store(), client.scope(), &args.name).await?;
                }
                access => access.server()?.revoke_token(&args.name).await?,
            }
            paint::say(format_args!("{} is no longer good", paint::plain(&args.name)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(args: &Create) -> anyhow::Result<()> {
    let Some(role) = Role::parse(&args.role) else { bail!("{} is not a role", args.role) };
    let made = match args.work.open(Want::Create).await? {
        Access { client: Some(client), .. } => {
            let token = token::create(&**client.store(), client.scope(), &args.name, role, args.expires).await?;
            MadeToken { name: args.name.clone(), token }
        }
        access => {
            let expires_at = args.expires.map(|at| at.to_string());
            let new = onward_api::token::NewToken { name: args.name.clone(), role, expires_at };
            access.server()?.create_token(&new).await?
        }
    };
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&made)?)?;
    } else {
        writeln!(io::stdout(), "{}", made.token)?;
        paint::say(format_args!(
            "token {} may do what {} may; keep it, it is not shown again",
            paint::plain(&made.name),
            args.role
        ));
    }
    Ok(())
}

async fn list(args: &Ls) -> anyhow::Result<()> {
    let tokens = match args.work.open(Want::Read).await? {
        Access { client: Some(client), .. } => token::list(&**client.store(), client.scope()).await?,
        access => access.server()?.tokens().await?,
    };
    let mut out = io::stdout().lock();
    if !args.json {
        writeln!(out, "{:<24}  {:<9}  {:<27}  expires", "token", "role", "since")?;
    }
    for info in &tokens {
        if args.json {
            writeln!(out, "{}", serde_json::to_string(info)?)?;
        } else {
            let TokenInfo { name, role, created_at, expires_at } = info;
            let expires = expires_at.as_deref().unwrap_or("never");
            writeln!(out, "{:<24}  {:<9}  {created_at:<27}  {expires}", paint::plain(name), role.as_str())?;
        }
    }
    Ok(())
}
