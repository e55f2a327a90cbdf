//! One attempt of an operation: a stub, the real task, a child workflow, or a request.

use std::rc::Rc;

use crate::Error;
use crate::context::CallContext;
use crate::function::{FunctionEntry, FunctionKind};
use crate::host::{CallTarget, Invocation, InvocationDelivery, LocalFunction, Outcome};
use crate::http::{HttpInput, HttpRequest};
use crate::payload::{decode, encode};
use crate::testing::execution::{ExecutionIdentity, ParentOperation, SimulatedExecution};
use crate::testing::limits::{self, final_failure};
use crate::testing::scope::{self, RunningFunction, RunningTask, UnwindReason, fail_test};
use crate::testing::simulation::RecordedEffect;
use crate::testing::state::{CancelState, InvocationPhase, SimulatedState};

/// Maximum depth of nested workflows.
const DEPTH_MAX: u32 = 64;

/// Maximum number of attempts: a task that never succeeds must not run a test forever.
const ATTEMPTS_MAX: u32 = 10_000;

impl SimulatedExecution {
    /// Runs the next attempt, and records when and how it ends.
    pub(crate) fn start_attempt(&self, promise: u32) {
        if let Some(invoke) = self.state.borrow_mut().invoke_mut(promise) {
            invoke.attempt += 1;
        }
        self.perform_attempt(promise);
    }

    /// Handles the attempts in flight at a crash: repeats those that are at least once; the others
    /// are in doubt.
    pub(crate) fn lose_attempts(&self) {
        let lost: Vec<(u32, InvocationDelivery)> = {
            let state = self.state.borrow();
            let runs = state.invocations().filter(|(_, invoke)| {
                matches!(invoke.phase, InvocationPhase::Runs(..)) && !state.is_over
            });
            runs.map(|(promise, invoke)| (promise, invoke.invocation.delivery))
                .collect()
        };
        for (promise, delivery) in lost {
            match delivery {
                InvocationDelivery::AtLeastOnce => self.perform_attempt(promise),
                InvocationDelivery::AtMostOnce => {
                    let message =
                        "the attempt was started before a crash; whether it took effect is unknown";
                    let outcome = Err(final_failure("in_doubt", message));
                    self.state
                        .borrow_mut()
                        .end_attempt(promise, outcome, self.simulation.now());
                }
            }
        }
    }

    fn perform_attempt(&self, promise: u32) {
        let (invocation, local, attempt, limit) = {
            let mut state = self.state.borrow_mut();
            let Some(invoke) = state.invoke_mut(promise) else {
                return;
            };
            (
                invoke.invocation.clone(),
                invoke.local,
                invoke.attempt,
                invoke.timeout_us(),
            )
        };
        let (CallTarget::Function(name) | CallTarget::Http(name)) = invocation.target.clone();
        if attempt > ATTEMPTS_MAX {
            fail_test(
                Error::new("stuck", format!("{name} failed {ATTEMPTS_MAX} times")).non_retryable(),
            );
        }
        let effect = RecordedEffect {
            name: name.clone(),
            input: invocation.input.clone(),
            attempt,
        };
        self.simulation.effects.borrow_mut().push(effect);
        let (now, child) = (
            self.simulation.now(),
            local.filter(|entry| entry.kind == FunctionKind::Workflow),
        );
        if child.is_some() && self.depth() >= DEPTH_MAX {
            let error = final_failure(
                "too_deep",
                format!("call depth exceeds {DEPTH_MAX} nested workflows"),
            );
            return self
                .state
                .borrow_mut()
                .end_attempt(promise, Err(error), now);
        }
        let context = CallContext {
            execution: self.id(),
            idempotency_key: self.key_of(promise),
            attempt,
        };
        let phase = match child {
            Some(entry) if !self.simulation.script.stubs.contains_key(&name) => {
                InvocationPhase::Child {
                    index: self.start_child(entry, promise, context, invocation.input),
                    limit: limit.map(|limit| now.saturating_add(limit)),
                }
            }
            _ => {
                let late = |limit: i64| {
                    if child.is_some() {
                        overdue_error()
                    } else {
                        timeout_error(limit)
                    }
                };
                let limit = limit.map(|limit| (limit, late(limit)));
                self.attempt_phase(
                    &name,
                    limit,
                    limits::recordable_outcome(self.attempt_outcome(&invocation, local, context)),
                )
            }
        };
        if let Some(invoke) = self.state.borrow_mut().invoke_mut(promise) {
            invoke.phase = phase;
        }
    }

    /// Determines when and how the attempt ends; it may exceed its timeout.
    fn attempt_phase(
        &self,
        name: &str,
        limit: Option<(i64, Error)>,
        outcome: Outcome,
    ) -> InvocationPhase {
        let (now, took) = (
            self.simulation.now(),
            self.simulation
                .script
                .durations
                .get(name)
                .copied()
                .unwrap_or(0),
        );
        match limit {
            Some((limit, late)) if limit < took => {
                InvocationPhase::Runs(now.saturating_add(limit), Err(late))
            }
            _ => InvocationPhase::Runs(now.saturating_add(took), outcome),
        }
    }

    /// Cancels a child that exceeded its timeout, and does not wait for it.
    pub(crate) fn end_overdue(&self, promise: u32) {
        self.cancel_children(&[promise], "the attempt timed out");
        self.state
            .borrow_mut()
            .end_attempt(promise, Err(overdue_error()), self.simulation.now());
    }

    /// Returns the outcome of the attempt.
    fn attempt_outcome(
        &self,
        invocation: &Invocation,
        local: LocalFunction,
        context: CallContext,
    ) -> Outcome {
        let input = &invocation.input;
        let name = match &invocation.target {
            CallTarget::Function(name) => name,
            CallTarget::Http(line) => {
                return self.send_workflow_request(line, input, &context.idempotency_key);
            }
        };
        let function = local.map_or("", |entry| entry.name);
        let task = RunningFunction::Task(Rc::new(RunningTask::new(
            Rc::clone(&self.simulation),
            function,
            context,
        )));
        match (self.simulation.script.stubs.get(name), local) {
            (Some(stub), _) => run_attempt_in(task, || stub(input)),
            (None, Some(FunctionEntry { run, .. })) => run_attempt_in(task, || run(input)),
            (None, None) => fail_test(Error::other(format!(
                "function {name} is unknown: add a stub for it"
            ))),
        }
    }

    /// Starts a child and returns its index. It runs when no other execution can.
    fn start_child(
        &self,
        entry: FunctionEntry,
        promise: u32,
        context: CallContext,
        input: String,
    ) -> usize {
        let parent = self
            .simulation
            .index_of(self)
            .map(|index| ParentOperation { index, promise });
        let CallContext {
            idempotency_key: key,
            attempt,
            ..
        } = context;
        let (id, depth) = (format!("{key}#{attempt}"), self.depth() + 1);
        let identity = ExecutionIdentity {
            id,
            key,
            attempt,
            parent,
            generation: 0,
            depth,
        };
        let state = SimulatedState::new(
            self.simulation.signals_for_next_child(entry.name),
            CancelState::Never,
        );
        self.simulation.add_execution(Self::new(
            Rc::clone(&self.simulation),
            entry,
            input,
            identity,
            state,
        ))
    }

    /// Sends a request of a workflow; a retryable status is a failure.
    fn send_workflow_request(&self, line: &str, input: &str, key: &str) -> Outcome {
        let HttpInput { headers, body } = decode(input)?;
        let (method, url) = line.split_once(' ').unwrap_or((line, ""));
        let request = HttpRequest {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: headers.into_iter().collect(),
            body: body.map(String::into_bytes),
            timeout_ms: None,
        };
        let response = self.simulation.send_request(&request, key)?;
        let status = response.status;
        if status >= 500 || matches!(status, 408 | 429) {
            return Err(Error::new(
                "http_status",
                format!("{line} answered with status {status}"),
            ));
        }
        limits::check_response_size(encode(&response)?)
    }
}

fn overdue_error() -> Error {
    Error::new("timeout", "the attempt exceeded its timeout")
}

fn timeout_error(limit_us: i64) -> Error {
    Error::new("timeout", format!("no result in {} ms", limit_us / 1_000))
}

pub(crate) fn run_attempt_in(scope: RunningFunction, body: impl FnOnce() -> Outcome) -> Outcome {
    match scope::run_in(scope, body) {
        Ok(outcome) => outcome,
        Err(UnwindReason::Stop(error)) => fail_test(error),
        Err(UnwindReason::Crash | UnwindReason::Blocked | UnwindReason::Ended(_)) => {
            fail_test(Error::other("only a workflow can wait and crash"))
        }
    }
}
