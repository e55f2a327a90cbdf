//! WASI clocks. Both read the clock of the host interface; waiting on a clock is not implemented.

use wasmtime::Result;
use wasmtime::component::{ComponentType, Lower};

use super::WasiLinker;
use crate::bindings::host::Host;

/// Resolution of both clocks in nanoseconds: one microsecond, the resolution of the host's clock.
const RESOLUTION_NS: u32 = 1_000;

#[derive(ComponentType, Lower)]
#[component(record)]
struct WasiDatetime {
    seconds: u64,
    nanoseconds: u32,
}

impl WasiDatetime {
    /// Converts microseconds since 1970. A time before 1970 becomes 1970, because the type is
    /// unsigned.
    fn from_micros(us: i64) -> Self {
        let us = u64::try_from(us).unwrap_or(0);
        let nanoseconds = u32::try_from(us % 1_000_000).unwrap_or(0) * 1_000;
        Self {
            seconds: us / 1_000_000,
            nanoseconds,
        }
    }
}

pub(super) fn define_clock_function(
    instance: &mut WasiLinker<'_>,
    interface: &str,
    name: &str,
) -> Result<bool> {
    match (interface, name) {
        ("wasi:clocks/wall-clock", "now") => {
            instance.func_wrap_async(name, |mut store, (): ()| {
                Box::new(
                    async move { Ok((WasiDatetime::from_micros(store.data_mut().now().await?),)) },
                )
            })?
        }
        ("wasi:clocks/wall-clock", "resolution") => {
            instance.func_wrap(name, |_, (): ()| {
                Ok((WasiDatetime {
                    seconds: 0,
                    nanoseconds: RESOLUTION_NS,
                },))
            })?;
        }
        ("wasi:clocks/monotonic-clock", "now") => {
            instance.func_wrap_async(name, |mut store, (): ()| {
                Box::new(async move {
                    let us = u64::try_from(store.data_mut().now().await?).unwrap_or(0);
                    Ok((store.data_mut().monotonic_ns(us.saturating_mul(1_000)),))
                })
            })?
        }
        ("wasi:clocks/monotonic-clock", "resolution") => {
            instance.func_wrap(name, |_, (): ()| Ok((u64::from(RESOLUTION_NS),)))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_has_seconds_and_nanoseconds() {
        for (us, expected) in [(-1, (0, 0)), (0, (0, 0)), (1_999_999, (1, 999_999_000))] {
            let WasiDatetime {
                seconds,
                nanoseconds,
            } = WasiDatetime::from_micros(us);
            assert_eq!((seconds, nanoseconds), expected);
        }
    }
}
