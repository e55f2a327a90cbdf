//! Log output of all crates on standard error.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::terminal_output::LogOutput;

/// Initializes logging. `ONWARD_LOG` sets the level, for example `debug` or `onward_engine=debug`;
/// default: `warn`.
pub(crate) fn init_stderr_logging() {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::WARN.into())
        .with_env_var("ONWARD_LOG")
        .from_env_lossy();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false);
    subscriber
        .with_ansi(io::stderr().is_terminal())
        .with_writer(|| LogOutput)
        .init();
}
