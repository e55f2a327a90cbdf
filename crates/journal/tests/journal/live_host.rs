//! The live host of a guest: records through commands, and lets timers, results, signals and
//! cancellation happen at random.

use onward_base::Timestamp;
use onward_journal::{
    AwaitKind, DeliveryGuarantee, Event, InvokeKind, InvokePerformer, InvokePhase, JoinSetId,
    Journal, JournalCommand, PromiseId, PromiseState,
};

use super::guest_script::{Answer, Host, NO_RESULT};
use super::replay_index::{RecordedOutcome, ReplayIndex};
use super::script::*;

/// The live host: records through commands, and applies external events at random.
pub(crate) struct World<'a> {
    pub(crate) journal: Journal,
    pub(crate) chance: Box<dyn FnMut(u32) -> u32 + 'a>,
    pub(crate) now_ms: u64,
}

impl World<'_> {
    fn ask(
        &mut self,
        command: JournalCommand,
    ) -> Result<Vec<onward_journal::JournalEvent>, onward_journal::RuleViolation> {
        self.now_ms += 1;
        self.journal
            .handle_command(command, Timestamp::EPOCH.plus_ms(self.now_ms))
    }

    /// Applies a random external event, if one is possible now.
    fn apply_random_event(&mut self) {
        self.now_ms += 10_000;
        let known = self.journal.journal_state().next_promise_id().path()[0];
        let promise = promise((self.chance)(known + 1));
        let signal_name = name(["go", "stop"][(self.chance)(2) as usize]);
        let choice = (self.chance)(40);
        let flight = self
            .journal
            .journal_state()
            .invoke_state(&promise)
            .map(|invoke| invoke.phase);
        let is_timer = matches!(
            self.journal.journal_state().promise_state(&promise),
            Some(PromiseState::Timer { .. })
        );
        let command = match flight {
            Some(InvokePhase::Started) if choice.is_multiple_of(3) => JournalCommand::FailAttempt {
                promise,
                error: error(&choice.to_string()),
                entropy: 0,
            },
            Some(InvokePhase::Started) => JournalCommand::CompleteAttempt {
                promise,
                result: payload(choice),
            },
            Some(InvokePhase::Retrying { .. }) if choice.is_multiple_of(4) => {
                JournalCommand::GiveUpInvoke {
                    promise,
                    error: error("enough"),
                }
            }
            Some(InvokePhase::Scheduled | InvokePhase::Retrying { .. }) => {
                JournalCommand::StartAttempt {
                    promise,
                    performer: InvokePerformer::Owner,
                }
            }
            _ if is_timer => JournalCommand::FireTimer { promise },
            _ if choice == 0 => JournalCommand::RequestCancel {
                reason: "enough".into(),
            },
            _ if choice < 10 => JournalCommand::DeliverSignal {
                signal_name,
                payload: payload(choice),
            },
            _ => return,
        };
        // A command that the rules refuse changes nothing.
        let _ = self.ask(command);
    }

    /// Applies random events until the open await ends; `None` if it was interrupted.
    fn block(&mut self) -> Option<()> {
        for _ in 0..10_000 {
            let wait = self.journal.journal_state().open_await()?;
            if wait.is_satisfied() && (self.chance)(3) == 0 {
                self.ask(JournalCommand::Resume).unwrap();
                return Some(());
            }
            let waiting: Vec<PromiseId> = self.journal.journal_state().waiting_on().collect();
            for promise in waiting {
                let is_signal = matches!(
                    self.journal.journal_state().promise_state(&promise),
                    Some(PromiseState::Signal {
                        received: false,
                        ..
                    })
                );
                if is_signal && self.ask(JournalCommand::ReceiveSignal { promise }).is_ok() {
                    continue;
                }
            }
            self.apply_random_event();
        }
        panic!("the await does not end after 10000 random events");
    }

    fn seen(&self, ids: &[PromiseId]) -> Answer {
        let replay = ReplayIndex::new(own(), self.journal.events());
        format!(
            "{:?}",
            ids.iter()
                .map(|id| replay.recorded_outcome(id))
                .collect::<Vec<_>>()
        )
    }
}

impl Host for World<'_> {
    fn random(&mut self, _: &PromiseId) -> Answer {
        let value = [(self.chance)(256) as u8];
        self.ask(JournalCommand::GenerateRandom {
            value: value.into(),
        })
        .unwrap();
        format!("{:?}", RecordedOutcome::Random(&value))
    }

    fn clock(&mut self, _: &PromiseId) -> Answer {
        self.ask(JournalCommand::ReadClock).unwrap();
        format!(
            "{:?}",
            RecordedOutcome::Time(Timestamp::EPOCH.plus_ms(self.now_ms))
        )
    }

    fn sleep(&mut self, _: &PromiseId) {
        self.ask(JournalCommand::ScheduleTimer { duration_ms: 5_000 })
            .unwrap();
    }

    fn schedule(&mut self, _: &PromiseId) {
        let (kind, function_name) = (InvokeKind::Function, name("task"));
        let (retry_policy, delivery) = (None, DeliveryGuarantee::AtLeastOnce);
        self.ask(JournalCommand::ScheduleInvoke {
            kind,
            function_name,
            input: payload(0),
            retry_policy,
            delivery,
        })
        .unwrap();
        self.apply_random_event();
    }

    fn create_set(&mut self, _: &JoinSetId) {
        self.ask(JournalCommand::CreateJoinSet).unwrap();
    }

    fn submit(&mut self, set: &JoinSetId, id: &PromiseId) -> Answer {
        let submitted = self.ask(JournalCommand::SubmitToJoinSet {
            set: set.clone(),
            promise: id.clone(),
        });
        // A refused submit records no event: replay must refuse it from the guest's own calls.
        submitted.map_or_else(
            |violation| violation.rule.to_string(),
            |_| "submitted".to_owned(),
        )
    }

    fn wait(&mut self, ids: &[PromiseId], kind: AwaitKind) -> Option<Answer> {
        let events = self
            .ask(JournalCommand::Await {
                waiting_on: ids.to_vec(),
                kind,
            })
            .unwrap();
        if events.len() == 1 {
            self.block()?;
        }
        Some(self.seen(ids))
    }

    fn signal(
        &mut self,
        id: &PromiseId,
        signal: &str,
        deadline: Option<PromiseId>,
    ) -> Option<Answer> {
        self.ask(JournalCommand::AwaitSignal {
            signal_name: name(signal),
            timeout: deadline,
        })
        .unwrap();
        if self.journal.journal_state().open_await().is_some() {
            self.block()?;
        }
        Some(self.seen(std::slice::from_ref(id)))
    }

    fn next(&mut self, set: &JoinSetId, deadline: Option<PromiseId>) -> Option<Answer> {
        loop {
            let mut events = match self.ask(JournalCommand::TakeNextResult {
                set: set.clone(),
                timeout: deadline.clone(),
            }) {
                Err(violation) => return Some(violation.rule.to_string()),
                Ok(events) => events,
            };
            match events.remove(0).event {
                Event::JoinSetAwaited {
                    promise_id, result, ..
                } => return Some(format!("{promise_id} {result:?}")),
                Event::ExecutionAwaiting { waiting_on, .. } => {
                    if events.is_empty() {
                        self.block()?;
                    }
                    let fold = self.journal.journal_state();
                    let is_complete = |id: &PromiseId| {
                        fold.invoke_state(id).is_some()
                            && fold.promise_state(id).unwrap().is_complete()
                    };
                    if !waiting_on.iter().any(is_complete) {
                        return Some(NO_RESULT.to_owned());
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
