//! The digest that pins an execution to the exact code it started on.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use onward_base::excerpt::excerpt_text;
use onward_base::hex;

/// SHA-256 of a component's bytes: the content address of the component.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentDigest([u8; 32]);

impl ComponentDigest {
    /// Creates a digest from its 32 bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Computes the digest of the bytes of `component`.
    pub fn from_component(component: &[u8]) -> Self {
        Self(Sha256::digest(component).into())
    }

    /// Returns the 32 bytes of the digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for ComponentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        hex::write_hex(f, &self.0)
    }
}

impl fmt::Debug for ComponentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ComponentDigest({self})")
    }
}

impl FromStr for ComponentDigest {
    type Err = DigestError;

    /// Parses `sha256:` and 64 hex digits; the prefix is optional.
    fn from_str(text: &str) -> Result<Self, DigestError> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        hex::decode_hex_array(digits)
            .map(Self)
            .ok_or_else(|| DigestError(excerpt_text(text)))
    }
}

/// The error for a text that is not a component digest.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a component digest: expected `sha256:` and 64 hex digits")]
pub struct DigestError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_round_trips_with_and_without_its_prefix() {
        let digest = ComponentDigest::from_component(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(text["sha256:".len()..].parse(), Ok(digest));
        assert_eq!(ComponentDigest::from_bytes(*digest.as_bytes()), digest);
    }

    #[test]
    fn another_hash_or_length_is_refused() {
        for text in ["", "sha256:", "sha512:00", "sha256:ba78"] {
            assert_eq!(
                text.parse::<ComponentDigest>(),
                Err(DigestError(excerpt_text(text)))
            );
        }
    }
}
