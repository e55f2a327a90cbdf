//! The stored encoding (CBOR) of shared values. The decoder validates every value: bytes from a
//! disk are untrusted input.

use minicbor::decode;

use crate::{BackoffFactor, BoundedName, Payload, SharedText, Timestamp};

/// Implements the CBOR encoding of a type: `Type: write |encoder, value|, read |decoder|`.
#[macro_export]
macro_rules! scalar_codec {
    ($type:ty: write |$e:ident, $value:ident| $write:expr, read |$d:ident| $read:expr) => {
        impl<C> $crate::minicbor::Encode<C> for $type {
            fn encode<W: $crate::minicbor::encode::Write>(
                &self,
                $e: &mut $crate::minicbor::Encoder<W>,
                _: &mut C,
            ) -> Result<(), $crate::minicbor::encode::Error<W::Error>> {
                let $value = self;
                $write?.ok()
            }
        }

        impl<'b, C> $crate::minicbor::Decode<'b, C> for $type {
            fn decode(
                $d: &mut $crate::minicbor::Decoder<'b>,
                _: &mut C,
            ) -> Result<Self, $crate::minicbor::decode::Error> {
                $read
            }
        }
    };
}

scalar_codec!(SharedText: write |e, text| e.str(text), read |d| d.str().map(Self::from));
scalar_codec!(Payload: write |e, payload| e.str(payload.as_str()), read |d| {
    Self::parse(d.str()?).map_err(decode::Error::custom)
});
scalar_codec!(BoundedName: write |e, name| e.str(name), read |d| d.str()?.parse().map_err(decode::Error::custom));
scalar_codec!(Timestamp: write |e, at| e.i64(at.as_micros()), read |d| {
    Self::from_micros(d.i64()?).ok_or_else(|| decode::Error::message("timestamp out of range"))
});
scalar_codec!(BackoffFactor: write |e, factor| e.u32(factor.as_permille()), read |d| {
    Self::from_permille(d.u32()?).ok_or_else(|| decode::Error::message("factor out of range"))
});
