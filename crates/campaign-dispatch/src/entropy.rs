//! The source of randomness. A simulation supplies its own, so that a seed reproduces a history.

use std::fmt;
use std::sync::Arc;

use onward_base::SharedText;

use crate::deploy::format_uuid;

/// A source of random bytes for ids and jitter.
#[derive(Clone)]
pub struct EntropySource(Arc<FillBytes>);

type FillBytes = dyn Fn(&mut [u8]) + Send + Sync;

impl EntropySource {
    /// Creates a source from a function that fills a buffer with random bytes.
    pub fn new(fill: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(fill))
    }

    /// Returns a new random id, a UUID of version 4.
    pub fn random_id(&self) -> SharedText {
        let mut bytes = [0; 16];
        (self.0)(&mut bytes);
        format_uuid(bytes, 4)
    }

    pub(crate) fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        (self.0)(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

impl Default for EntropySource {
    /// The entropy source of the operating system.
    fn default() -> Self {
        Self::new(|bytes| {
            // A system without entropy can run nothing else either.
            if let Err(error) = getrandom::fill(bytes) {
                unreachable!("the operating system has no entropy: {error}");
            }
        })
    }
}

impl fmt::Debug for EntropySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EntropySource")
    }
}
