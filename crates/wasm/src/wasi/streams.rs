//! WASI streams. Output becomes log lines; input is always closed; every pollable is always ready.

use std::mem;

use onward_execution::GuestLogLevel;
use wasmtime::component::{ComponentType, Lower, Resource};
use wasmtime::{Result, StoreContextMut};

use super::{
    InputStreamResource, IoErrorResource, OutputStreamResource, PollableResource, WasiLinker,
};
use crate::host::GuestState;

pub(super) const STDOUT: u32 = 1;
pub(super) const STDERR: u32 = 2;
/// Number of bytes that `check-write` permits for one write.
const WRITE_BYTES_MAX: u64 = 64 << 10;
/// Maximum length of a line in bytes; a longer line is logged in parts.
const LINE_BYTES_MAX: usize = 16 << 10;

#[derive(ComponentType, Lower)]
#[component(variant)]
enum WasiStreamError {
    #[component(name = "last-operation-failed")]
    #[expect(
        dead_code,
        reason = "the interface has this case, but no operation fails"
    )]
    LastOperationFailed(Resource<IoErrorResource>),
    #[component(name = "closed")]
    Closed,
}

type StreamResult<T> = std::result::Result<T, WasiStreamError>;

/// Output of both streams that does not yet form a complete line.
#[derive(Debug, Default)]
pub(crate) struct PartialLines {
    out: Vec<u8>,
    err: Vec<u8>,
}

impl PartialLines {
    /// Appends output to a stream and returns the lines that are now complete.
    fn complete_lines(&mut self, stream: u32, written: &[u8]) -> Vec<String> {
        let rest = if stream == STDERR {
            &mut self.err
        } else {
            &mut self.out
        };
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

pub(super) fn define_stream_function(instance: &mut WasiLinker<'_>, name: &str) -> Result<bool> {
    match name {
        "[method]output-stream.check-write" => {
            instance.func_wrap(name, |_, (_,): (Resource<OutputStreamResource>,)| {
                Ok((StreamResult::Ok(WRITE_BYTES_MAX),))
            })?;
        }
        "[method]output-stream.write" | "[method]output-stream.blocking-write-and-flush" => {
            instance.func_wrap_async(
                name,
                |store, (stream, bytes): (Resource<OutputStreamResource>, Vec<u8>)| {
                    Box::new(async move {
                        Ok((StreamResult::Ok(
                            write_lines(store, stream.rep(), &bytes).await?,
                        ),))
                    })
                },
            )?
        }
        "[method]output-stream.flush" | "[method]output-stream.blocking-flush" => {
            instance.func_wrap(name, |_, (_,): (Resource<OutputStreamResource>,)| {
                Ok((StreamResult::Ok(()),))
            })?;
        }
        "[method]output-stream.subscribe" => {
            instance.func_wrap(name, |_, (_,): (Resource<OutputStreamResource>,)| {
                Ok((Resource::<PollableResource>::new_own(0),))
            })?;
        }
        "[method]input-stream.read" | "[method]input-stream.blocking-read" => {
            instance.func_wrap(name, |_, (_, _): (Resource<InputStreamResource>, u64)| {
                Ok((StreamResult::<Vec<u8>>::Err(WasiStreamError::Closed),))
            })?;
        }
        "[method]input-stream.subscribe" => {
            instance.func_wrap(name, |_, (_,): (Resource<InputStreamResource>,)| {
                Ok((Resource::<PollableResource>::new_own(0),))
            })?;
        }
        "[method]pollable.ready" => {
            instance.func_wrap(name, |_, (_,): (Resource<PollableResource>,)| Ok((true,)))?
        }
        "[method]pollable.block" => {
            instance.func_wrap(name, |_, (_,): (Resource<PollableResource>,)| Ok(()))?
        }
        "poll" => instance.func_wrap(name, |_, (all,): (Vec<Resource<PollableResource>>,)| {
            let ready: Vec<u32> = (0..).take(all.len()).collect();
            Ok((ready,))
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

async fn write_lines(
    mut store: StoreContextMut<'_, GuestState>,
    stream: u32,
    bytes: &[u8],
) -> Result<()> {
    let level = if stream == STDERR {
        GuestLogLevel::Error
    } else {
        GuestLogLevel::Info
    };
    for line in store.data_mut().partial_lines.complete_lines(stream, bytes) {
        store.data_mut().log_guest_line(level, line).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_and_limited() {
        let mut lines = PartialLines::default();
        assert_eq!(lines.complete_lines(STDOUT, b"a\nb"), ["a"]);
        assert_eq!(lines.complete_lines(STDERR, b"c\n"), ["c"]);
        assert_eq!(lines.complete_lines(STDOUT, b"\n\nd"), ["b", ""]);
        let long = lines.complete_lines(STDOUT, &[b'x'; 2 * LINE_BYTES_MAX]);
        assert_eq!(
            long.iter().map(String::len).collect::<Vec<_>>(),
            [LINE_BYTES_MAX, LINE_BYTES_MAX]
        );
    }
}
