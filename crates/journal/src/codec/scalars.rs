//! The small types in storage. Each is checked on the way in: bytes from a disk are input like any other.

use std::sync::Arc;

use minicbor::decode::{self, Decode, Decoder};
use minicbor::encode::{self, Encode, Encoder, Write};

use crate::{ComponentDigest, ErrorKind, Factor, Jitter, Name, Payload, Text, Timestamp};

/// How a type is written and read: `Type: write |encoder, value|, read |decoder|`.
macro_rules! scalar {
    ($type:ty: write |$e:ident, $value:ident| $write:expr, read |$d:ident| $read:expr) => {
        impl<C> Encode<C> for $type {
            fn encode<W: Write>(&self, $e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
                let $value = self;
                $write?.ok()
            }
        }

        impl<'b, C> Decode<'b, C> for $type {
            fn decode($d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
                $read
            }
        }
    };
}

scalar!(Text: write |e, text| e.str(text), read |d| d.str().map(Self::from));
scalar!(Payload: write |e, payload| e.str(payload.as_str()), read |d| {
    Self::parse(d.str()?).map_err(decode::Error::custom)
});
scalar!(Name: write |e, name| e.str(name), read |d| d.str()?.parse().map_err(decode::Error::custom));
scalar!(ErrorKind: write |e, kind| e.str(kind.as_str()), read |d| d.str()?.parse().map_err(decode::Error::custom));
scalar!(ComponentDigest: write |e, digest| e.bytes(digest.as_bytes()), read |d| {
    d.bytes()?.try_into().map(Self::from_bytes).map_err(decode::Error::custom)
});
scalar!(Timestamp: write |e, at| e.i64(at.as_micros()), read |d| {
    Self::from_micros(d.i64()?).ok_or_else(|| decode::Error::message("timestamp out of range"))
});
scalar!(Factor: write |e, factor| e.u32(factor.as_permille()), read |d| {
    Self::from_permille(d.u32()?).ok_or_else(|| decode::Error::message("factor out of range"))
});
scalar!(Jitter: write |e, jitter| e.u32(jitter.as_permille()), read |d| {
    Self::from_permille(d.u32()?).ok_or_else(|| decode::Error::message("jitter out of range"))
});

/// Bytes that events share.
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
