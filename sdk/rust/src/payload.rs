//! Serialization of values as the JSON texts that a journal records.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// An argument of a call: the input of the function, or a reference to it.
#[diagnostic::on_unimplemented(message = "the function takes a `{T}`, not a `{Self}`")]
pub trait CallArgument<T> {
    /// Serializes the argument as it is recorded.
    fn into_payload(self) -> Result<String>;
}

impl<T: Serialize> CallArgument<T> for T {
    fn into_payload(self) -> Result<String> {
        encode(&self)
    }
}

impl<T: Serialize> CallArgument<T> for &T {
    fn into_payload(self) -> Result<String> {
        encode(self)
    }
}

impl CallArgument<String> for &str {
    fn into_payload(self) -> Result<String> {
        encode(self)
    }
}

/// Serializes a value. A failure is not retryable: the same value would fail again.
pub(crate) fn encode(value: &(impl Serialize + ?Sized)) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| invalid_payload("cannot be written as JSON", &error))
}

pub(crate) fn decode<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| invalid_payload("is not what was expected", &error))
}

fn invalid_payload(what: &str, error: &serde_json::Error) -> Error {
    Error::new("invalid_payload", format!("a value {what}: {error}")).non_retryable()
}
