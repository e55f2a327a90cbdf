//! Forwards the log lines of guests to `tracing`, at the level that the guest chose.

use std::fmt::Display;

use onward_execution::GuestLogLevel;

/// Logs a line of a guest under the target `onward::guest`.
pub fn log_guest_line(execution: impl Display, level: GuestLogLevel, message: &str) {
    match level {
        GuestLogLevel::Debug => tracing::debug!(target: "onward::guest", %execution, "{message}"),
        GuestLogLevel::Info => tracing::info!(target: "onward::guest", %execution, "{message}"),
        GuestLogLevel::Warn => tracing::warn!(target: "onward::guest", %execution, "{message}"),
        GuestLogLevel::Error => tracing::error!(target: "onward::guest", %execution, "{message}"),
    }
}
