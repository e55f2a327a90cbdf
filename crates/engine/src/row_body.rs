//! The column `body` of an execution row: what the shard owner stores about an execution beyond its
//! state.
//!
//! The first byte is the depth of nested calls above the execution. Where it matters, five more
//! bytes tell clients how many signals the execution has not consumed: their number in hundreds, in
//! two bytes, and their payload in MiB, in three. They are rounded down, so that the row changes
//! seldom. Entries for the next owner follow: how many takeovers an attempt has seen.

use std::sync::Arc;

use onward_execution::SignalBacklog;

use crate::shard::AttemptId;

/// Unit in which the number of signals is stored.
const SIGNALS_UNIT: u64 = 100;

/// Unit in which the payload of signals is stored, in bytes.
const BYTES_UNIT: u64 = 1 << 20;

/// Position of the entries of takeovers.
const TAKEOVERS_AT: usize = 6;

/// Bytes of an entry: number of the operation, number of the attempt, takeovers.
const TAKEOVER_BYTES: usize = 9;

/// Depth of nested calls above the execution; 0 if the body is empty.
pub(crate) fn call_depth(body: &[u8]) -> u8 {
    body.first().copied().unwrap_or(0)
}

/// The signals that the execution has not consumed, as far as the body says.
pub(crate) fn signal_backlog(body: &[u8]) -> SignalBacklog {
    let [h0, h1, m0, m1, m2] = backlog_bytes(body);
    SignalBacklog {
        count: u64::from(u16::from_be_bytes([h0, h1])) * SIGNALS_UNIT,
        bytes: u64::from(u32::from_be_bytes([0, m0, m1, m2])) * BYTES_UNIT,
    }
}

/// Returns the body with another backlog of signals; `None` if that changes nothing.
pub(crate) fn with_signal_backlog(body: &[u8], backlog: SignalBacklog) -> Option<Arc<[u8]>> {
    let hundreds = u16::try_from(backlog.count / SIGNALS_UNIT).unwrap_or(u16::MAX);
    let mebibytes = u32::try_from(backlog.bytes / BYTES_UNIT).unwrap_or(u32::MAX);
    let [h0, h1] = hundreds.to_be_bytes();
    let [_, m0, m1, m2] = mebibytes.min((1 << 24) - 1).to_be_bytes();
    let bytes = [h0, h1, m0, m1, m2];
    (bytes != backlog_bytes(body)).then(|| encode(call_depth(body), bytes, takeovers(body)))
}

/// Returns how many takeovers from crashed owners an attempt has seen.
pub(crate) fn takeover_count(body: &[u8], id: AttemptId) -> u8 {
    let key = attempt_key(id);
    takeovers(body)
        .chunks_exact(TAKEOVER_BYTES)
        .filter_map(|entry| entry.strip_prefix(&key))
        .find_map(|count| count.first().copied())
        .unwrap_or(0)
}

/// Returns the body with these takeovers. Earlier ones are dropped: they are of attempts that have
/// ended.
pub(crate) fn with_takeovers(body: &[u8], counts: &[(AttemptId, u8)]) -> Arc<[u8]> {
    let mut entries = Vec::with_capacity(counts.len() * TAKEOVER_BYTES);
    for (id, count) in counts {
        entries.extend(attempt_key(*id));
        entries.push(*count);
    }
    encode(call_depth(body), backlog_bytes(body), &entries)
}

fn encode(call_depth: u8, backlog: [u8; 5], takeovers: &[u8]) -> Arc<[u8]> {
    if backlog == [0; 5] && takeovers.is_empty() {
        return [call_depth].into();
    }
    [&[call_depth], &backlog[..], takeovers].concat().into()
}

fn backlog_bytes(body: &[u8]) -> [u8; 5] {
    let bytes = body.get(1..TAKEOVERS_AT);
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .unwrap_or_default()
}

fn takeovers(body: &[u8]) -> &[u8] {
    body.get(TAKEOVERS_AT..).unwrap_or_default()
}

fn attempt_key(id: AttemptId) -> [u8; TAKEOVER_BYTES - 1] {
    let (number, attempt) = (id.number.to_be_bytes(), id.attempt.to_be_bytes());
    let [n0, n1, n2, n3] = number;
    let [a0, a1, a2, a3] = attempt;
    [n0, n1, n2, n3, a0, a1, a2, a3]
}

#[cfg(test)]
mod tests {
    use onward_journal::ExecutionId;

    use super::*;

    fn attempt(number: u32, attempt: u32) -> AttemptId {
        AttemptId {
            execution: ExecutionId::from_bytes([1; 32]),
            number,
            attempt,
        }
    }

    #[test]
    fn few_signals_leave_the_body_as_it_is() {
        let few = SignalBacklog {
            count: 99,
            bytes: BYTES_UNIT - 1,
        };
        assert_eq!(with_signal_backlog(&[3], few), None);
        assert_eq!(with_signal_backlog(&[], few), None);
        assert_eq!(signal_backlog(&[3]), SignalBacklog::default());
        assert_eq!(call_depth(&[]), 0);
    }

    #[test]
    fn signals_are_stored_rounded_down_and_takeovers_beside_them() {
        let backlog = SignalBacklog {
            count: 12_345,
            bytes: 70 * BYTES_UNIT + 5,
        };
        let stored = SignalBacklog {
            count: 12_300,
            bytes: 70 * BYTES_UNIT,
        };
        for (body, depth) in [(&[][..], 0), (&[7], 7)] {
            let body = with_signal_backlog(body, backlog).unwrap();
            assert_eq!((call_depth(&body), signal_backlog(&body)), (depth, stored));
            let counts = [(attempt(1, 1), 2), (attempt(500, 3), 255)];
            let body = with_takeovers(&body, &counts);
            assert_eq!((call_depth(&body), signal_backlog(&body)), (depth, stored));
            assert_eq!(with_signal_backlog(&body, backlog), None);
            let body = with_signal_backlog(&body, SignalBacklog::default()).unwrap();
            assert_eq!(takeover_count(&body, attempt(1, 1)), 2);
            assert_eq!(takeover_count(&body, attempt(500, 3)), 255);
            assert_eq!(takeover_count(&body, attempt(1, 2)), 0);
            assert_eq!(*with_takeovers(&body, &[]), [depth]);
        }
    }
}
