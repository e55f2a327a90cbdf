//! `onward functions`: lists the functions that can be started and invoked.

use std::io::Write as _;
use std::process::ExitCode;

use onward_api::component::DeployedFunction;

use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;

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
    let mut out = console::output(args.json);
    if args.json {
        for function in &functions {
            writeln!(out, "{}", serde_json::to_string(function)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let escaped_name = |function: &DeployedFunction| console::escape_control_chars(&function.name);
    let width = functions
        .iter()
        .map(|function| escaped_name(function).chars().count())
        .max()
        .unwrap_or(0)
        .max("function".len());
    writeln!(
        out,
        "{:<width$}  {:<8}  {:<27}  {:<19}  hosts",
        "function", "kind", "deployed", "component"
    )?;
    for function in &functions {
        let DeployedFunction {
            kind,
            component,
            hosts,
            deployed_at,
            ..
        } = function;
        let digest = component.get(..19).unwrap_or(component);
        writeln!(
            out,
            "{:<width$}  {:<8}  {deployed_at:<27}  {digest}  {}",
            escaped_name(function),
            kind.as_str(),
            console::escape_control_chars(&hosts.join(" "))
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
