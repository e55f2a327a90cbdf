//! Lines that guests log, at the level that they ask for.

use std::fmt::Display;

use onward_execution::Level;

/// Hands a line of a guest to whoever listens, under the target `onward::guest`.
pub fn log_line(execution: impl Display, level: Level, message: &str) {
    match level {
        Level::Debug => tracing::debug!(target: "onward::guest", %execution, "{message}"),
        Level::Info => tracing::info!(target: "onward::guest", %execution, "{message}"),
        Level::Warn => tracing::warn!(target: "onward::guest", %execution, "{message}"),
        Level::Error => tracing::error!(target: "onward::guest", %execution, "{message}"),
    }
}
