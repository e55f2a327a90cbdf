//! Commits of executions, and what follows them: what is durable is performed and told, what failed is thrown away.

use std::collections::VecDeque;

use onward_journal::{ExecutionId, Text, Timestamp};
use onward_store::{Commit, Conflict, Error, Kind, Receipt};

use super::active::{Active, News, Pending, UNSTORED};
use super::core::{Core, Whose};
use super::task::Queued;
use super::{Action, Attempt, AttemptId, span, task};

impl Core {
    /// Commits what an execution has done since its last commit.
    pub(super) fn commit_step(&mut self, active: &mut Active, commit: Commit, actions: &mut Vec<Action>) {
        active.ticket = Some(self.commit(Whose::Execution(active.id()), commit, actions));
        active.committing = std::mem::take(&mut active.pending);
        self.perform_ahead(&mut active.committing, actions);
    }

    /// Performs what reaches nobody before it is durable.
    pub(super) fn perform_ahead(&mut self, pending: &mut Pending, actions: &mut Vec<Action>) {
        for attempt in pending.attempts.extract_if(.., |attempt| attempt.reaches_nobody()) {
            pending.ahead.insert(attempt.id);
            self.perform(attempt, actions);
        }
    }

    pub(super) fn commit(&mut self, whose: Whose, commit: Commit, actions: &mut Vec<Action>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.commits.insert(ticket, whose);
        actions.push(Action::Commit { ticket, commit: Box::new(commit) });
        ticket
    }

    pub(super) fn committed(
        &mut self,
        ticket: u64,
        result: &Result<Receipt, Error>,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        let whose = self.commits.remove(&ticket);
        if let Err(Error::Conflict(Conflict::Fenced { .. })) = result {
            self.is_lost = true;
            return actions.push(Action::Lost);
        }
        match whose {
            Some(Whose::Messages(ids)) if result.is_err() => self.messages.retain(|id| !ids.contains(id)),
            None => {}
            // Some of them may have gone to others.
            Some(Whose::Messages(_)) => actions.push(Action::ReadInbox),
            Some(Whose::Execution(execution)) => {
                let Some(mut active) = self.remove(&execution) else { return };
                active.watched = None;
                if active.version == UNSTORED {
                    return self.begun(active, result.clone().map(drop), now, actions);
                }
                match result {
                    Ok(_) => self.durable(active, now, actions),
                    // The same step would be refused in the same way.
                    Err(error) if matches!(error.kind(), Kind::Invalid | Kind::Corrupt) => {
                        self.leave_active(active, format!("its step is refused: {error}"), now, actions);
                    }
                    Err(error) => self.start_over(active, error.kind() == Kind::Unknown, actions),
                }
            }
        }
    }

    /// What a step led to can now be seen.
    fn durable(&mut self, mut active: Box<Active>, now: Timestamp, actions: &mut Vec<Action>) {
        active.ticket = None;
        let done = std::mem::take(&mut active.committing);
        active.version += u64::from(done.changes_row);
        let ending = active.execution.ending().filter(|_| active.execution.untaken() == 0);
        self.disown(&done.abandoned, actions);
        for attempt in done.attempts {
            self.perform(attempt, actions);
        }
        if !done.sent.is_empty() {
            actions.push(Action::ReadInbox);
        }
        if self.options.traces {
            let spans = span::spans(&active.row.function, active.execution.journal(), done.recorded);
            if !spans.is_empty() {
                actions.push(Action::Spans(spans));
            }
        }
        for attempt in done.reported {
            actions.push(Action::Reported { attempt, is_taken: true });
        }
        offer(active.owner.clone(), done.tasks, actions);
        if let Some(reason) = active.is_stuck.take() {
            self.leave_active(active, reason, now, actions);
        } else if let Some(ending) = ending {
            let execution = active.id();
            self.abandon_all(execution, actions);
            self.deal_with(active.news, &ending, actions);
            actions.push(Action::Over { execution, ending });
            // There is room for somebody else.
            if let Some(next) = self.crowded.pop_front() {
                self.take_turn(next, now, actions);
            }
        } else {
            self.advance(active, now, actions);
        }
        if !self.is_draining {
            for child in done.children {
                self.advance(Box::new(child), now, actions);
            }
        }
    }

    fn abandon_all(&mut self, execution: ExecutionId, actions: &mut Vec<Action>) {
        let first = AttemptId { execution, number: 0, attempt: 0 };
        let its = self.performing.range(first..).map(|(id, _)| *id).take_while(|id| id.execution == execution);
        let its: Vec<AttemptId> = its.collect();
        self.disown(&its, actions);
    }

    /// What is in memory may not be what is stored: it is read again.
    pub(super) fn start_over(&mut self, active: Box<Active>, is_unknown: bool, actions: &mut Vec<Action>) {
        let id = active.id();
        // Messages stay in the inbox and come again; results of attempts exist only here.
        let ended = self.throw_away(active, is_unknown, actions);
        self.loading.insert(id, ended);
        actions.push(Action::LoadLater(id));
        actions.push(Action::ReadInbox);
    }

    /// Forgets what is in memory beyond the last durable commit. Returns how attempts ended that the store knows of.
    fn throw_away(&mut self, active: Box<Active>, is_unknown: bool, actions: &mut Vec<Action>) -> VecDeque<News> {
        let remains = active.into_remains(is_unknown);
        for id in remains.messages {
            self.messages.remove(&id);
        }
        self.untouched.extend(remains.untouched);
        if !remains.unheard.is_empty() {
            actions.push(Action::TakeBack(remains.unheard));
        }
        self.disown(&remains.ahead, actions);
        remains.ended
    }

    /// Tasks that are being stored as claimed, by workers that wait here: whoever gives the shard up before it hears of that
    /// takes them back.
    pub fn unheard(&self) -> Vec<(AttemptId, Text)> {
        let storing = self.actives.values().flat_map(|active| &active.committing.tasks);
        storing.filter_map(|task| Some((task::id(&task.row), task.row.claim.clone()?))).collect()
    }

    /// What these attempts come to is of no use any more.
    fn disown<'a>(&mut self, attempts: impl IntoIterator<Item = &'a AttemptId>, actions: &mut Vec<Action>) {
        for id in attempts {
            if self.performing.remove(id).is_some() {
                actions.push(Action::Abandon(*id));
            }
        }
    }

    /// The outcome of the commit that should have stored an execution.
    fn begun(&mut self, active: Box<Active>, result: Result<(), Error>, now: Timestamp, actions: &mut Vec<Action>) {
        let is_unknown = matches!(&result, Err(error) if error.kind() == Kind::Unknown);
        let is_stored = result.is_ok();
        actions.push(Action::Begun { execution: active.id(), result: Some(result) });
        if is_stored {
            self.durable(active, now, actions);
        } else if is_unknown {
            self.start_over(active, is_unknown, actions);
        } else {
            // Whoever sent it something may have meant another start, which is stored.
            self.throw_away(active, is_unknown, actions);
            actions.push(Action::ReadInbox);
        }
    }

    pub(super) fn perform(&mut self, mut attempt: Attempt, actions: &mut Vec<Action>) {
        self.performances += 1;
        attempt.performance = self.performances;
        self.performing.insert(attempt.id, attempt.performance);
        self.untouched.remove(&attempt.id);
        actions.push(Action::Perform(Box::new(attempt)));
    }

    pub(super) fn leave_active(
        &mut self,
        active: Box<Active>,
        reason: String,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        let execution = active.id();
        let ended = self.throw_away(active, false, actions);
        self.leave(execution, reason, ended, now, actions);
    }
}

/// Tasks for workers are stored: those who wait for some get them, others can ask for the rest.
fn offer(owner: Text, tasks: Vec<Queued>, actions: &mut Vec<Action>) {
    if tasks.is_empty() {
        return;
    }
    let repeated = tasks.iter().filter(|task| task.row.attempt > 1).count() as u64;
    let mut functions = Vec::new();
    for task in tasks {
        match task.held() {
            Ok((seat, held)) => actions.push(Action::Give { seat, held: Box::new(held) }),
            Err(function) => functions.push(function),
        }
    }
    actions.push(Action::Offer { owner, functions, repeated });
}
