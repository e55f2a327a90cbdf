//! The storage format of promise ids. Nearly all are direct children of the execution and take one
//! number each; the many ids that a wide join waits for are stored as runs of numbers.
//!
//! ```text
//! id      = uint                      a direct child of the execution
//!         | [ nil | root, path … ]    any other: nil stands for the execution's own root
//! awaited = [ id | [ first, count ] … ]
//! ```

use minicbor::data::Type;
use minicbor::decode::{self, Decode, Decoder};
use minicbor::encode::{self, Encode, Encoder, Write};

use super::CodecContext;
use crate::{CALL_DEPTH_MAX, ExecutionId, JoinSetId, PromiseId};

impl<C: CodecContext> Encode<C> for PromiseId {
    fn encode<W: Write>(
        &self,
        e: &mut Encoder<W>,
        scope: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        if let Some(number) = self.child_number_in(scope.execution_id()) {
            return e.u32(number)?.ok();
        }
        e.array(1 + self.depth() as u64)?;
        if self.execution_root() == scope.execution_id() {
            e.null()?;
        } else {
            e.bytes(self.execution_root().as_bytes())?;
        }
        for part in self.path() {
            e.u32(*part)?;
        }
        Ok(())
    }
}

impl<'b, C: CodecContext> Decode<'b, C> for PromiseId {
    fn decode(d: &mut Decoder<'b>, scope: &mut C) -> Result<Self, decode::Error> {
        if d.datatype()? != Type::Array {
            return Ok(scope.execution_id().child_promise(d.u32()?));
        }
        match d.array()? {
            Some(length @ 1..) => read_path(d, length - 1, scope),
            _ => Err(decode::Error::message("promise id of no known length").at(d.position())),
        }
    }
}

fn read_path<C: CodecContext>(
    d: &mut Decoder<'_>,
    length: u64,
    scope: &C,
) -> Result<PromiseId, decode::Error> {
    let root = match d.datatype()? {
        Type::Null => d.null().map(|()| scope.execution_id())?,
        _ => ExecutionId::from_bytes(d.bytes()?.try_into().map_err(decode::Error::custom)?),
    };
    if length > CALL_DEPTH_MAX as u64 {
        return Err(decode::Error::message("promise id too deep").at(d.position()));
    }
    let path = (0..length)
        .map(|_| d.u32())
        .collect::<Result<Vec<u32>, _>>()?;
    PromiseId::new(root, &path).map_err(decode::Error::custom)
}

impl<C: CodecContext> Encode<C> for JoinSetId {
    fn encode<W: Write>(
        &self,
        e: &mut Encoder<W>,
        scope: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        self.0.encode(e, scope)
    }
}

impl<'b, C: CodecContext> Decode<'b, C> for JoinSetId {
    fn decode(d: &mut Decoder<'b>, scope: &mut C) -> Result<Self, decode::Error> {
        PromiseId::decode(d, scope).map(Self)
    }
}

/// The ids that an await names; runs of more than two consecutive children are stored as pairs.
pub(crate) mod awaited {
    use super::*;

    pub(crate) fn encode<C: CodecContext, W: Write>(
        ids: &[PromiseId],
        e: &mut Encoder<W>,
        scope: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        if !scope.reserve_awaited(ids.len()) {
            return Err(encode::Error::message("too many promises awaited"));
        }
        let execution = scope.execution_id();
        let runs: Vec<&[PromiseId]> = ids
            .chunk_by(|a, b| is_next_child(a, b, execution))
            .collect();
        let items = runs
            .iter()
            .map(|run| {
                if encodes_as_run(run) {
                    1
                } else {
                    run.len() as u64
                }
            })
            .sum();
        e.array(items)?;
        for run in runs {
            match run
                .first()
                .and_then(|first| first.child_number_in(execution))
            {
                Some(first) if encodes_as_run(run) => {
                    e.array(2)?.u32(first)?.u64(run.len() as u64)?;
                }
                _ => run.iter().try_for_each(|id| id.encode(e, scope))?,
            }
        }
        Ok(())
    }

    fn is_next_child(a: &PromiseId, b: &PromiseId, execution: ExecutionId) -> bool {
        let next = a
            .child_number_in(execution)
            .and_then(|number| number.checked_add(1));
        next.is_some() && next == b.child_number_in(execution)
    }

    fn encodes_as_run(run: &[PromiseId]) -> bool {
        run.len() > 2
    }

    pub(crate) fn decode<C: CodecContext>(
        d: &mut Decoder<'_>,
        scope: &mut C,
    ) -> Result<Vec<PromiseId>, decode::Error> {
        let items = d
            .array()?
            .ok_or_else(|| decode::Error::message("awaited ids of unknown number"))?;
        let mut ids = Vec::new();
        for _ in 0..items {
            match read_run(d)? {
                Some((first, count)) => {
                    try_reserve_awaited(scope, count)?;
                    ids.extend(
                        (0..count as u32)
                            .map(|offset| scope.execution_id().child_promise(first + offset)),
                    );
                }
                None => {
                    try_reserve_awaited(scope, 1)?;
                    ids.push(PromiseId::decode(d, scope)?);
                }
            }
        }
        Ok(ids)
    }

    fn try_reserve_awaited<C: CodecContext>(
        scope: &mut C,
        promises: usize,
    ) -> Result<(), decode::Error> {
        if scope.reserve_awaited(promises) {
            Ok(())
        } else {
            Err(decode::Error::message("too many promises awaited"))
        }
    }

    /// Reads a run of ids. Returns `None` and reads nothing if a plain id follows.
    fn read_run(d: &mut Decoder<'_>) -> Result<Option<(u32, usize)>, decode::Error> {
        let mut ahead = d.probe();
        if ahead.datatype()? != Type::Array
            || ahead.array()? != Some(2)
            || !is_unsigned(ahead.datatype()?)
        {
            return Ok(None);
        }
        d.array()?;
        let (first, count) = (d.u32()?, d.u32()?);
        match first.checked_add(count.saturating_sub(1)) {
            Some(_) => Ok(Some((first, count as usize))),
            None => Err(
                decode::Error::message("run of promises beyond the last number").at(d.position()),
            ),
        }
    }

    const fn is_unsigned(datatype: Type) -> bool {
        matches!(datatype, Type::U8 | Type::U16 | Type::U32 | Type::U64)
    }
}
