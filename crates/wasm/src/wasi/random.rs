//! Randomness, all of it as good as that of the host interface.

use wasmtime::{Result, StoreContextMut};

use super::Instance;
use crate::bindings::host::Host;
use crate::host::Data;
use crate::stop::{Stop, named};

/// What one call may draw; a workflow's journal records all of it.
const BYTES_MAX: u64 = 64 << 10;
const DRAW_MAX: u64 = 4_096;

pub(super) fn define(instance: &mut Instance<'_>, name: &str) -> Result<bool> {
    match name {
        "get-random-bytes" | "get-insecure-random-bytes" => instance
            .func_wrap_async(name, |store, (length,): (u64,)| {
                Box::new(async move { Ok((bytes(store, length).await?,)) })
            })?,
        "get-random-u64" | "get-insecure-random-u64" => instance
            .func_wrap_async(name, |store, (): ()| Box::new(async move { Ok((word(&bytes(store, 8).await?, 0),)) }))?,
        "insecure-seed" => instance.func_wrap_async(name, |store, (): ()| {
            Box::new(async move {
                let bytes = bytes(store, 16).await?;
                Ok(((word(&bytes, 0), word(&bytes, 8)),))
            })
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

async fn bytes(mut store: StoreContextMut<'_, Data>, length: u64) -> Result<Vec<u8>> {
    if length > BYTES_MAX {
        let message = format!("it draws at most {BYTES_MAX} bytes of randomness at a time, not {length}");
        return Err(Stop(named("too_large", message)).into());
    }
    let mut bytes = Vec::new();
    let mut left = length;
    while left > 0 {
        let draw = left.min(DRAW_MAX);
        bytes.extend(store.data_mut().random(u32::try_from(draw).unwrap_or(u32::MAX)).await?);
        left -= draw;
    }
    Ok(bytes)
}

/// Eight bytes as a number.
fn word(bytes: &[u8], from: usize) -> u64 {
    bytes.iter().skip(from).take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
