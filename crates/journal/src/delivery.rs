//! The delivery guarantee of an operation: whether it may be repeated when a crash leaves its
//! outcome unknown.

use minicbor::{Decode, Encode};

/// How often an operation may be performed if a crash interrupts it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum DeliveryGuarantee {
    /// The operation is repeated until its outcome is recorded (default).
    #[default]
    #[n(0)]
    AtLeastOnce,
    /// The operation is never repeated: if its outcome is unknown, it fails as in doubt.
    #[n(1)]
    AtMostOnce,
}

impl DeliveryGuarantee {
    /// Returns the guarantee with this name, or `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::AtLeastOnce, Self::AtMostOnce]
            .into_iter()
            .find(|it| it.as_str() == name)
    }

    /// Returns the name of the guarantee in a JSON journal and in a column.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AtLeastOnce => "at_least_once",
            Self::AtMostOnce => "at_most_once",
        }
    }
}
