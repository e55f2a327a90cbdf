//! What workflows can call. Each call is one request to the engine.

use onward_execution::{Answer, Request, Taken, WaitFor};
use onward_journal::ExecutionError;
use wasmtime::Result;

use super::convert::name;
use super::{Asked, Data, Told};
use crate::bindings::types::Failure;
use crate::bindings::workflow::{Host, Options, Taken as GuestTaken, Target};
use crate::stop::Stop;

type Outcome = std::result::Result<String, Failure>;

impl Host for Data {
    async fn invoke(&mut self, target: Target, input: String, options: Options) -> Told<u32> {
        match self.invocation(&target, &input, options) {
            Ok(request) => told(self.ask("invoke", request, PROMISE).await),
            Err(error) => Ok(Err(error.into())),
        }
    }

    async fn timer(&mut self, duration_ms: u64) -> Told<u32> {
        told(self.ask("timer", Request::Timer { duration_ms }, PROMISE).await)
    }

    async fn await_one(&mut self, promise: u32) -> Result<Outcome> {
        let request = Request::Await { promises: vec![promise], wait: WaitFor::One };
        let outcome = |answer| if let Answer::Outcome(result) = answer { Some(result) } else { None };
        let result = self.ask("await-one", request, outcome).await?;
        Ok(self.outcome(result.and_then(|result| result)))
    }

    async fn await_any(&mut self, promises: Vec<u32>) -> Told<(u32, Outcome)> {
        let request = Request::Await { promises, wait: WaitFor::Any };
        let first = |answer| if let Answer::First(place, result) = answer { Some((place, result)) } else { None };
        let first = self.ask("await-any", request, first).await?;
        Ok(first.map(|(place, result)| (place, self.outcome(result))).map_err(Failure::from))
    }

    async fn await_all(&mut self, promises: Vec<u32>) -> Told<Vec<Outcome>> {
        let request = Request::Await { promises, wait: WaitFor::All };
        let results = |answer| if let Answer::Outcomes(results) = answer { Some(results) } else { None };
        let results = self.ask("await-all", request, results).await?;
        let outcomes = results.map(|results| results.into_iter().map(|result| self.outcome(result)).collect());
        Ok(outcomes.map_err(Failure::from))
    }

    async fn new_join_set(&mut self) -> Told<u32> {
        told(self.ask("new-join-set", Request::JoinSet, PROMISE).await)
    }

    async fn submit(&mut self, set: u32, promise: u32) -> Told<()> {
        told(self.ask("submit", Request::Submit { set, promise }, DONE).await)
    }

    async fn next(&mut self, set: u32, timeout_ms: Option<u64>) -> Told<GuestTaken> {
        let taken = |answer| if let Answer::Taken(taken) = answer { Some(taken) } else { None };
        let taken = self.ask("next", Request::Next { set, timeout_ms }, taken).await?;
        Ok(taken.map(|taken| self.taken(taken)).map_err(Failure::from))
    }

    async fn close(&mut self, set: u32) -> Told<()> {
        told(self.ask("close", Request::Close { set }, DONE).await)
    }

    async fn await_signal(&mut self, name: String, timeout_ms: Option<u64>) -> Told<Option<String>> {
        Ok(self.signal(&name, timeout_ms).await?.map_err(Failure::from))
    }

    async fn is_cancelled(&mut self) -> Result<bool> {
        let flag = |answer| if let Answer::Flag(flag) = answer { Some(flag) } else { None };
        self.demand("is-cancelled", Request::IsCancelled, flag).await
    }

    async fn continue_as_new(&mut self, input: String) -> Result<()> {
        let input = self.payload("the input", &input).map_err(Stop)?;
        self.demand("continue-as-new", Request::ContinueAsNew { input }, DONE).await
    }
}

impl Data {
    async fn signal(&mut self, signal: &str, timeout_ms: Option<u64>) -> Asked<Option<String>> {
        let name = match name(signal) {
            Ok(name) => name,
            Err(error) => return Ok(Err(error)),
        };
        let payload = |answer| if let Answer::Signal(payload) = answer { Some(payload) } else { None };
        let payload = self.ask("await-signal", Request::Signal { name, timeout_ms }, payload).await?;
        Ok(payload.and_then(|payload| payload.map(|payload| self.handed("a signal", &payload)).transpose()))
    }

    fn taken(&self, taken: Taken) -> GuestTaken {
        match taken {
            Taken::Result(promise, result) => GuestTaken::Done((promise, self.outcome(result))),
            Taken::TimedOut => GuestTaken::TimedOut,
            Taken::Empty => GuestTaken::Empty,
        }
    }
}

/// Most requests make an operation, or are just done.
const PROMISE: fn(Answer) -> Option<u32> =
    |answer| if let Answer::Promise(number) = answer { Some(number) } else { None };
const DONE: fn(Answer) -> Option<()> = |answer| matches!(answer, Answer::Done).then_some(());

fn told<T>(asked: Asked<T>) -> Told<T> {
    asked.map(|answer| answer.map_err(|error: ExecutionError| error.into()))
}
