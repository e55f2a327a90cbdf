//! Counts the takeovers from crashed owners that an attempt has seen. The counts are stored in the
//! body of the execution's row, after the call depth, so that they survive the next crash.

use super::AttemptId;

/// Bytes of an entry: number of the operation, number of the attempt, count.
const ENTRY_BYTES: usize = 9;

/// Returns how many takeovers the body of a row counts for an attempt.
pub(super) fn takeover_count(body: &[u8], id: AttemptId) -> u8 {
    entries(body)
        .find(|(number, attempt, _)| (*number, *attempt) == (id.number, id.attempt))
        .map_or(0, |(_, _, count)| count)
}

/// Returns the body of a row with these counts. Earlier counts are dropped: they are of attempts
/// that are over.
pub(super) fn body_with_counts(body: &[u8], counts: &[(AttemptId, u8)]) -> Vec<u8> {
    let mut with_counts = vec![body.first().copied().unwrap_or(0)];
    for (id, count) in counts {
        with_counts.extend(id.number.to_le_bytes());
        with_counts.extend(id.attempt.to_le_bytes());
        with_counts.push(*count);
    }
    with_counts
}

fn entries(body: &[u8]) -> impl Iterator<Item = (u32, u32, u8)> {
    let entries = body.get(1..).unwrap_or_default().chunks_exact(ENTRY_BYTES);
    entries.filter_map(|entry| {
        let (number, rest) = entry.split_first_chunk::<4>()?;
        let (attempt, count) = rest.split_first_chunk::<4>()?;
        let (number, attempt) = (u32::from_le_bytes(*number), u32::from_le_bytes(*attempt));
        Some((number, attempt, *count.first()?))
    })
}

#[cfg(test)]
mod tests {
    use onward_journal::ExecutionId;

    use super::*;

    #[test]
    fn counts_are_read_as_written_and_the_call_depth_stays() {
        let id = |number, attempt| AttemptId {
            execution: ExecutionId::from_bytes([1; 32]),
            number,
            attempt,
        };
        for (body, depth) in [(&[][..], 0), (&[7], 7), (&[7, 1, 2], 7)] {
            assert_eq!(takeover_count(body, id(1, 1)), 0);
            let body = body_with_counts(body, &[(id(1, 1), 2), (id(500, 3), 255)]);
            assert_eq!(body[0], depth);
            assert_eq!(takeover_count(&body, id(1, 1)), 2);
            assert_eq!(takeover_count(&body, id(500, 3)), 255);
            assert_eq!(takeover_count(&body, id(1, 2)), 0);
            assert_eq!(body_with_counts(&body, &[]), [depth]);
        }
    }
}
