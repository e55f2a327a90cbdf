//! WASI randomness. All functions, including the insecure ones, use the randomness of the host
//! interface.

use wasmtime::{Result, StoreContextMut};

use super::WasiLinker;
use crate::bindings::host::Host;
use crate::guest_error::{GuestStop, permanent_error};
use crate::host::GuestState;

/// Maximum number of random bytes in one call, because a workflow's journal records all of them.
const RANDOM_BYTES_MAX: u64 = 64 << 10;
const DRAW_MAX: u64 = 4_096;

pub(super) fn define_random_function(instance: &mut WasiLinker<'_>, name: &str) -> Result<bool> {
    match name {
        "get-random-bytes" | "get-insecure-random-bytes" => {
            instance.func_wrap_async(name, |store, (length,): (u64,)| {
                Box::new(async move { Ok((random_bytes(store, length).await?,)) })
            })?
        }
        "get-random-u64" | "get-insecure-random-u64" => {
            instance.func_wrap_async(name, |store, (): ()| {
                Box::new(async move { Ok((read_u64(&random_bytes(store, 8).await?, 0),)) })
            })?
        }
        "insecure-seed" => instance.func_wrap_async(name, |store, (): ()| {
            Box::new(async move {
                let bytes = random_bytes(store, 16).await?;
                Ok(((read_u64(&bytes, 0), read_u64(&bytes, 8)),))
            })
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

async fn random_bytes(mut store: StoreContextMut<'_, GuestState>, length: u64) -> Result<Vec<u8>> {
    if length > RANDOM_BYTES_MAX {
        let message =
            format!("at most {RANDOM_BYTES_MAX} random bytes at a time, requested: {length}");
        return Err(GuestStop(permanent_error("too_large", message)).into());
    }
    let mut bytes = Vec::new();
    let mut left = length;
    while left > 0 {
        let draw = left.min(DRAW_MAX);
        bytes.extend(
            store
                .data_mut()
                .random(u32::try_from(draw).unwrap_or(u32::MAX))
                .await?,
        );
        left -= draw;
    }
    Ok(bytes)
}

/// Reads eight bytes as a big-endian number.
fn read_u64(bytes: &[u8], from: usize) -> u64 {
    bytes
        .iter()
        .skip(from)
        .take(8)
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
