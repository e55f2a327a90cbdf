//! Values on their way through the journal: JSON texts.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// Something a function can be called with: its input, or a reference to it.
#[diagnostic::on_unimplemented(message = "the function takes a `{T}`, not a `{Self}`")]
pub trait Argument<T> {
    /// As it is recorded.
    fn into_payload(self) -> Result<String>;
}

impl<T: Serialize> Argument<T> for T {
    fn into_payload(self) -> Result<String> {
        encode(&self)
    }
}

impl<T: Serialize> Argument<T> for &T {
    fn into_payload(self) -> Result<String> {
        encode(self)
    }
}

impl Argument<String> for &str {
    fn into_payload(self) -> Result<String> {
        encode(self)
    }
}

/// Cannot be tried again: the same value would fail the same way.
pub(crate) fn encode(value: &(impl Serialize + ?Sized)) -> Result<String> {
    serde_json::to_string(value).map_err(|error| invalid("cannot be written as JSON", &error))
}

pub(crate) fn decode<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| invalid("is not what was expected", &error))
}

fn invalid(what: &str, error: &serde_json::Error) -> Error {
    Error::new("invalid_payload", format!("a value {what}: {error}")).permanent()
}
