//! One attempt of what a workflow wants done: a stub, the real task, a child workflow, or a request.

use std::rc::Rc;

use serde::Deserialize;
use std::collections::BTreeMap;

use crate::Error;
use crate::context::Context;
use crate::function::{Entry, Kind};
use crate::host::{Invocation, Outcome, Target};
use crate::http::Request;
use crate::payload::{decode, encode};
use crate::testing::execution::Execution;
use crate::testing::scope::{self, Attempt, Left, Scope, stop};
use crate::testing::state::{Cancel, Phase, State, micros};
use crate::testing::world::Effect;

/// More than any policy of a real system: a task that never succeeds would otherwise never end a test.
const ATTEMPTS_MAX: u32 = 10_000;

#[derive(Deserialize)]
struct Input {
    headers: BTreeMap<String, String>,
    body: Option<String>,
}

impl Execution {
    /// Runs the next attempt, and notes when it ends and how.
    pub(crate) fn attempt(&self, promise: u32) {
        let (invocation, local, attempt, now) = {
            let mut state = self.state.borrow_mut();
            let now = state.now;
            let Some(invoke) = state.invoke_mut(promise) else { return };
            invoke.attempt += 1;
            (invoke.invocation.clone(), invoke.local, invoke.attempt, now)
        };
        let (name, input) = (name_of(&invocation), invocation.input.clone());
        if attempt > ATTEMPTS_MAX {
            stop(Error::new("stuck", format!("{name} failed {ATTEMPTS_MAX} times")).permanent());
        }
        self.world.effects.borrow_mut().push(Effect { name: name.clone(), input, attempt });
        let context = Context { execution: self.id().to_owned(), idempotency_key: self.key_of(promise), attempt };
        let (outcome, ended_at) = self.result(&invocation, local, context, now);
        let took = ended_at - now + self.world.script.durations.get(&name).copied().unwrap_or(0);
        let phase = match invocation.timeout_ms.map(micros) {
            Some(limit) if limit < took => {
                Phase::Runs(now + limit, Err(Error::new("timeout", "the attempt took too long")))
            }
            _ => Phase::Runs(now + took, outcome),
        };
        if let Some(invoke) = self.state.borrow_mut().invoke_mut(promise) {
            invoke.phase = phase;
        }
    }

    /// What the attempt ends with, and when.
    fn result(&self, invocation: &Invocation, local: Option<Entry>, context: Context, now: i64) -> (Outcome, i64) {
        let input = &invocation.input;
        let name = match &invocation.target {
            Target::Function(name) => name,
            Target::Http(line) => return (self.request(line, input), now),
        };
        let function = local.map_or("", |entry| entry.name);
        let task = Scope::Task(Rc::new(Attempt { world: Rc::clone(&self.world), function, context, now }));
        if let Some(stub) = self.world.script.stubs.get(name) {
            return (inside(task, || stub(input)), now);
        }
        match local {
            Some(Entry { kind: Kind::Task, run, .. }) => (inside(task, || run(input)), now),
            Some(entry) => self.child(entry, &task.own().idempotency_key, input, now),
            None => stop(Error::other(format!("nobody knows {name}: add a stub for it"))),
        }
    }

    /// A child has a clock of its own, so that children of one parent run at the same time.
    fn child(&self, entry: Entry, key: &str, input: &str, now: i64) -> (Outcome, i64) {
        let world = Rc::clone(&self.world);
        let mut state = State::new(now, Vec::new(), Cancel::Never);
        let mut input = input.to_owned();
        loop {
            let child = Self::new(Rc::clone(&world), entry.name, key.to_owned(), key.to_owned(), state);
            let outcome = child.run(entry.run, &input);
            let ended = child.state.borrow();
            match &ended.continued {
                None => return (outcome, ended.now),
                Some(next) => {
                    input.clone_from(next);
                    state = State::new(ended.now, ended.mailbox.clone(), Cancel::Never);
                }
            }
        }
    }

    fn request(&self, line: &str, input: &str) -> Outcome {
        let Input { headers, body } = decode(input)?;
        let (method, url) = line.split_once(' ').unwrap_or((line, ""));
        let request = Request {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: headers.into_iter().collect(),
            body: body.map(String::into_bytes),
            timeout_ms: None,
        };
        encode(&self.world.http(&request)?)
    }
}

pub(crate) fn inside(scope: Scope, body: impl FnOnce() -> Outcome) -> Outcome {
    match scope::enter(scope, body) {
        Ok(outcome) => outcome,
        Err(Left::Stop(error)) => stop(error),
        Err(Left::Crash) => stop(Error::other("only a workflow crashes")),
    }
}

fn name_of(invocation: &Invocation) -> String {
    match &invocation.target {
        Target::Function(name) | Target::Http(name) => name.clone(),
    }
}
