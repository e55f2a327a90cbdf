//! Log messages of a function. A replay does not repeat them.

use std::fmt::Arguments;

use crate::host;

/// Severity of a log message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Details for debugging.
    Debug,
    /// Normal progress.
    Info,
    /// Something unexpected.
    Warn,
    /// Something failed.
    Error,
}

/// Implementation of the macros.
#[doc(hidden)]
pub fn write_message(level: LogLevel, message: Arguments<'_>) {
    host::log(level, &message.to_string());
}

/// Logs at level debug. Takes the arguments of `format!`.
#[macro_export]
macro_rules! debug {
    ($($argument:tt)+) => { $crate::log::write_message($crate::log::LogLevel::Debug, ::core::format_args!($($argument)+)) };
}

/// Logs at level info. Takes the arguments of `format!`.
#[macro_export]
macro_rules! info {
    ($($argument:tt)+) => { $crate::log::write_message($crate::log::LogLevel::Info, ::core::format_args!($($argument)+)) };
}

/// Logs at level warn. Takes the arguments of `format!`.
#[macro_export]
macro_rules! warn {
    ($($argument:tt)+) => { $crate::log::write_message($crate::log::LogLevel::Warn, ::core::format_args!($($argument)+)) };
}

/// Logs at level error. Takes the arguments of `format!`.
#[macro_export]
macro_rules! error {
    ($($argument:tt)+) => { $crate::log::write_message($crate::log::LogLevel::Error, ::core::format_args!($($argument)+)) };
}
