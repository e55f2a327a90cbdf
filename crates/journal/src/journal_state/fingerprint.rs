//! Fingerprints of payloads: the journal state keeps 16 bytes instead of the payload, enough to
//! recognise an equal one.

use sha2::{Digest as _, Sha256};

use crate::InvokeResult;
use onward_base::Payload;

/// The first half of a SHA-256: different payloads do not collide by accident, and a deliberate
/// collision is not affordable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PayloadFingerprint([u8; 16]);

impl PayloadFingerprint {
    pub(crate) fn from_payload(payload: &Payload) -> Self {
        Self::hash_fields(&[b"payload", payload.as_str().as_bytes()])
    }

    pub(crate) fn from_result(result: &InvokeResult) -> Self {
        match result {
            Ok(payload) => Self::hash_fields(&[b"ok", payload.as_str().as_bytes()]),
            Err(error) => {
                let retryable = [u8::from(error.retryable)];
                Self::hash_fields(&[
                    b"err",
                    error.kind.as_str().as_bytes(),
                    error.message.as_bytes(),
                    &retryable,
                ])
            }
        }
    }

    /// Hashes length-prefixed fields, so that different lists of fields never have the same
    /// encoding.
    fn hash_fields(fields: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for field in fields {
            hash.update((field.len() as u64).to_be_bytes());
            hash.update(field);
        }
        let mut half = [0; 16];
        half.copy_from_slice(&hash.finalize()[..16]);
        Self(half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, ExecutionError};

    #[test]
    fn results_that_differ_in_any_part_have_different_fingerprints() {
        let payload = |text| Payload::parse(text).unwrap();
        let error = |kind: &str, message: &str| {
            Err(ExecutionError::new(
                kind.parse::<ErrorKind>().unwrap(),
                message,
            ))
        };
        let results = [
            Ok(payload("1")),
            Ok(payload("\"1\"")),
            error("trap", "1"),
            error("timeout", "1"),
            error("timeout", "11"),
            error("timeout1", "1"),
            error("timeout", "1").map_err(ExecutionError::into_permanent),
        ];
        for (index, result) in results.iter().enumerate() {
            assert_eq!(
                PayloadFingerprint::from_result(result),
                PayloadFingerprint::from_result(&result.clone())
            );
            for other in &results[index + 1..] {
                assert_ne!(
                    PayloadFingerprint::from_result(result),
                    PayloadFingerprint::from_result(other)
                );
            }
        }
    }
}
