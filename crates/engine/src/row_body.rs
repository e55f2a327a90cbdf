//! The column `body` of an execution row: what the shard owner tells clients about an execution
//! beyond its state.
//!
//! The first byte is the depth of nested calls above the execution. Five more bytes follow while
//! signals that the execution has not consumed are many or large: their number in hundreds, in two
//! bytes, and their payload in MiB, in three. They are rounded down, so that the row changes
//! seldom.

use std::sync::Arc;

use onward_execution::SignalBacklog;

/// Unit in which the number of signals is stored.
const SIGNALS_UNIT: u64 = 100;

/// Unit in which the payload of signals is stored, in bytes.
const BYTES_UNIT: u64 = 1 << 20;

/// Depth of nested calls above the execution; 0 if the body is empty.
pub(crate) fn call_depth(body: &[u8]) -> u8 {
    body.first().copied().unwrap_or(0)
}

/// Encodes the body.
pub(crate) fn encode_row_body(call_depth: u8, backlog: SignalBacklog) -> Arc<[u8]> {
    let hundreds = u16::try_from(backlog.count / SIGNALS_UNIT).unwrap_or(u16::MAX);
    let mebibytes = u32::try_from(backlog.bytes / BYTES_UNIT).unwrap_or(u32::MAX);
    let mebibytes = mebibytes.min((1 << 24) - 1);
    if hundreds == 0 && mebibytes == 0 {
        return [call_depth].into();
    }
    let [h0, h1] = hundreds.to_be_bytes();
    let [_, m0, m1, m2] = mebibytes.to_be_bytes();
    [call_depth, h0, h1, m0, m1, m2].into()
}

/// The signals that the execution has not consumed, as far as the body says.
pub(crate) fn signal_backlog(body: &[u8]) -> SignalBacklog {
    let &[_, h0, h1, m0, m1, m2] = body else {
        return SignalBacklog::default();
    };
    SignalBacklog {
        count: u64::from(u16::from_be_bytes([h0, h1])) * SIGNALS_UNIT,
        bytes: u64::from(u32::from_be_bytes([0, m0, m1, m2])) * BYTES_UNIT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_signals_leave_the_body_as_it_is() {
        let few = SignalBacklog {
            count: 99,
            bytes: BYTES_UNIT - 1,
        };
        assert_eq!(*encode_row_body(3, few), [3]);
        assert_eq!(signal_backlog(&[3]), SignalBacklog::default());
        assert_eq!(call_depth(&[]), 0);
    }

    #[test]
    fn many_signals_are_stored_rounded_down() {
        let backlog = SignalBacklog {
            count: 12_345,
            bytes: 70 * BYTES_UNIT + 5,
        };
        let body = encode_row_body(7, backlog);
        let stored = SignalBacklog {
            count: 12_300,
            bytes: 70 * BYTES_UNIT,
        };
        assert_eq!((call_depth(&body), signal_backlog(&body)), (7, stored));
    }
}
