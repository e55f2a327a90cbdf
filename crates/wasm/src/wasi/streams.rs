//! WASI streams. Output becomes log lines; input is always closed; every pollable is always ready.

use std::mem;

use onward_execution::GuestLogLevel;
use wasmtime::component::{ComponentType, Lower, Resource};
use wasmtime::{Result, StoreContextMut};

use super::{
    InputStreamResource, IoErrorResource, OutputStreamResource, PollableResource, WasiLinker,
};
use crate::guest_error::{GuestStop, trap_error};
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
    /// Takes output of a stream from `written` up to the end of a line, and returns that line;
    /// `None` if the output ends before the line does.
    fn next_line(&mut self, stream: u32, written: &mut &[u8]) -> Option<String> {
        let partial = if stream == STDERR {
            &mut self.err
        } else {
            &mut self.out
        };
        let room = LINE_BYTES_MAX.saturating_sub(partial.len());
        let next = &written[..written.len().min(room)];
        let line_end = next.iter().position(|byte| *byte == b'\n');
        partial.extend_from_slice(&next[..line_end.unwrap_or(next.len())]);
        *written = &written[line_end.map_or(next.len(), |end| end + 1)..];
        (line_end.is_some() || partial.len() >= LINE_BYTES_MAX)
            .then(|| String::from_utf8_lossy(&mem::take(partial)).into_owned())
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
    mut bytes: &[u8],
) -> Result<()> {
    let level = if stream == STDERR {
        GuestLogLevel::Error
    } else {
        GuestLogLevel::Info
    };
    if bytes.len() as u64 > WRITE_BYTES_MAX {
        let message = format!(
            "it wrote {} bytes to a stream at once, `check-write` permits {WRITE_BYTES_MAX}",
            bytes.len()
        );
        return Err(GuestStop(trap_error(message)).into());
    }
    // One by one: a block of line breaks has as many lines as bytes.
    while let Some(line) = store.data_mut().partial_lines.next_line(stream, &mut bytes) {
        store.data_mut().log_guest_line(level, line).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_and_limited() {
        let mut partial = PartialLines::default();
        let mut lines = |stream, mut written: &[u8]| {
            let next = || partial.next_line(stream, &mut written);
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        assert_eq!(lines(STDOUT, b"a\nb"), ["a"]);
        assert_eq!(lines(STDERR, b"c\n"), ["c"]);
        assert_eq!(lines(STDOUT, b"\n\nd"), ["b", ""]);
        let long = lines(STDOUT, &[b'x'; 2 * LINE_BYTES_MAX]);
        assert_eq!(
            long.iter().map(String::len).collect::<Vec<_>>(),
            [LINE_BYTES_MAX, LINE_BYTES_MAX]
        );
    }
}
