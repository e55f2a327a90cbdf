//! Signals: messages from clients to a running workflow.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::host::{self, milliseconds};
use crate::payload::decode;
use crate::{Error, Result};

/// Waits for a signal of this name. Signals that arrive earlier are buffered, and are consumed in
/// the order of arrival.
pub fn await_signal<T: DeserializeOwned>(name: &str) -> Result<T> {
    let payload = host::await_signal(name, None)?;
    decode(&payload.ok_or_else(|| Error::new("timeout", format!("no signal {name} came")))?)
}

/// Waits for a signal of this name with a timeout; returns `None` if the timeout expires first.
pub fn await_signal_timeout<T: DeserializeOwned>(name: &str, limit: Duration) -> Result<Option<T>> {
    host::await_signal(name, Some(milliseconds(limit)))?
        .map(|payload| decode(&payload))
        .transpose()
}
