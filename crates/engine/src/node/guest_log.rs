//! Lines that guests log, at the level that they ask for.

use std::fmt::Display;

use onward_execution::GuestLogLevel;

/// Hands a line of a guest to whoever listens, under the target `onward::guest`.
pub fn log_guest_line(execution: impl Display, level: GuestLogLevel, message: &str) {
    match level {
        GuestLogLevel::Debug => tracing::debug!(target: "onward::guest", %execution, "{message}"),
        GuestLogLevel::Info => tracing::info!(target: "onward::guest", %execution, "{message}"),
        GuestLogLevel::Warn => tracing::warn!(target: "onward::guest", %execution, "{message}"),
        GuestLogLevel::Error => tracing::error!(target: "onward::guest", %execution, "{message}"),
    }
}
