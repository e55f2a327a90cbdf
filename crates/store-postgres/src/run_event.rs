//! Run events as rows, and as the array parameters that insert many of them at once.

use onward_base::Payload;
use onward_runs::{
    AttemptNumber, ExtraFields, IdempotencyKey, RunEventId, RunEventRecord, RunEventWrite, RunId,
    RunSeq,
};
use onward_store::{Error, PlannedEvent, event_checksum};
use tokio_postgres::Row;

use crate::error;
use crate::pipeline::PipelineStatement;
use crate::value::{PostgresTimestamp, PostgresUuid, count_from_sql, count_to_sql};

/// Inserts events; the parameters come from [`with_event_arrays`].
pub(crate) const INSERT_EVENTS: &str = include_str!("../statements/insert_events.sql");

/// Decodes the event from a row that has all columns of the table in their order. An error names
/// the event, if its position can be read.
pub(crate) fn event_from_row(row: &Row) -> Result<RunEventRecord, Error> {
    decode_event(row).map_err(|error| match (error, event_position(row)) {
        (Error::Corrupt(reason), Some((run, run_seq))) => Error::UnreadableEvent {
            run,
            run_seq,
            reason,
        },
        (error, _) => error,
    })
}

fn event_position(row: &Row) -> Option<(RunId, RunSeq)> {
    let run = row.try_get::<_, &str>(0).ok()?.parse().ok()?;
    let seq = count_from_sql(row.try_get(1).ok()?).ok()?;
    Some((run, RunSeq::new(seq)?))
}

fn decode_event(row: &Row) -> Result<RunEventRecord, Error> {
    let read = EventRowReader(row);
    let event = RunEventWrite {
        run_id: read.parse_column(0)?,
        event_id: RunEventId::from_bytes(read.get_column::<PostgresUuid>(2)?.0)
            .map_err(|cause| unreadable_event(&cause))?,
        event_type: read.parse_column(3)?,
        emitted_at: read.parse_column(4)?,
        tenant_id: read.parse_column(5)?,
        project_id: read.parse_column(6)?,
        environment_id: read.parse_column(7)?,
        plan_id: read.parse_column(8)?,
        plan_version: read.parse_column(9)?,
        engine_attempt_id: read.attempt_column(10)?,
        logical_attempt_id: read.attempt_column(11)?,
        idempotency_key: IdempotencyKey::from_bytes(
            read.get_column::<&[u8]>(12)?
                .try_into()
                .map_err(|cause| unreadable_event(&cause))?,
        ),
        step_id: read
            .get_column::<Option<&str>>(13)?
            .map(str::parse)
            .transpose()
            .map_err(|cause| unreadable_event(&cause))?,
        payload: read
            .get_column::<Option<&str>>(14)?
            .map(Payload::parse)
            .transpose()
            .map_err(|cause| unreadable_event(&cause))?,
        extra: read
            .get_column::<Option<&str>>(15)?
            .map_or(Ok(ExtraFields::NONE), ExtraFields::parse)
            .map_err(|cause| unreadable_event(&cause))?,
    };
    let run_seq = RunSeq::new(count_from_sql(read.get_column(1)?)?)
        .ok_or_else(|| unreadable_event(&"run_seq is too large"))?;
    let persisted_at = read.get_column::<PostgresTimestamp>(16)?.0;
    // Events that were stored under schema 1 and 2 have no checksum.
    let expected = event_checksum::event_checksum(&event, run_seq, persisted_at);
    if read
        .get_column::<Option<i64>>(17)?
        .is_some_and(|stored| stored != expected)
    {
        return Err(Error::corrupt(
            "the checksum does not match: the event was changed after it was written",
        ));
    }
    Ok(RunEventRecord {
        event,
        run_seq,
        persisted_at,
    })
}

/// Reads the columns of an event row as typed values.
struct EventRowReader<'a>(&'a Row);

impl<'a> EventRowReader<'a> {
    fn get_column<T: tokio_postgres::types::FromSql<'a>>(&self, place: usize) -> Result<T, Error> {
        self.0
            .try_get(place)
            .map_err(|cause| unreadable_event(&cause))
    }

    fn parse_column<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        place: usize,
    ) -> Result<T, Error> {
        self.get_column::<&str>(place)?
            .parse()
            .map_err(|cause| unreadable_event(&cause))
    }

    fn attempt_column(&self, place: usize) -> Result<AttemptNumber, Error> {
        let number = u32::try_from(self.get_column::<i32>(place)?)
            .ok()
            .and_then(AttemptNumber::new);
        number.ok_or_else(|| unreadable_event(&"the attempt number is less than 1"))
    }
}

fn unreadable_event(cause: &dyn std::fmt::Display) -> Error {
    error::unreadable_row("run_events", cause)
}

/// Adds these events to a statement as parameters, one array per column.
pub(crate) fn with_event_arrays<'a>(
    step: PipelineStatement<'a>,
    planned: &[PlannedEvent<'a>],
) -> PipelineStatement<'a> {
    fn collect_column<'a, T>(
        planned: &[PlannedEvent<'a>],
        value: impl Fn(&'a RunEventWrite) -> T,
    ) -> Vec<T> {
        planned.iter().map(|planned| value(planned.event)).collect()
    }
    let places: Vec<i64> = planned
        .iter()
        .map(|planned| count_to_sql(planned.run_seq.as_u64()))
        .collect();
    let stamps: Vec<PostgresTimestamp> = planned
        .iter()
        .map(|planned| PostgresTimestamp(planned.persisted_at))
        .collect();
    step.with_param(collect_column(planned, |event| &*event.run_id))
        .with_param(places)
        .with_param(collect_column(planned, |event| {
            PostgresUuid(*event.event_id.as_bytes())
        }))
        .with_param(collect_column(planned, |event| &*event.event_type))
        .with_param(collect_column(planned, |event| event.emitted_at.as_str()))
        .with_param(collect_column(planned, |event| &*event.tenant_id))
        .with_param(collect_column(planned, |event| &*event.project_id))
        .with_param(collect_column(planned, |event| &*event.environment_id))
        .with_param(collect_column(planned, |event| &*event.plan_id))
        .with_param(collect_column(planned, |event| &*event.plan_version))
        .with_param(collect_column(planned, |event| {
            attempt_to_sql(event.engine_attempt_id)
        }))
        .with_param(collect_column(planned, |event| {
            attempt_to_sql(event.logical_attempt_id)
        }))
        .with_param(collect_column(planned, |event| {
            event.idempotency_key.as_bytes().as_slice()
        }))
        .with_param(collect_column(planned, |event| event.step_id.as_deref()))
        .with_param(collect_column(planned, |event| {
            event.payload.as_ref().map(Payload::as_str)
        }))
        .with_param(collect_column(planned, |event| event.extra.as_json()))
        .with_param(stamps)
        .with_param(
            planned
                .iter()
                .map(|planned| event_checksum::content_checksum(planned.event, planned.run_seq))
                .collect::<Vec<i64>>(),
        )
}

/// Adds one event to a statement as parameters, one per column.
pub(crate) fn with_event_values<'a>(
    step: PipelineStatement<'a>,
    planned: PlannedEvent<'a>,
) -> PipelineStatement<'a> {
    let PlannedEvent {
        event,
        run_seq,
        persisted_at,
    } = planned;
    step.with_param(&*event.run_id)
        .with_param(count_to_sql(run_seq.as_u64()))
        .with_param(PostgresUuid(*event.event_id.as_bytes()))
        .with_param(&*event.event_type)
        .with_param(event.emitted_at.as_str())
        .with_param(&*event.tenant_id)
        .with_param(&*event.project_id)
        .with_param(&*event.environment_id)
        .with_param(&*event.plan_id)
        .with_param(&*event.plan_version)
        .with_param(attempt_to_sql(event.engine_attempt_id))
        .with_param(attempt_to_sql(event.logical_attempt_id))
        .with_param(event.idempotency_key.as_bytes().as_slice())
        .with_param(event.step_id.as_deref())
        .with_param(event.payload.as_ref().map(Payload::as_str))
        .with_param(event.extra.as_json())
        .with_param(PostgresTimestamp(persisted_at))
        .with_param(event_checksum::content_checksum(event, run_seq))
}

/// Converts an attempt number, which always fits a signed 32-bit integer.
fn attempt_to_sql(attempt: AttemptNumber) -> i32 {
    i32::try_from(attempt.as_u32()).unwrap_or(i32::MAX)
}

/// Estimates the size of an event on the wire in bytes.
pub(crate) fn estimated_event_bytes(event: &RunEventWrite) -> usize {
    const FIXED: usize = 300;
    let payload = event
        .payload
        .as_ref()
        .map_or(0, |payload| payload.as_str().len());
    FIXED + payload + event.extra.as_json().map_or(0, str::len)
}
