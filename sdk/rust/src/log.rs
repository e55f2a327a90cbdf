//! What a function says while it runs. Replaying does not say it again.

use std::fmt::Arguments;

use crate::host;

/// How important a line of a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For whoever looks for a mistake.
    Debug,
    /// For whoever wants to know.
    Info,
    /// Something is odd.
    Warn,
    /// Something is wrong.
    Error,
}

/// What the macros call.
#[doc(hidden)]
pub fn write(level: Level, message: Arguments<'_>) {
    host::log(level, &message.to_string());
}

/// Says something for whoever looks for a mistake. Takes what `format!` takes.
#[macro_export]
macro_rules! debug {
    ($($argument:tt)+) => { $crate::log::write($crate::log::Level::Debug, ::core::format_args!($($argument)+)) };
}

/// Says something for whoever wants to know. Takes what `format!` takes.
#[macro_export]
macro_rules! info {
    ($($argument:tt)+) => { $crate::log::write($crate::log::Level::Info, ::core::format_args!($($argument)+)) };
}

/// Says that something is odd. Takes what `format!` takes.
#[macro_export]
macro_rules! warn {
    ($($argument:tt)+) => { $crate::log::write($crate::log::Level::Warn, ::core::format_args!($($argument)+)) };
}

/// Says that something is wrong. Takes what `format!` takes.
#[macro_export]
macro_rules! error {
    ($($argument:tt)+) => { $crate::log::write($crate::log::Level::Error, ::core::format_args!($($argument)+)) };
}
