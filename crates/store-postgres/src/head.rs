//! Heads of runs as rows.

use onward_runs::RunSeq;
use onward_store::{Error, RunHead};
use tokio_postgres::Row;

use crate::error;
use crate::pipeline::Step;
use crate::value::{Time, signed, unsigned};

/// The columns of a head, as [`head`] reads them.
pub(crate) const COLUMNS: &str =
    "run_id, tenant_id, project_id, environment_id, last_seq, last_persisted_at, projected_seq, delivered_seq";

/// The heads with given ids, locked in the order given.
pub(crate) const LOCKED: &str = "SELECT found.* FROM unnest($1::text[]) AS given(run_id) CROSS JOIN LATERAL (SELECT \
    held.run_id, held.tenant_id, held.project_id, held.environment_id, held.last_seq, held.last_persisted_at, \
    held.projected_seq, held.delivered_seq FROM runs AS held WHERE held.run_id = given.run_id FOR UPDATE) AS found";

/// Inserts heads, one array a column.
pub(crate) const INSERT: &str = "INSERT INTO runs SELECT given.*, given.projected_seq < given.last_seq, \
    given.delivered_seq < given.last_seq FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], \
    $6::timestamptz[], $7::bigint[], $8::bigint[]) AS given(run_id, tenant_id, project_id, environment_id, last_seq, \
    last_persisted_at, projected_seq, delivered_seq)";

/// Replaces heads that are locked; whose they are stays.
pub(crate) const UPDATE: &str = "UPDATE runs AS old SET last_seq = new.last_seq, last_persisted_at = \
    new.last_persisted_at, projected_seq = new.projected_seq, delivered_seq = new.delivered_seq, projector_is_behind = \
    new.projected_seq < new.last_seq, event_bus_is_behind = new.delivered_seq < new.last_seq \
    FROM (SELECT given.*, found.place FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], \
    $6::timestamptz[], $7::bigint[], $8::bigint[]) AS given(run_id, tenant_id, project_id, environment_id, last_seq, \
    last_persisted_at, projected_seq, delivered_seq) CROSS JOIN LATERAL (SELECT held.ctid AS place FROM runs AS held \
    WHERE held.run_id = given.run_id OFFSET 0) AS found) AS new WHERE old.ctid = new.place";

/// The head in a row.
pub(crate) fn head(row: &Row) -> Result<RunHead, Error> {
    let text = |place: usize| row.try_get::<_, &str>(place).map_err(|cause| unreadable(&cause));
    let seq = |place: usize| {
        let number = unsigned(row.try_get(place).map_err(|cause| unreadable(&cause))?)?;
        RunSeq::new(number).ok_or_else(|| unreadable(&"a place that is too large"))
    };
    Ok(RunHead {
        run_id: text(0)?.parse().map_err(|cause| unreadable(&cause))?,
        tenant_id: text(1)?.parse().map_err(|cause| unreadable(&cause))?,
        project_id: text(2)?.parse().map_err(|cause| unreadable(&cause))?,
        environment_id: text(3)?.parse().map_err(|cause| unreadable(&cause))?,
        last_seq: seq(4)?,
        last_persisted_at: row.try_get::<_, Time>(5).map_err(|cause| unreadable(&cause))?.0,
        projected_seq: seq(6)?,
        delivered_seq: seq(7)?,
    })
}

fn unreadable(cause: &dyn std::fmt::Display) -> Error {
    error::unreadable("runs", cause)
}

/// A step with these heads as parameters, one array a column.
pub(crate) fn arrays<'a>(step: Step<'a>, heads: &[&'a RunHead]) -> Step<'a> {
    fn each<'a, T>(heads: &[&'a RunHead], value: impl Fn(&'a RunHead) -> T) -> Vec<T> {
        heads.iter().map(|head| value(head)).collect()
    }
    step.with(each(heads, |head| &*head.run_id))
        .with(each(heads, |head| &*head.tenant_id))
        .with(each(heads, |head| &*head.project_id))
        .with(each(heads, |head| &*head.environment_id))
        .with(each(heads, |head| signed(head.last_seq.get())))
        .with(each(heads, |head| Time(head.last_persisted_at)))
        .with(each(heads, |head| signed(head.projected_seq.get())))
        .with(each(heads, |head| signed(head.delivered_seq.get())))
}
