//! Comparisons with other engines: installs the tools, then builds and runs `onward-compare` of the
//! benchmarks, so that xtask itself stays quick to build.

use anyhow::Result;
use clap::Args;

use crate::command::ToolCommand;
use crate::run::XtaskRun;
use crate::tools::{self, NODE, NPM, POSTGRES, Tool};

/// Passes every argument on, `--help` included.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct CompareArgs {
    /// Arguments of `onward-compare`; `--help` prints them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
}

pub(crate) fn compare(run: &XtaskRun, args: &CompareArgs) -> Result<()> {
    const CARGO_RUN: [&str; 9] = [
        "run",
        "--quiet",
        "--release",
        "--locked",
        "-p",
        "onward-benchmarks",
        "--bin",
        "onward-compare",
        "--",
    ];
    tools::ensure(run, &required_tools(&args.args))?;
    eprintln!("  building onward-compare for release");
    let args = args.args.iter().map(String::as_str);
    ToolCommand::new(run, "cargo", CARGO_RUN.into_iter().chain(args)).shown()
}

/// Returns the tools that a comparison with these arguments needs; none if it only prints the help
/// or measures Onward alone.
fn required_tools(args: &[String]) -> Vec<&'static Tool> {
    let has = |option: &str| args.iter().any(|arg| arg == option);
    let is_onward = |arg: &String| arg.trim_start_matches("--only=").starts_with("onward");
    if has("--help") || has("-h") || args.iter().any(is_onward) {
        Vec::new()
    } else if has("dispatch") {
        vec![&POSTGRES, &NODE, &NPM]
    } else {
        vec![&NODE, &NPM]
    }
}

#[cfg(test)]
mod tests {
    use super::required_tools;

    #[test]
    fn only_the_tools_of_the_comparison_are_installed() {
        for (line, count) in [
            ("", 2),
            ("--quick --only restate", 2),
            ("--only onward-worker", 0),
            ("--only=onward", 0),
            ("dispatch --quick", 3),
            ("dispatch --help", 0),
        ] {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(required_tools(&args).len(), count, "{line}");
        }
    }
}
