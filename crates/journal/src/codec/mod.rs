//! The storage format: a record holds one or more consecutive events of one journal.
//!
//! ```text
//! record = "OJ" version:u8 crc:u32le body
//! body   = CBOR [ first_sequence, base_timestamp_us, [ item … ] ]
//! item   = CBOR [ timestamp_us - base, event ]
//! event  = CBOR [ id, [ field … ] ]
//! ```
//!
//! An event's id and the positions of its fields are the `#[n(…)]` numbers on [`Event`]; they never
//! change. Later versions may append optional fields: a reader skips unknown fields and uses the
//! default for missing ones. The checksum covers the execution's id, the version and the body, so
//! the reader refuses a record that was damaged or moved to another journal. Promise ids are stored
//! relative to the execution, mostly as one small number.
//!
//! Records of every released version stay in `tests/fixtures` permanently, and a test reads them.

mod ids;
mod scalars;

use minicbor::{Decoder, Encoder};
use thiserror::Error;

pub(crate) use ids::awaited;
pub(crate) use scalars::{delivery, performer, retryable, shared_bytes};

use crate::{Event, ExecutionId, JournalEvent};
use onward_base::Timestamp;

/// The format version that [`encode_record`] writes.
pub const FORMAT_VERSION: u8 = 1;

const MAGIC: [u8; 2] = *b"OJ";
const HEADER_BYTES: usize = MAGIC.len() + 1 + 4;

/// Maximum number of promises that the awaits of one record name together, because a few bytes can
/// name very many. A single await always fits ([`crate::rules::AWAITED_MAX`]); several awaits that
/// do not fit go into several records.
pub const RECORD_AWAITED_MAX: usize = 1 << 20;

/// The error for a record that could not be encoded or decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JournalCodecError {
    /// The sequence numbers of the events are not consecutive.
    #[error("a record holds consecutive events: sequence {found} where {expected} was expected")]
    NotConsecutive {
        /// The sequence number that would be consecutive.
        expected: u64,
        /// The sequence number of the event.
        found: u64,
    },
    /// The awaits of one record name more promises than [`RECORD_AWAITED_MAX`].
    #[error("the awaits of one record name more than {RECORD_AWAITED_MAX} promises")]
    TooManyAwaited,
    /// The bytes do not begin with the header of a record.
    #[error("not a journal record")]
    NotARecord,
    /// The record has another format version: a newer Onward wrote it.
    #[error(
        "the record has version {0}, this Onward reads version {FORMAT_VERSION}: use a newer one"
    )]
    Version(u8),
    /// The checksum does not match: the record is damaged or belongs to another execution.
    #[error("the record is damaged or belongs to another execution")]
    Checksum,
    /// The checksum matches but the contents are invalid: a defect of the writer.
    #[error("the record is malformed: {0}")]
    Malformed(String),
}

/// The context that the encoding of ids depends on: the execution, and how many promises the awaits
/// may still name.
pub(crate) trait CodecContext {
    fn execution_id(&self) -> ExecutionId;
    /// Reserves `promises` from the number that awaits may still name. Returns `false` if that
    /// exceeds the limit.
    fn reserve_awaited(&mut self, promises: usize) -> bool;
}

struct RecordContext {
    execution: ExecutionId,
    awaited_count: usize,
}

impl CodecContext for RecordContext {
    fn execution_id(&self) -> ExecutionId {
        self.execution
    }

    fn reserve_awaited(&mut self, promises: usize) -> bool {
        self.awaited_count = self.awaited_count.saturating_add(promises);
        self.awaited_count <= RECORD_AWAITED_MAX
    }
}

/// Encodes consecutive events as one record. Fails if the sequence numbers have gaps or the awaits
/// name more promises than [`RECORD_AWAITED_MAX`].
pub fn encode_record(
    execution: ExecutionId,
    events: &[JournalEvent],
) -> Result<Vec<u8>, JournalCodecError> {
    let first = events.first().map_or(0, |event| event.sequence);
    for (index, event) in events.iter().enumerate() {
        let expected = first.saturating_add(index as u64);
        if event.sequence != expected {
            return Err(JournalCodecError::NotConsecutive {
                expected,
                found: event.sequence,
            });
        }
    }
    let mut record = Vec::with_capacity(HEADER_BYTES + 32 + 48 * events.len());
    record.extend_from_slice(&MAGIC);
    record.push(FORMAT_VERSION);
    record.extend_from_slice(&[0; 4]);
    let mut out = Encoder::new(record);
    // Writing to memory cannot fail; the only possible error is the limit for awaited promises.
    encode_body(&mut out, execution, first, events)
        .map_err(|_| JournalCodecError::TooManyAwaited)?;
    let mut record = out.into_writer();
    let crc = record_checksum(execution, FORMAT_VERSION, &record[HEADER_BYTES..]);
    record[MAGIC.len() + 1..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    Ok(record)
}

type RecordEncoder = Encoder<Vec<u8>>;
type RecordEncodeError = minicbor::encode::Error<std::convert::Infallible>;

fn encode_body(
    out: &mut RecordEncoder,
    execution: ExecutionId,
    first: u64,
    events: &[JournalEvent],
) -> Result<(), RecordEncodeError> {
    let base = events
        .first()
        .map_or(0, |event| event.timestamp.as_micros());
    let mut scope = RecordContext {
        execution,
        awaited_count: 0,
    };
    out.array(3)?
        .u64(first)?
        .i64(base)?
        .array(events.len() as u64)?;
    for item in events {
        out.array(2)?
            .i64(item.timestamp.as_micros() - base)?
            .encode_with(&item.event, &mut scope)?;
    }
    Ok(())
}

/// Decodes a record that [`encode_record`] wrote for the same execution.
pub fn decode_record(
    execution: ExecutionId,
    record: &[u8],
) -> Result<Vec<JournalEvent>, JournalCodecError> {
    let (header, body) = record
        .split_at_checked(HEADER_BYTES)
        .ok_or(JournalCodecError::NotARecord)?;
    let [m0, m1, version, crc @ ..] = header else {
        return Err(JournalCodecError::NotARecord);
    };
    if [*m0, *m1] != MAGIC {
        return Err(JournalCodecError::NotARecord);
    }
    if *version != FORMAT_VERSION {
        return Err(JournalCodecError::Version(*version));
    }
    if crc != record_checksum(execution, *version, body).to_le_bytes() {
        return Err(JournalCodecError::Checksum);
    }
    decode_body(execution, body)
}

/// Decodes the body of a record without its checksum: for fuzzing, which would never guess a valid
/// one.
#[doc(hidden)]
pub fn decode_body(
    execution: ExecutionId,
    body: &[u8],
) -> Result<Vec<JournalEvent>, JournalCodecError> {
    let mut bytes = Decoder::new(body);
    let events = read_body(&mut bytes, execution)
        .map_err(|error| JournalCodecError::Malformed(error.to_string()))?;
    match bytes.position() {
        end if end == body.len() => Ok(events),
        end => Err(JournalCodecError::Malformed(format!(
            "bytes after the end at {end}"
        ))),
    }
}

type RecordDecodeError = minicbor::decode::Error;

fn read_body(
    bytes: &mut Decoder<'_>,
    execution: ExecutionId,
) -> Result<Vec<JournalEvent>, RecordDecodeError> {
    let mut scope = RecordContext {
        execution,
        awaited_count: 0,
    };
    let fields = expect_array(bytes, 3)?;
    let first = bytes.u64()?;
    let base = bytes.i64()?;
    let count = definite_array(bytes)?;
    // The count is untrusted, so it must not determine the allocation. A count that exceeds the
    // bytes fails below.
    let mut events = Vec::with_capacity(
        usize::try_from(count)
            .unwrap_or(0)
            .min(bytes.input().len() / 4),
    );
    for index in 0..count {
        let sequence = first
            .checked_add(index)
            .ok_or_else(|| RecordDecodeError::message("sequence overflow"))?;
        events.push(read_item(bytes, sequence, base, &mut scope)?);
    }
    skip_elements(bytes, fields - 3)?;
    Ok(events)
}

fn read_item(
    bytes: &mut Decoder<'_>,
    sequence: u64,
    base: i64,
    scope: &mut RecordContext,
) -> Result<JournalEvent, RecordDecodeError> {
    let fields = expect_array(bytes, 2)?;
    let timestamp = base
        .checked_add(bytes.i64()?)
        .and_then(Timestamp::from_micros);
    let timestamp =
        timestamp.ok_or_else(|| RecordDecodeError::message("timestamp out of range"))?;
    let event: Event = bytes.decode_with(scope)?;
    skip_elements(bytes, fields - 2)?;
    Ok(JournalEvent {
        sequence,
        timestamp,
        event,
    })
}

/// Returns the length of an array with at least `known` elements; later versions may have appended
/// more.
fn expect_array(bytes: &mut Decoder<'_>, known: u64) -> Result<u64, RecordDecodeError> {
    match definite_array(bytes)? {
        length if length >= known => Ok(length),
        _ => Err(RecordDecodeError::message("array too short").at(bytes.position())),
    }
}

fn definite_array(bytes: &mut Decoder<'_>) -> Result<u64, RecordDecodeError> {
    bytes
        .array()?
        .ok_or_else(|| RecordDecodeError::message("array of unknown length").at(bytes.position()))
}

fn skip_elements(bytes: &mut Decoder<'_>, elements: u64) -> Result<(), RecordDecodeError> {
    (0..elements).try_for_each(|_| bytes.skip())
}

fn record_checksum(execution: ExecutionId, version: u8, body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(execution.as_bytes());
    crc.update(&[version]);
    crc.update(body);
    crc.finalize()
}
