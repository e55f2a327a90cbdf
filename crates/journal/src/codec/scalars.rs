//! The storage format of the small types. The decoder validates every value: bytes from a disk are
//! untrusted input.

use std::sync::Arc;

use minicbor::data::Type;
use minicbor::decode::{self, Decode, Decoder};
use minicbor::encode::{self, Encode, Encoder, Write};

use onward_base::scalar_codec;

use crate::{
    ComponentDigest, DeliveryGuarantee, ErrorKind, ExecutionId, InvokePerformer, RetryJitter,
};

scalar_codec!(ErrorKind: write |e, kind| e.str(kind.as_str()), read |d| d.str()?.parse().map_err(decode::Error::custom));
scalar_codec!(ComponentDigest: write |e, digest| e.bytes(digest.as_bytes()), read |d| {
    d.bytes()?.try_into().map(Self::from_bytes).map_err(decode::Error::custom)
});
scalar_codec!(ExecutionId: write |e, id| e.bytes(id.as_bytes()), read |d| {
    d.bytes()?.try_into().map(Self::from_bytes).map_err(decode::Error::custom)
});
scalar_codec!(RetryJitter: write |e, jitter| e.u32(jitter.as_permille()), read |d| {
    Self::from_permille(d.u32()?).ok_or_else(|| decode::Error::message("jitter out of range"))
});

/// Declares the encoding of a field that is omitted if it has its default value; null also stands
/// for the default.
macro_rules! default_field {
    ($module:ident: $type:ty = $default:expr) => {
        pub(crate) mod $module {
            use super::*;

            pub(crate) fn encode<C, W: Write>(
                value: &$type,
                e: &mut Encoder<W>,
                scope: &mut C,
            ) -> Result<(), encode::Error<W::Error>> {
                value.encode(e, scope)
            }

            /// Fails on an unknown value: it must not be read as the default.
            pub(crate) fn decode<C>(
                d: &mut Decoder<'_>,
                scope: &mut C,
            ) -> Result<$type, decode::Error> {
                match Option::decode(d, scope) {
                    Ok(value) => Ok(value.unwrap_or($default)),
                    Err(_) => Err(
                        decode::Error::message(concat!("unknown ", stringify!($module)))
                            .at(d.position()),
                    ),
                }
            }

            pub(crate) fn nil() -> Option<$type> {
                Some($default)
            }

            pub(crate) fn is_nil(value: &$type) -> bool {
                *value == $default
            }
        }
    };
}

default_field!(delivery: DeliveryGuarantee = DeliveryGuarantee::AtLeastOnce);
default_field!(retryable: bool = true);

/// The performer of an attempt: null or absent for the owner, the id of a child, or `true` for a
/// worker.
pub(crate) mod performer {
    use super::*;

    pub(crate) fn encode<C, W: Write>(
        performer: &InvokePerformer,
        e: &mut Encoder<W>,
        scope: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        match performer {
            InvokePerformer::Owner => e.null()?.ok(),
            InvokePerformer::Child(child) => child.encode(e, scope),
            InvokePerformer::Worker => e.bool(true)?.ok(),
        }
    }

    /// Fails on an unknown value: it must not be read as the owner.
    pub(crate) fn decode<C>(
        d: &mut Decoder<'_>,
        scope: &mut C,
    ) -> Result<InvokePerformer, decode::Error> {
        match d.datatype()? {
            Type::Null => d.null().map(|()| InvokePerformer::Owner),
            Type::Bool if d.bool()? => Ok(InvokePerformer::Worker),
            Type::Bytes => ExecutionId::decode(d, scope).map(InvokePerformer::Child),
            _ => Err(decode::Error::message("unknown performer").at(d.position())),
        }
    }

    pub(crate) fn nil() -> Option<InvokePerformer> {
        Some(InvokePerformer::Owner)
    }

    pub(crate) fn is_nil(performer: &InvokePerformer) -> bool {
        performer.is_owner()
    }
}

/// A byte string in a shared allocation, which events clone without copying.
pub(crate) mod shared_bytes {
    use super::*;

    pub(crate) fn encode<C, W: Write>(
        bytes: &Arc<[u8]>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.bytes(bytes)?.ok()
    }

    pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Arc<[u8]>, decode::Error> {
        d.bytes().map(Arc::from)
    }
}
