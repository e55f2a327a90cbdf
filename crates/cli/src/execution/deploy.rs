//! `onward deploy`: stores a component.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use onward_api::component::ComponentDeployment;

use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::console;

/// Deploy a component: its functions can then be started and invoked
///
/// Executions that have already started keep the code they started with.
///
/// Exit codes: 0 the component is deployed, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct ComponentDeployArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    /// Component: a .wasm file
    component: PathBuf,
    /// Allow the component's functions to send requests to this host: api.example.com,
    /// *.example.com, host:8443. The process that runs them has to allow the host too
    #[arg(long = "allow-host", value_name = "HOST", value_delimiter = ',')]
    hosts: Vec<String>,
    /// Take over names of functions of other components. A new build of a component, which has all
    /// of its function names, needs no permission
    #[arg(long)]
    replace: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn deploy_component(args: &ComponentDeployArgs) -> anyhow::Result<ExitCode> {
    let name = args.component.display();
    let code = std::fs::read(&args.component).with_context(|| format!("cannot read {name}"))?;
    let onward = args.connection.open_connection(AccessMode::Create).await?;
    let deployed = onward
        .deploy_component(ComponentDeployment {
            code,
            hosts: args.hosts.clone(),
            replace: args.replace,
        })
        .await
        .with_context(|| format!("cannot deploy {name}"))?;
    if args.json {
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(&deployed)?
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    for function in &deployed.functions {
        let name = console::escape_control_chars(&function.name);
        writeln!(
            console::text_output(),
            "{:<9} {name}",
            function.kind.as_str()
        )?;
    }
    for replaced in &deployed.replaced {
        console::print_message(format_args!(
            "took over {} of {}",
            console::escape_control_chars(&replaced.function),
            replaced.component
        ));
    }
    console::print_message(format_args!(
        "{} {name} as {}",
        console::style_success("deployed"),
        deployed.component
    ));
    Ok(ExitCode::SUCCESS)
}
