//! One attempt of an operation: a stub, the real task, a child workflow, or a request.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde::Deserialize;

use crate::Error;
use crate::context::Context;
use crate::function::{Entry, Kind};
use crate::host::{Delivery, Invocation, Local, Outcome, Target};
use crate::http::Request;
use crate::payload::{decode, encode};
use crate::testing::execution::{Execution, ExecutionIdentity, Parent};
use crate::testing::limits::{self, final_failure};
use crate::testing::scope::{self, Attempt, Left, Scope, stop};
use crate::testing::state::{Cancel, Phase, State};
use crate::testing::world::Effect;

/// Maximum depth of nested workflows.
const DEPTH_MAX: u32 = 64;

/// Maximum number of attempts: a task that never succeeds must not run a test forever.
const ATTEMPTS_MAX: u32 = 10_000;

#[derive(Deserialize)]
struct Input {
    headers: BTreeMap<String, String>,
    body: Option<String>,
}

impl Execution {
    /// Runs the next attempt, and records when and how it ends.
    pub(crate) fn attempt(&self, promise: u32) {
        if let Some(invoke) = self.state.borrow_mut().invoke_mut(promise) {
            invoke.attempt += 1;
        }
        self.perform_attempt(promise);
    }

    /// Handles the attempts in flight at a crash: repeats those that are at least once; the others
    /// are in doubt.
    pub(crate) fn lose_attempts(&self) {
        let lost: Vec<(u32, Delivery)> = {
            let state = self.state.borrow();
            let runs = state
                .invokes()
                .filter(|(_, invoke)| matches!(invoke.phase, Phase::Runs(..)) && !state.is_over);
            runs.map(|(promise, invoke)| (promise, invoke.invocation.delivery))
                .collect()
        };
        for (promise, delivery) in lost {
            match delivery {
                Delivery::AtLeastOnce => self.perform_attempt(promise),
                Delivery::AtMostOnce => {
                    let message =
                        "the attempt was started before a crash; whether it took effect is unknown";
                    let outcome = Err(final_failure("in_doubt", message));
                    self.state
                        .borrow_mut()
                        .end_attempt(promise, outcome, self.world.now());
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
                invoke.limit_us(),
            )
        };
        let (Target::Function(name) | Target::Http(name)) = invocation.target.clone();
        if attempt > ATTEMPTS_MAX {
            stop(Error::new("stuck", format!("{name} failed {ATTEMPTS_MAX} times")).permanent());
        }
        let effect = Effect {
            name: name.clone(),
            input: invocation.input.clone(),
            attempt,
        };
        self.world.effects.borrow_mut().push(effect);
        let (now, child) = (
            self.world.now(),
            local.filter(|entry| entry.kind == Kind::Workflow),
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
        let context = Context {
            execution: self.id(),
            idempotency_key: self.key_of(promise),
            attempt,
        };
        let phase = match child {
            Some(entry) if !self.world.script.stubs.contains_key(&name) => Phase::Child {
                place: self.start_child(entry, promise, context, invocation.input),
                limit: limit.map(|limit| now.saturating_add(limit)),
            },
            _ => {
                let late = |limit: i64| {
                    if child.is_some() {
                        overdue()
                    } else {
                        timed_out(limit)
                    }
                };
                let limit = limit.map(|limit| (limit, late(limit)));
                self.runs(
                    &name,
                    limit,
                    limits::recorded(self.result(&invocation, local, context)),
                )
            }
        };
        if let Some(invoke) = self.state.borrow_mut().invoke_mut(promise) {
            invoke.phase = phase;
        }
    }

    /// Determines when and how the attempt ends; it may exceed its timeout.
    fn runs(&self, name: &str, limit: Option<(i64, Error)>, outcome: Outcome) -> Phase {
        let (now, took) = (
            self.world.now(),
            self.world.script.durations.get(name).copied().unwrap_or(0),
        );
        match limit {
            Some((limit, late)) if limit < took => {
                Phase::Runs(now.saturating_add(limit), Err(late))
            }
            _ => Phase::Runs(now.saturating_add(took), outcome),
        }
    }

    /// Cancels a child that exceeded its timeout, and does not wait for it.
    pub(crate) fn end_overdue(&self, promise: u32) {
        self.cancel(&[promise], "the attempt timed out");
        self.state
            .borrow_mut()
            .end_attempt(promise, Err(overdue()), self.world.now());
    }

    /// Returns the outcome of the attempt.
    fn result(&self, invocation: &Invocation, local: Local, context: Context) -> Outcome {
        let input = &invocation.input;
        let name = match &invocation.target {
            Target::Function(name) => name,
            Target::Http(line) => return self.request(line, input, &context.idempotency_key),
        };
        let function = local.map_or("", |entry| entry.name);
        let task = Scope::Task(Rc::new(Attempt::new(
            Rc::clone(&self.world),
            function,
            context,
        )));
        match (self.world.script.stubs.get(name), local) {
            (Some(stub), _) => inside(task, || stub(input)),
            (None, Some(Entry { run, .. })) => inside(task, || run(input)),
            (None, None) => stop(Error::other(format!(
                "function {name} is unknown: add a stub for it"
            ))),
        }
    }

    /// Starts a child and returns its index. It runs when no other execution can.
    fn start_child(&self, entry: Entry, promise: u32, context: Context, input: String) -> usize {
        let parent = self
            .world
            .place_of(self)
            .map(|place| Parent { place, promise });
        let Context {
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
        let state = State::new(self.world.child_mailbox(entry.name), Cancel::Never);
        self.world.add(Self::new(
            Rc::clone(&self.world),
            entry,
            input,
            identity,
            state,
        ))
    }

    /// Sends a request of a workflow; a retryable status is a failure.
    fn request(&self, line: &str, input: &str, key: &str) -> Outcome {
        let Input { headers, body } = decode(input)?;
        let (method, url) = line.split_once(' ').unwrap_or((line, ""));
        let request = Request {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: headers.into_iter().collect(),
            body: body.map(String::into_bytes),
            timeout_ms: None,
        };
        let response = self.world.http(&request, key)?;
        let status = response.status;
        if status >= 500 || matches!(status, 408 | 429) {
            return Err(Error::new(
                "http_status",
                format!("{line} answered with status {status}"),
            ));
        }
        limits::answer_fits(encode(&response)?)
    }
}

fn overdue() -> Error {
    Error::new("timeout", "the attempt exceeded its timeout")
}

fn timed_out(limit_us: i64) -> Error {
    Error::new("timeout", format!("no result in {} ms", limit_us / 1_000))
}

pub(crate) fn inside(scope: Scope, body: impl FnOnce() -> Outcome) -> Outcome {
    match scope::enter(scope, body) {
        Ok(outcome) => outcome,
        Err(Left::Stop(error)) => stop(error),
        Err(Left::Crash | Left::Blocked | Left::Ended(_)) => {
            stop(Error::other("only a workflow can wait and crash"))
        }
    }
}
