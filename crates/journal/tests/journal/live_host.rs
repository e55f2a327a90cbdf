//! The live host of a guest: records through commands, and lets timers, results, signals and
//! cancellation happen at random.

use onward_base::Timestamp;
use onward_journal::{
    AwaitKind, DeliveryGuarantee, Event, InvokeKind, InvokePerformer, InvokePhase, JoinSetId,
    Journal, JournalCommand, PromiseId, PromiseState, RecordedOutcome, ReplayIndex,
};

use super::guest_script::{Host, NO_RESULT, Told};
use super::script::*;

/// The world: records through commands, and lets things happen at random.
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

    /// Something happens, or not.
    fn happen(&mut self) {
        self.now_ms += 10_000;
        let known = self.journal.journal_state().next_promise_id().path()[0];
        let promise = promise((self.chance)(known + 1));
        let signal_name = name(["go", "stop"][(self.chance)(2) as usize]);
        let what = (self.chance)(40);
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
            Some(InvokePhase::Started) if what.is_multiple_of(3) => JournalCommand::FailAttempt {
                promise,
                error: error(&what.to_string()),
                entropy: 0,
            },
            Some(InvokePhase::Started) => JournalCommand::CompleteAttempt {
                promise,
                result: payload(what),
            },
            Some(InvokePhase::Retrying { .. }) if what.is_multiple_of(4) => {
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
            _ if what == 0 => JournalCommand::RequestCancel {
                reason: "enough".into(),
            },
            _ if what < 10 => JournalCommand::DeliverSignal {
                signal_name,
                payload: payload(what),
            },
            _ => return,
        };
        // What cannot happen now does not.
        let _ = self.ask(command);
    }

    /// Lets things happen until the open await ends; `None` if it was interrupted.
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
            self.happen();
        }
        panic!("whatever happens, the await does not end");
    }

    fn seen(&self, ids: &[PromiseId]) -> Told {
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
    fn random(&mut self, _: &PromiseId) -> Told {
        let value = [(self.chance)(256) as u8];
        self.ask(JournalCommand::GenerateRandom {
            value: value.into(),
        })
        .unwrap();
        format!("{:?}", RecordedOutcome::Random(&value))
    }

    fn clock(&mut self, _: &PromiseId) -> Told {
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
        self.happen();
    }

    fn create_set(&mut self, _: &JoinSetId) {
        self.ask(JournalCommand::CreateJoinSet).unwrap();
    }

    fn submit(&mut self, set: &JoinSetId, id: &PromiseId) -> Told {
        let submitted = self.ask(JournalCommand::SubmitToJoinSet {
            set: set.clone(),
            promise: id.clone(),
        });
        // A refused submit is the guest's mistake; it leaves no event, so it must be judged from
        // what there is.
        submitted.map_or_else(
            |violation| violation.rule.to_string(),
            |_| "submitted".to_owned(),
        )
    }

    fn wait(&mut self, ids: &[PromiseId], kind: AwaitKind) -> Option<Told> {
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
    ) -> Option<Told> {
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

    fn next(&mut self, set: &JoinSetId, deadline: Option<PromiseId>) -> Option<Told> {
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
                    let is_there = |id: &PromiseId| {
                        fold.invoke_state(id).is_some()
                            && fold.promise_state(id).unwrap().is_complete()
                    };
                    if !waiting_on.iter().any(is_there) {
                        return Some(NO_RESULT.to_owned());
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
