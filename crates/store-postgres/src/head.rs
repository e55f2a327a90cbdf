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

/// Inserts heads, with [`arrays`] as parameters.
pub(crate) const INSERT: &str = include_str!("../statements/insert_heads.sql");

/// Replaces heads, with [`arrays`] as parameters.
pub(crate) const UPDATE: &str = include_str!("../statements/update_heads.sql");

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
