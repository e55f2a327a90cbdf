//! Whether an operation may be repeated when a crash leaves its end unknown.

use minicbor::{Decode, Encode};

/// How often an operation is performed around a crash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum DeliveryGuarantee {
    /// Repeated until its end is recorded.
    #[default]
    #[n(0)]
    AtLeastOnce,
    /// Never repeated: if its end is unknown, it fails as being in doubt.
    #[n(1)]
    AtMostOnce,
}

impl DeliveryGuarantee {
    /// The delivery as it stands in a journal.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AtLeastOnce => "at_least_once",
            Self::AtMostOnce => "at_most_once",
        }
    }
}
