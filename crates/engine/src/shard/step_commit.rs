//! Composes the commit of a step: the journal events of an execution, its row, and the children,
//! tasks and messages that belong to it, atomically.

use onward_base::{SharedText, Timestamp};
use onward_execution::{Execution, ExecutionStart};
use onward_journal::{Event, InvokePerformer, codec};
use onward_store::tables::TaskRow;
use onward_store::{Commit, JournalAppend};

use super::active_execution::{ActiveExecution, PendingEffects, VERSION_UNSTORED};
use super::attempts::sibling_row;
use super::shard_core::ShardCore;
use super::step::{StepBlocked, journal_refused, send_cancel};
use super::{TaskAttempt, message, task_row};
use crate::{client, row_body};

/// Composes one commit of everything since the last commit; `None` if there is nothing to record.
pub(super) fn compose_commit(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
) -> Result<Option<Commit>, StepBlocked> {
    let mut commit = Commit::new().fence_shard(core.shard, core.epoch);
    if active.execution.is_terminal() {
        finish_execution(core, active, now)?;
    }
    let append = take_journal_append(&mut active.execution)?;
    let has_events = append.is_some();
    active.pending.recorded = append.as_ref().map_or(0..0, |it| {
        it.expected_length..it.expected_length + u64::from(it.count)
    });
    commit.journals.extend(append);
    let (state, wake_at) = active.row_state();
    let is_new = active.version == VERSION_UNSTORED;
    let body = row_body::with_signal_backlog(&active.row.body, active.execution.signal_backlog());
    active.pending.changes_row = is_new
        || active.pending.changes_body
        || active.row.state != state
        || active.row.wake_at != wake_at
        || body.is_some();
    if active.pending.changes_row {
        active.row.state = state;
        active.row.wake_at = wake_at;
        if let Some(body) = body {
            active.row.body = body;
        }
        commit = if is_new {
            commit.insert(&active.row)
        } else {
            commit.update(&active.row, active.version)
        };
    }
    for child in &mut active.pending.children {
        commit
            .journals
            .extend(self::take_journal_append(&mut child.execution)?);
        commit = commit.insert(&child.row);
    }
    for task in &mut active.pending.tasks {
        task.reserve_slot(
            &core.task_matcher,
            &active.owner,
            || client::key_from_entropy(&mut *core.entropy).into(),
            now,
        );
        commit = commit.insert(&task.row);
    }
    for withdrawn in &active.pending.withdrawn {
        commit = commit.delete_if_exists::<TaskRow>(task_row::task_key(*withdrawn));
    }
    for message in &active.pending.sent {
        commit = commit.insert_or_keep(message);
    }
    for (message, version) in &active.pending.consumed {
        commit = message::consume_message(commit, message, *version);
    }
    let PendingEffects {
        attempts,
        started_early,
        ..
    } = &active.pending;
    commit.is_background = attempts.iter().any(TaskAttempt::is_side_effect_free)
        || started_early.iter().rev().any(|id| core.is_performing(id));
    let PendingEffects {
        attempts,
        consumed,
        changes_row,
        ..
    } = &active.pending;
    let is_empty = !has_events && !changes_row && consumed.is_empty() && attempts.is_empty();
    Ok((!is_empty).then_some(commit))
}

fn take_journal_append(execution: &mut Execution) -> Result<Option<JournalAppend>, StepBlocked> {
    let (id, expected) = (execution.id(), execution.taken_count());
    let events = execution.take_events();
    if events.is_empty() {
        return Ok(None);
    }
    let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
    let records = codec::encode_record(id, events)
        .map_err(|error| format!("its events cannot be stored: {error}"))?;
    Ok(Some(JournalAppend {
        execution: id,
        expected_length: expected,
        count,
        records: records.into(),
    }))
}

/// Adds the effects of the end of an execution: the result goes to its parent, its children are
/// cancelled, its tasks are withdrawn, its successor starts.
fn finish_execution(
    core: &ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
) -> Result<(), StepBlocked> {
    for flight in active.execution.attempts_in_flight().collect::<Vec<_>>() {
        match flight.performer {
            InvokePerformer::Child(child) => send_cancel(
                core,
                active,
                child,
                "its parent execution ended".into(),
                now,
            )?,
            InvokePerformer::Worker => active.withdraw_task(flight),
            InvokePerformer::Owner => {}
        }
    }
    if let Some(successor) = active.execution.successor_execution() {
        let Some(Event::ExecutionStarted {
            component_digest,
            parent_id,
            ..
        }) = active
            .execution
            .journal()
            .events()
            .first()
            .map(|first| first.event.clone())
        else {
            return Err("its journal does not begin with ExecutionStarted"
                .to_owned()
                .into());
        };
        // The key names the predecessor; the key of a child begins with the number of the attempt
        // that it performs.
        let id = active.id();
        let key = active
            .parent_attempt()
            .map_or_else(|| id.to_string(), |(_, attempt)| format!("{attempt}~{id}"));
        let key = Some(SharedText::from(key.as_str()));
        let start = ExecutionStart {
            component_digest,
            input: successor.input,
            parent: parent_id,
            key,
            signals: successor.signals,
        };
        let execution = Execution::start(successor.execution, start, now, core.options.limits)
            .map_err(|violation| journal_refused(&violation))?;
        let row = sibling_row(active, successor.execution, now);
        active
            .pending
            .children
            .push(ActiveExecution::new(row, 1, execution, now));
    } else if let (Some((parent, attempt)), Some(result)) =
        (active.parent_attempt(), active.execution.result())
    {
        let message = message::attempt_result_message(&parent, core.shard, attempt, result, now)
            .map_err(|error| error.to_string())?;
        active.pending.sent.push(message);
    }
    Ok(())
}
