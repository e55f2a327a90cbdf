//! Writing a plan, statement by statement, inside the writer's transaction.

use onward_runs::EventId;
use onward_store::{Plan, Planned, Purge, RunHead, Write};
use rusqlite::{Connection, Result, ToSql, params, params_from_iter};

use crate::sql;
use crate::values::Bound;

pub(crate) fn plan(db: &Connection, plan: &Plan<'_>) -> Result<()> {
    for append in &plan.journals {
        db.prepare_cached(
            "INSERT INTO journal (execution_id, first_sequence, events, records) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            append.execution.as_bytes().as_slice(),
            append.expected.cast_signed(),
            append.count,
            &*append.records
        ])?;
    }
    plan.rows.iter().try_for_each(|write| row(db, write))?;
    plan.heads.iter().try_for_each(|head| put_head(db, head))?;
    events(db, &plan.events)
}

fn row(db: &Connection, write: &Write<'_>) -> Result<()> {
    match *write {
        Write::Insert(table, row) => {
            db.prepare_cached(&sql::insert(table))?.execute(params_from_iter(row.0.iter().map(Bound)))?;
        }
        Write::Update(table, row, version) => {
            let version = onward_store::Value::Int(version.cast_signed());
            let values = row.0.iter().chain([&version]).map(Bound);
            db.prepare_cached(&sql::update(table))?.execute(params_from_iter(values))?;
        }
        Write::Delete(table, key) => {
            db.prepare_cached(&sql::delete(table))?.execute(params_from_iter(key.0.iter().map(Bound)))?;
        }
    }
    Ok(())
}

/// Most heads change without their readers falling behind or catching up, and then no index has to change.
fn put_head(db: &Connection, head: &RunHead) -> Result<()> {
    let (last, at) = (head.last_seq.get().cast_signed(), head.last_persisted_at.as_micros());
    let (projected, delivered) = (head.projected_seq.get().cast_signed(), head.delivered_seq.get().cast_signed());
    let (to_project, to_deliver) = (projected < last, delivered < last);
    let updated = db
        .prepare_cached(
            "UPDATE runs SET last_seq = ?2, last_persisted_at = ?3, projected_seq = ?4, delivered_seq = ?5 \
             WHERE run_id = ?1 AND to_project = ?6 AND to_deliver = ?7",
        )?
        .execute(params![&*head.run_id, last, at, projected, delivered, to_project, to_deliver])?;
    if updated == 0 {
        db.prepare_cached(
            "INSERT INTO runs (run_id, tenant_id, project_id, environment_id, last_seq, last_persisted_at, projected_seq, \
             delivered_seq, to_project, to_deliver) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
             ON CONFLICT (run_id) DO UPDATE SET last_seq = ?5, last_persisted_at = ?6, projected_seq = ?7, \
             delivered_seq = ?8, to_project = ?9, to_deliver = ?10",
        )?
        .execute(params![
            &*head.run_id,
            &*head.tenant_id,
            &*head.project_id,
            &*head.environment_id,
            last,
            at,
            projected,
            delivered,
            to_project,
            to_deliver
        ])?;
    }
    Ok(())
}

fn events(db: &Connection, events: &[Planned<'_>]) -> Result<()> {
    let mut insert = db.prepare_cached(
        "INSERT INTO run_events (run_no, run_seq, event_id, event_type, emitted_at, plan_id, plan_version, \
         engine_attempt_id, logical_attempt_id, idempotency_key, step_id, payload, extra, persisted_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?;
    let mut run_no = 0_i64;
    for (place, planned) in events.iter().enumerate() {
        let event = planned.event;
        if place == 0 || events[place - 1].event.run_id != event.run_id {
            run_no = number_of(db, &event.run_id)?;
        }
        insert.execute(params![
            run_no,
            planned.run_seq.get().cast_signed(),
            event.event_id.as_bytes().as_slice(),
            &*event.event_type,
            event.emitted_at.as_str(),
            &*event.plan_id,
            &*event.plan_version,
            event.engine_attempt_id.get(),
            event.logical_attempt_id.get(),
            event.idempotency_key.as_bytes().as_slice(),
            event.step_id.as_deref(),
            event.payload.as_ref().map(|payload| payload.as_str()),
            event.extra.as_json(),
            planned.persisted_at.as_micros(),
        ])?;
    }
    event_ids(db, events)
}

fn number_of(db: &Connection, run: &str) -> Result<i64> {
    db.prepare_cached("SELECT run_no FROM runs WHERE run_id = ?1")?.query_row([run], |row| row.get(0))
}

/// In order, so that neighbours are inserted one after the other.
fn event_ids(db: &Connection, events: &[Planned<'_>]) -> Result<()> {
    let mut ids: Vec<&EventId> = events.iter().map(|planned| &planned.event.event_id).collect();
    ids.sort_unstable();
    let mut insert = db.prepare_cached("INSERT INTO event_ids (event_id) VALUES (?1)")?;
    for id in ids {
        insert.execute([id.as_bytes().as_slice()])?;
    }
    Ok(())
}

/// The row that stands for the whole goes first: while it is there, the database lets nobody delete from its log.
pub(crate) fn purge(db: &Connection, purge: &Purge) -> Result<bool> {
    let (tables, column, id): (&[&str], _, &dyn ToSql) = match purge {
        Purge::Run(run) => (&["runs", "run_snapshots"], "run_id", &&**run),
        Purge::Execution(execution) => {
            (&["executions", "journal", "timers", "inbox"], "execution_id", &execution.as_bytes().as_slice())
        }
    };
    let mut removed = 0;
    for table in tables {
        removed += db.execute(&format!("DELETE FROM {table} WHERE {column} = ?1"), [id])?;
    }
    Ok(removed > 0)
}
