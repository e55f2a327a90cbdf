//! Every rule of the journal as data: an id, a name, a sentence and the check that enforces it.
//!
//! `spec/INVARIANTS.md` is the readable form of this table; a test keeps the two equal. The order
//! here is the order of the table, not of reporting: [`crate::rules::rules_for_event`] defines
//! which rules apply to an event, and in which order.

use std::fmt;

use crate::rules::{awaiting, identity, invoke, join_set, signal, structure, timer};
use crate::{JournalEvent, JournalState};

/// A content check. Returns `None` if the event may follow, otherwise what is wrong with it, as
/// text for people.
pub type InvariantCheck = fn(&JournalState, &JournalEvent) -> Option<String>;

/// The place where a rule is enforced.
#[derive(Clone, Copy)]
pub enum RuleEnforcement {
    /// The transition table ([`crate::phase_transition`]), which defines the actions that a phase
    /// allows.
    Status,
    /// A check of the event against the current state of the journal.
    Content(InvariantCheck),
    /// The handling of a command, because the rule needs the clock; recorded journals are not
    /// checked against it.
    Command,
}

/// One rule of the journal: a row of [`INVARIANTS`].
#[derive(Clone, Copy)]
pub struct Invariant {
    /// The rule that this row describes.
    pub rule: Rule,
    /// The stable id of the rule, such as `SE-4`.
    pub id: &'static str,
    /// The name of the rule, such as `no_events_after_completed`.
    pub name: &'static str,
    /// The rule as one sentence.
    pub text: &'static str,
    /// The place where the rule is enforced.
    pub enforced: RuleEnforcement,
    /// The source text of `enforced`, for `spec/INVARIANTS.md`.
    pub code: &'static str,
}

macro_rules! invariants {
    ($($rule:ident $id:literal $name:literal $enforced:expr, $text:literal;)*) => {
        /// The rules, named by their ids without the dash.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Rule { $(
            #[doc = $text]
            $rule,
        )* }

        /// All rules, indexed by [`Rule`].
        pub static INVARIANTS: &[Invariant] = &[$(
            Invariant { rule: Rule::$rule, id: $id, name: $name, text: $text, enforced: $enforced, code: stringify!($enforced) },
        )*];
    };
}

use RuleEnforcement::{Command, Content, Status};

invariants! {
    S1 "S-1" "monotonic_sequence" Content(structure::sequence_is_index),
        "An event's sequence number equals its index: 0, 1, 2 …";
    S2 "S-2" "starts_with_started" Status,
        "ExecutionStarted is the first event, and only the first.";
    S3 "S-3" "single_terminal" Status,
        "At most one event is terminal.";
    S4 "S-4" "terminal_is_last" Status,
        "Nothing follows the terminal event.";
    S5 "S-5" "cancelled_requires_requested" Status,
        "ExecutionCancelled requires an earlier CancelRequested.";

    ID1 "ID-1" "own_tree" Content(identity::own_tree),
        "Every promise an event names belongs to the journal's own execution.";
    ID2 "ID-2" "next_child" Content(identity::next_child),
        "An operation takes the execution's next child number: 0, 1, 2 …";

    SE1 "SE-1" "started_requires_scheduled" Content(invoke::started_requires_scheduled),
        "InvokeStarted requires an earlier InvokeScheduled of the promise.";
    SE2 "SE-2" "completed_requires_started" Content(invoke::completed_requires_started),
        "InvokeCompleted requires an earlier InvokeStarted of the promise.";
    SE3 "SE-3" "retrying_requires_started" Content(invoke::retrying_requires_started),
        "InvokeRetrying requires an earlier InvokeStarted of the promise with that attempt.";
    SE4 "SE-4" "no_events_after_completed" Content(invoke::no_events_after_completed),
        "Once completed, a promise is not started, retried or completed again.";

    CF1 "CF-1" "timer_fired_requires_scheduled" Content(timer::fired_requires_scheduled),
        "TimerFired requires an earlier TimerScheduled of the promise.";
    CF2 "CF-2" "signal_received_requires_delivered" Content(signal::received_requires_delivered),
        "SignalReceived requires an earlier SignalDelivered with its name, delivery id and payload.";
    CF3 "CF-3" "signal_consumed_once" Content(signal::consumed_once),
        "A delivery is consumed at most once.";
    CF4 "CF-4" "await_signal_consistent" Content(signal::await_is_consistent),
        "A wait for a signal names its own promise, then at most a timer that has not fired; what is received is that promise \
         and that name.";

    JS1 "JS-1" "submit_requires_created" Content(join_set::submit_requires_created),
        "JoinSetSubmitted requires an earlier JoinSetCreated of the set.";
    JS2 "JS-2" "no_submit_after_await" Content(join_set::no_submit_after_await),
        "Nothing is submitted to a set once one of its results was taken.";
    JS3 "JS-3" "awaited_requires_member" Content(join_set::awaited_requires_member),
        "JoinSetAwaited requires an earlier JoinSetSubmitted of the promise to that set.";
    JS4 "JS-4" "awaited_requires_completed" Content(join_set::awaited_requires_completed),
        "JoinSetAwaited requires an earlier InvokeCompleted of the promise.";
    JS5 "JS-5" "no_double_consume" Content(join_set::no_double_consume),
        "A result of a set is taken at most once.";
    JS6 "JS-6" "consume_bounded" Content(join_set::consume_bounded),
        "No more results are taken from a set than were submitted to it.";
    JS7 "JS-7" "promise_single_owner" Content(join_set::promise_single_owner),
        "A promise is in at most one join set.";

    G1 "G-1" "allocate_when_active" Status,
        "Operations begin only while the execution runs: Running or Cancelling, without an open await.";
    G2 "G-2" "await_when_active" Status,
        "An await begins only while the execution runs.";
    G3 "G-3" "finish_when_active" Status,
        "The execution completes or fails only while it runs, never straight from Blocked.";
    G4 "G-4" "resume_when_satisfied" Status,
        "ExecutionResumed requires an open await that is satisfied.";
    G5 "G-5" "cancel_requested_once" Status,
        "Cancellation is requested at most once.";
    G6 "G-6" "join_set_used_when_active" Status,
        "A join set is submitted to or taken from only while the execution runs.";

    H1 "H-1" "timer_fires_once" Content(timer::fires_once),
        "A timer fires at most once.";
    H2 "H-2" "submitted_once" Content(join_set::submitted_once),
        "A promise is submitted to a set at most once.";
    H3 "H-3" "awaited_result_is_recorded" Content(join_set::awaited_result_is_recorded),
        "JoinSetAwaited carries exactly the result that InvokeCompleted recorded.";
    H4 "H-4" "attempts_count_up" Content(invoke::attempts_count_up),
        "The attempts of a promise are 1, 2, 3 …";
    H5 "H-5" "started_follows_scheduled_or_retrying" Content(invoke::started_follows_scheduled_or_retrying),
        "An attempt starts only after InvokeScheduled or InvokeRetrying, never beside another.";
    H6 "H-6" "outcome_of_attempt_in_flight" Content(invoke::outcome_of_attempt_in_flight),
        "InvokeCompleted and InvokeRetrying name the attempt that is in flight; a failure may also end an invoke that waits for \
         its next attempt, and names the last one.";
    H7 "H-7" "awaited_ids_distinct" Content(awaiting::ids_distinct),
        "An await names 1 to 65536 promises, exactly one if it is single, and none twice.";
    H8 "H-8" "awaited_ids_exist" Content(awaiting::ids_exist),
        "Awaited promises were allocated before.";
    H9 "H-9" "awaited_ids_can_complete" Content(awaiting::ids_can_complete),
        "Only invokes, timers and signals can be awaited.";
    H10 "H-10" "delivery_ids_count_up" Content(signal::delivery_ids_count_up),
        "The delivery ids of a signal name are 1, 2, 3 …";
    H11 "H-11" "signals_consumed_in_order" Content(signal::consumed_in_order),
        "The signals of a name are consumed in the order of their delivery.";
    H12 "H-12" "submitted_is_invoke" Content(join_set::submitted_is_invoke),
        "Only a scheduled invoke can be submitted to a join set.";
    H13 "H-13" "retry_within_policy" Content(invoke::retry_within_policy),
        "InvokeRetrying stays within the attempts and kinds that the retry policy allows, and its error is retryable.";

    T1 "T-1" "timer_not_early" Command,
        "A timer is fired no earlier than its fire_at.";
    T2 "T-2" "retry_not_early" Command,
        "An attempt is started no earlier than the retry_at of the one before.";
}

impl Rule {
    /// Returns the rule's row in [`INVARIANTS`].
    pub fn invariant(self) -> &'static Invariant {
        &INVARIANTS[self as usize]
    }

    /// Returns the stable id of the rule, such as `SE-4`.
    pub fn id(self) -> &'static str {
        self.invariant().id
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_indexed_by_rule_and_ids_are_unique() {
        for (index, invariant) in INVARIANTS.iter().enumerate() {
            assert_eq!(invariant.rule as usize, index);
            assert_eq!(
                invariant.id.replace('-', ""),
                format!("{:?}", invariant.rule)
            );
            assert_eq!(invariant.rule.to_string(), invariant.id);
            assert!(
                INVARIANTS
                    .iter()
                    .skip(index + 1)
                    .all(|later| later.name != invariant.name)
            );
        }
    }
}
