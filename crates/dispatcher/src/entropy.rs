//! What cannot be foreseen. A simulator has a source of its own, so that a seed is a history.

use std::fmt;
use std::sync::Arc;

use onward_journal::Text;

use crate::deploy::uuid;

/// A source of entropy.
#[derive(Clone)]
pub struct Entropy(Arc<Fill>);

type Fill = dyn Fn(&mut [u8]) + Send + Sync;

impl Entropy {
    /// A source that fills what it is given.
    pub fn new(fill: impl Fn(&mut [u8]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(fill))
    }

    /// An id that nobody has.
    pub fn id(&self) -> Text {
        let mut bytes = [0; 16];
        (self.0)(&mut bytes);
        uuid(bytes, 4)
    }

    pub(crate) fn number(&self) -> u64 {
        let mut bytes = [0; 8];
        (self.0)(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

impl Default for Entropy {
    /// The operating system's.
    fn default() -> Self {
        Self::new(|bytes| {
            // A system without entropy runs nothing else either.
            if let Err(error) = getrandom::fill(bytes) {
                unreachable!("the operating system has no entropy: {error}");
            }
        })
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}
