//! Streams. What is written becomes lines of the log; there is nothing to read; nothing ever has to be waited for.

use std::mem;

use onward_execution::Level;
use wasmtime::component::{ComponentType, Lower, Resource};
use wasmtime::{Result, StoreContextMut};

use super::{Failure, Input, Instance, Output, Pollable};
use crate::host::Data;

pub(super) const STDOUT: u32 = 1;
pub(super) const STDERR: u32 = 2;
/// What may be written at once.
const WRITE_BYTES_MAX: u64 = 64 << 10;
/// A line that is longer is logged in parts.
const LINE_BYTES_MAX: usize = 16 << 10;

#[derive(ComponentType, Lower)]
#[component(variant)]
enum StreamError {
    #[component(name = "last-operation-failed")]
    #[expect(dead_code, reason = "nothing fails, but the type has it")]
    LastOperationFailed(Resource<Failure>),
    #[component(name = "closed")]
    Closed,
}

type Streamed<T> = std::result::Result<T, StreamError>;

/// What was written and is not a whole line yet.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Lines {
    /// Adds what was written to a stream, and takes the lines that are whole.
    fn add(&mut self, stream: u32, written: &[u8]) -> Vec<String> {
        let rest = if stream == STDERR { &mut self.err } else { &mut self.out };
        let mut lines = Vec::new();
        for byte in written {
            if *byte != b'\n' {
                rest.push(*byte);
            }
            if *byte == b'\n' || rest.len() >= LINE_BYTES_MAX {
                lines.push(String::from_utf8_lossy(&mem::take(rest)).into_owned());
            }
        }
        lines
    }
}

pub(super) fn define(instance: &mut Instance<'_>, name: &str) -> Result<bool> {
    match name {
        "[method]output-stream.check-write" => {
            instance.func_wrap(name, |_, (_,): (Resource<Output>,)| Ok((Streamed::Ok(WRITE_BYTES_MAX),)))?;
        }
        "[method]output-stream.write" | "[method]output-stream.blocking-write-and-flush" => {
            instance.func_wrap_async(name, |store, (stream, bytes): (Resource<Output>, Vec<u8>)| {
                Box::new(async move { Ok((Streamed::Ok(write(store, stream.rep(), &bytes).await?),)) })
            })?
        }
        "[method]output-stream.flush" | "[method]output-stream.blocking-flush" => {
            instance.func_wrap(name, |_, (_,): (Resource<Output>,)| Ok((Streamed::Ok(()),)))?;
        }
        "[method]output-stream.subscribe" => {
            instance.func_wrap(name, |_, (_,): (Resource<Output>,)| Ok((Resource::<Pollable>::new_own(0),)))?;
        }
        "[method]input-stream.read" | "[method]input-stream.blocking-read" => {
            instance.func_wrap(name, |_, (_, _): (Resource<Input>, u64)| {
                Ok((Streamed::<Vec<u8>>::Err(StreamError::Closed),))
            })?;
        }
        "[method]input-stream.subscribe" => {
            instance.func_wrap(name, |_, (_,): (Resource<Input>,)| Ok((Resource::<Pollable>::new_own(0),)))?;
        }
        "[method]pollable.ready" => instance.func_wrap(name, |_, (_,): (Resource<Pollable>,)| Ok((true,)))?,
        "[method]pollable.block" => instance.func_wrap(name, |_, (_,): (Resource<Pollable>,)| Ok(()))?,
        "poll" => instance.func_wrap(name, |_, (all,): (Vec<Resource<Pollable>>,)| {
            let ready: Vec<u32> = (0..).take(all.len()).collect();
            Ok((ready,))
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

async fn write(mut store: StoreContextMut<'_, Data>, stream: u32, bytes: &[u8]) -> Result<()> {
    let level = if stream == STDERR { Level::Error } else { Level::Info };
    for line in store.data_mut().lines.add(stream, bytes) {
        store.data_mut().say(level, line).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_not_endless() {
        let mut lines = Lines::default();
        assert_eq!(lines.add(STDOUT, b"a\nb"), ["a"]);
        assert_eq!(lines.add(STDERR, b"c\n"), ["c"]);
        assert_eq!(lines.add(STDOUT, b"\n\nd"), ["b", ""]);
        let long = lines.add(STDOUT, &[b'x'; 2 * LINE_BYTES_MAX]);
        assert_eq!(long.iter().map(String::len).collect::<Vec<_>>(), [LINE_BYTES_MAX, LINE_BYTES_MAX]);
    }
}
