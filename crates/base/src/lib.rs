//! Values that every other crate uses: text, time, payloads, ids, scope and backoff.
//!
//! This crate is pure: it reads no clock and no entropy, and performs no I/O.
//!
//! - [`SharedText`], [`BoundedName`]: reference-counted text; a clone does not copy.
//! - [`Timestamp`]: microseconds since the Unix epoch. [`Payload`]: a JSON document as written.
//! - [`Scope`]: the tenant, project and environment that own an object. [`text_ids!`] declares the
//!   id types of other crates.
//! - [`text_enum!`] declares enums that are stored and sent as text.
//! - [`ExponentialBackoff`]: the delay before a retry.
//! - [`is_unprintable`]: characters that must be escaped before they are printed.
//! - [`hex`], [`excerpt`]: hexadecimal digits, and foreign text made safe for an error message.

mod backoff;
mod cbor;
pub mod excerpt;
pub mod hex;
mod name;
mod payload;
mod printable;
mod scope;
mod text;
mod text_enum;
mod text_id;
mod timestamp;

#[doc(hidden)]
pub use {minicbor, serde};

pub use backoff::{BackoffFactor, ExponentialBackoff};
pub use name::{BoundedName, NameError};
pub use payload::{Payload, PayloadError};
pub use printable::is_unprintable;
pub use scope::{EnvironmentId, ProjectId, Scope, TenantId};
pub use text::SharedText;
pub use text_id::{ExpectedFormat, ValueError, is_key_part};
pub use timestamp::{Timestamp, TimestampError};
