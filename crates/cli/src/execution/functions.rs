//! `onward functions`: lists the functions that can be started and invoked.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::component::DeployedFunction;

use crate::connection::{AccessMode, ScopedConnectionArgs};

/// List the deployed functions and their components
///
/// Functions that only workers perform are not listed, because they are not deployed.
///
/// Exit codes: 0 the functions were listed, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct FunctionListArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn list_functions(args: &FunctionListArgs) -> anyhow::Result<ExitCode> {
    let functions = args
        .connection
        .open_connection(AccessMode::Read)
        .await?
        .list_functions()
        .await?;
    let mut out = io::stdout().lock();
    if args.json {
        for function in &functions {
            writeln!(out, "{}", serde_json::to_string(function)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let width = functions
        .iter()
        .map(|function| function.name.len())
        .max()
        .unwrap_or(0)
        .max("function".len());
    writeln!(
        out,
        "{:<width$}  {:<8}  {:<27}  {:<19}  hosts",
        "function", "kind", "deployed", "component"
    )?;
    for DeployedFunction {
        name,
        kind,
        component,
        hosts,
        deployed_at,
    } in &functions
    {
        let digest = component.get(..19).unwrap_or(component);
        writeln!(
            out,
            "{name:<width$}  {:<8}  {deployed_at:<27}  {digest}  {}",
            kind.as_str(),
            hosts.join(" ")
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
