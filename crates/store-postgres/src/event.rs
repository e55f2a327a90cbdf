//! Run events as rows, and as the arrays in which many of them travel at once.

use onward_journal::Payload;
use onward_runs::{Attempt, EventId, Extra, IdempotencyKey, RunEventRecord, RunEventWrite, RunSeq};
use onward_store::{Error, Planned};
use tokio_postgres::Row;

use crate::error;
use crate::pipeline::Step;
use crate::value::{Time, Uuid, signed, unsigned};

/// Inserts events, with [`arrays`] as parameters.
pub(crate) const INSERT: &str = include_str!("../statements/insert_events.sql");

/// The event in a row that has all columns of the table in their order.
pub(crate) fn record(row: &Row) -> Result<RunEventRecord, Error> {
    let read = Reading(row);
    let event = RunEventWrite {
        run_id: read.parsed(0)?,
        event_id: EventId::from_bytes(read.get::<Uuid>(2)?.0).map_err(|cause| unreadable(&cause))?,
        event_type: read.parsed(3)?,
        emitted_at: read.parsed(4)?,
        tenant_id: read.parsed(5)?,
        project_id: read.parsed(6)?,
        environment_id: read.parsed(7)?,
        plan_id: read.parsed(8)?,
        plan_version: read.parsed(9)?,
        engine_attempt_id: read.attempt(10)?,
        logical_attempt_id: read.attempt(11)?,
        idempotency_key: IdempotencyKey::from_bytes(
            read.get::<&[u8]>(12)?.try_into().map_err(|cause| unreadable(&cause))?,
        ),
        step_id: read.get::<Option<&str>>(13)?.map(str::parse).transpose().map_err(|cause| unreadable(&cause))?,
        payload: read.get::<Option<&str>>(14)?.map(Payload::parse).transpose().map_err(|cause| unreadable(&cause))?,
        extra: read
            .get::<Option<&str>>(15)?
            .map_or(Ok(Extra::NONE), Extra::parse)
            .map_err(|cause| unreadable(&cause))?,
    };
    let run_seq = RunSeq::new(unsigned(read.get(1)?)?).ok_or_else(|| unreadable(&"run_seq is too large"))?;
    Ok(RunEventRecord { event, run_seq, persisted_at: read.get::<Time>(16)?.0 })
}

/// The values of a row, each as what it stands for.
struct Reading<'a>(&'a Row);

impl<'a> Reading<'a> {
    fn get<T: tokio_postgres::types::FromSql<'a>>(&self, place: usize) -> Result<T, Error> {
        self.0.try_get(place).map_err(|cause| unreadable(&cause))
    }

    fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(&self, place: usize) -> Result<T, Error> {
        self.get::<&str>(place)?.parse().map_err(|cause| unreadable(&cause))
    }

    fn attempt(&self, place: usize) -> Result<Attempt, Error> {
        let number = u32::try_from(self.get::<i32>(place)?).ok().and_then(Attempt::new);
        number.ok_or_else(|| unreadable(&"an attempt that is not counted from 1"))
    }
}

fn unreadable(cause: &dyn std::fmt::Display) -> Error {
    error::unreadable("run_events", cause)
}

/// A step with these events as parameters, one array a column.
pub(crate) fn arrays<'a>(step: Step<'a>, planned: &[Planned<'a>]) -> Step<'a> {
    fn each<'a, T>(planned: &[Planned<'a>], value: impl Fn(&'a RunEventWrite) -> T) -> Vec<T> {
        planned.iter().map(|planned| value(planned.event)).collect()
    }
    let places: Vec<i64> = planned.iter().map(|planned| signed(planned.run_seq.get())).collect();
    let stamps: Vec<Time> = planned.iter().map(|planned| Time(planned.persisted_at)).collect();
    step.with(each(planned, |event| &*event.run_id))
        .with(places)
        .with(each(planned, |event| Uuid(*event.event_id.as_bytes())))
        .with(each(planned, |event| &*event.event_type))
        .with(each(planned, |event| event.emitted_at.as_str()))
        .with(each(planned, |event| &*event.tenant_id))
        .with(each(planned, |event| &*event.project_id))
        .with(each(planned, |event| &*event.environment_id))
        .with(each(planned, |event| &*event.plan_id))
        .with(each(planned, |event| &*event.plan_version))
        .with(each(planned, |event| attempt(event.engine_attempt_id)))
        .with(each(planned, |event| attempt(event.logical_attempt_id)))
        .with(each(planned, |event| event.idempotency_key.as_bytes().as_slice()))
        .with(each(planned, |event| event.step_id.as_deref()))
        .with(each(planned, |event| event.payload.as_ref().map(Payload::as_str)))
        .with(each(planned, |event| event.extra.as_json()))
        .with(stamps)
}

/// A step with one event as parameters, one a column.
pub(crate) fn values<'a>(step: Step<'a>, planned: Planned<'a>) -> Step<'a> {
    let Planned { event, run_seq, persisted_at } = planned;
    step.with(&*event.run_id)
        .with(signed(run_seq.get()))
        .with(Uuid(*event.event_id.as_bytes()))
        .with(&*event.event_type)
        .with(event.emitted_at.as_str())
        .with(&*event.tenant_id)
        .with(&*event.project_id)
        .with(&*event.environment_id)
        .with(&*event.plan_id)
        .with(&*event.plan_version)
        .with(attempt(event.engine_attempt_id))
        .with(attempt(event.logical_attempt_id))
        .with(event.idempotency_key.as_bytes().as_slice())
        .with(event.step_id.as_deref())
        .with(event.payload.as_ref().map(Payload::as_str))
        .with(event.extra.as_json())
        .with(Time(persisted_at))
}

/// Attempts are at most what a 32-bit integer holds.
fn attempt(attempt: Attempt) -> i32 {
    i32::try_from(attempt.get()).unwrap_or(i32::MAX)
}

/// Roughly how many bytes an event takes on its way.
pub(crate) fn bytes(event: &RunEventWrite) -> usize {
    const FIXED: usize = 300;
    let payload = event.payload.as_ref().map_or(0, |payload| payload.as_str().len());
    FIXED + payload + event.extra.as_json().map_or(0, str::len)
}
