//! Run heads as rows of the table `runs`.

use onward_runs::RunSeq;
use onward_store::{Error, RunHead};
use tokio_postgres::Row;

use crate::error;
use crate::pipeline::PipelineStatement;
use crate::value::{PostgresTimestamp, count_from_sql, count_to_sql};

/// The columns of a head, in the order that [`head_from_row`] expects.
pub(crate) const HEAD_COLUMNS: &str = "run_id, tenant_id, project_id, environment_id, last_seq, last_persisted_at, projected_seq, delivered_seq";

/// Inserts heads; the parameters come from [`with_head_arrays`].
pub(crate) const INSERT_HEADS: &str = include_str!("../statements/insert_heads.sql");

/// Replaces heads; the parameters come from [`with_head_arrays`].
pub(crate) const UPDATE_HEADS: &str = include_str!("../statements/update_heads.sql");

/// Decodes the head from a row.
pub(crate) fn head_from_row(row: &Row) -> Result<RunHead, Error> {
    let text = |place: usize| {
        row.try_get::<_, &str>(place)
            .map_err(|cause| unreadable_head(&cause))
    };
    let seq = |place: usize| {
        let number = count_from_sql(
            row.try_get(place)
                .map_err(|cause| unreadable_head(&cause))?,
        )?;
        RunSeq::new(number).ok_or_else(|| unreadable_head(&"the sequence number is too large"))
    };
    Ok(RunHead {
        run_id: text(0)?.parse().map_err(|cause| unreadable_head(&cause))?,
        tenant_id: text(1)?.parse().map_err(|cause| unreadable_head(&cause))?,
        project_id: text(2)?.parse().map_err(|cause| unreadable_head(&cause))?,
        environment_id: text(3)?.parse().map_err(|cause| unreadable_head(&cause))?,
        last_seq: seq(4)?,
        last_persisted_at: row
            .try_get::<_, PostgresTimestamp>(5)
            .map_err(|cause| unreadable_head(&cause))?
            .0,
        projected_seq: seq(6)?,
        delivered_seq: seq(7)?,
    })
}

fn unreadable_head(cause: &dyn std::fmt::Display) -> Error {
    error::unreadable_row("runs", cause)
}

/// Adds these heads to a statement as parameters, one array per column.
pub(crate) fn with_head_arrays<'a>(
    step: PipelineStatement<'a>,
    heads: &[&'a RunHead],
) -> PipelineStatement<'a> {
    fn collect_column<'a, T>(heads: &[&'a RunHead], value: impl Fn(&'a RunHead) -> T) -> Vec<T> {
        heads.iter().map(|head| value(head)).collect()
    }
    step.with_param(collect_column(heads, |head| &*head.run_id))
        .with_param(collect_column(heads, |head| &*head.tenant_id))
        .with_param(collect_column(heads, |head| &*head.project_id))
        .with_param(collect_column(heads, |head| &*head.environment_id))
        .with_param(collect_column(heads, |head| {
            count_to_sql(head.last_seq.as_u64())
        }))
        .with_param(collect_column(heads, |head| {
            PostgresTimestamp(head.last_persisted_at)
        }))
        .with_param(collect_column(heads, |head| {
            count_to_sql(head.projected_seq.as_u64())
        }))
        .with_param(collect_column(heads, |head| {
            count_to_sql(head.delivered_seq.as_u64())
        }))
}
