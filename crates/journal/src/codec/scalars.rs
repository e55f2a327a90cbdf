//! The small types in storage. Each is checked on the way in: bytes from a disk are input like any other.

use std::sync::Arc;

use minicbor::decode::{self, Decode, Decoder};
use minicbor::encode::{self, Encode, Encoder, Write};

use crate::{ComponentDigest, ErrorKind, Factor, Jitter, Payload, Text, Timestamp};

impl<C> Encode<C> for Text {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.str(self)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Text {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Ok(Self::from(d.str()?))
    }
}

impl<C> Encode<C> for Payload {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.str(self.as_str())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Payload {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Self::parse(d.str()?).map_err(decode::Error::custom)
    }
}

impl<C> Encode<C> for ErrorKind {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.str(self.as_str())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for ErrorKind {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        d.str()?.parse().map_err(decode::Error::custom)
    }
}

impl<C> Encode<C> for Timestamp {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.i64(self.as_micros())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Timestamp {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Self::from_micros(d.i64()?).ok_or_else(|| decode::Error::message("timestamp out of range"))
    }
}

impl<C> Encode<C> for ComponentDigest {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.bytes(self.as_bytes())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for ComponentDigest {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        d.bytes()?.try_into().map(Self::from_bytes).map_err(decode::Error::custom)
    }
}

impl<C> Encode<C> for Factor {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.u32(self.as_permille())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Factor {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Self::from_permille(d.u32()?).ok_or_else(|| decode::Error::message("factor out of range"))
    }
}

impl<C> Encode<C> for Jitter {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.u32(self.as_permille())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Jitter {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Self::from_permille(d.u32()?).ok_or_else(|| decode::Error::message("jitter out of range"))
    }
}

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
