//! Workflows written as Rust futures: for tests, for simulation, and for programs that bring their own.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use onward_journal::{Delivery, ExecutionError, InvokeKind, InvokeResult, Name, Payload, RetryPolicy, Timestamp};

use crate::{Answer, Guest, Request, Taken, Turn, WaitFor};

/// A guest that is a future. It must do nothing but ask its [`Host`], and take the same path whenever it is answered the same.
pub struct Script {
    future: Pin<Box<dyn Future<Output = InvokeResult> + Send>>,
    line: Host,
}

/// What a script asks.
#[derive(Debug, Clone, Default)]
pub struct Host(Arc<Mutex<Line>>);

#[derive(Debug, Default)]
struct Line {
    request: Option<Request>,
    answer: Option<Answer>,
}

impl Script {
    /// The guest that does what `script` does.
    pub fn new<F: Future<Output = InvokeResult> + Send + 'static>(script: impl FnOnce(Host) -> F) -> Self {
        let line = Host::default();
        Self { future: Box::pin(script(line.clone())), line }
    }
}

impl Guest for Script {
    fn turn(&mut self, answer: Option<Answer>) -> Turn {
        self.line.lock().answer = answer;
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Turn::Ends(result),
            Poll::Pending => self.line.lock().request.take().map_or(Turn::Pauses, Turn::Asks),
        }
    }
}

impl Host {
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&self, request: Request) -> Answer {
        self.lock().request = Some(request);
        poll_fn(|_| self.lock().answer.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Has a function called as usual, and does not wait for it.
    pub async fn schedule(&self, function: &str, input: Payload) -> Result<u32, ExecutionError> {
        self.schedule_as(function, input, None, Delivery::AtLeastOnce).await
    }

    /// Has a function called, and does not wait for it.
    pub async fn schedule_as(
        &self,
        function: &str,
        input: Payload,
        policy: Option<Box<RetryPolicy>>,
        delivery: Delivery,
    ) -> Result<u32, ExecutionError> {
        let function: Name = function.parse().map_err(|error| misuse(&format!("{error}")))?;
        let kind = InvokeKind::Function;
        number(self.ask(Request::Invoke { kind, function, input, policy, delivery }).await)
    }

    /// Has a function called, and waits for it.
    pub async fn invoke(&self, function: &str, input: Payload) -> InvokeResult {
        let promise = self.schedule(function, input).await?;
        self.wait(promise).await
    }

    /// Waits for a promise.
    pub async fn wait(&self, promise: u32) -> InvokeResult {
        match self.ask(Request::Await { promises: vec![promise], wait: WaitFor::One }).await {
            Answer::Outcome(outcome) => outcome,
            other => Err(refusal(other)),
        }
    }

    /// Waits for the first of several.
    pub async fn any(&self, promises: &[u32]) -> Result<(u32, InvokeResult), ExecutionError> {
        match self.ask(Request::Await { promises: promises.to_vec(), wait: WaitFor::Any }).await {
            Answer::First(place, outcome) => Ok((place, outcome)),
            other => Err(refusal(other)),
        }
    }

    /// Waits for several.
    pub async fn all(&self, promises: &[u32]) -> Result<Vec<InvokeResult>, ExecutionError> {
        match self.ask(Request::Await { promises: promises.to_vec(), wait: WaitFor::All }).await {
            Answer::Outcomes(outcomes) => Ok(outcomes),
            other => Err(refusal(other)),
        }
    }

    /// Sets a timer.
    pub async fn timer(&self, duration_ms: u64) -> Result<u32, ExecutionError> {
        number(self.ask(Request::Timer { duration_ms }).await)
    }

    /// Sets a timer and waits for it.
    pub async fn sleep(&self, duration_ms: u64) -> Result<(), ExecutionError> {
        let timer = self.timer(duration_ms).await?;
        self.wait(timer).await.map(drop)
    }

    /// Makes a join set.
    pub async fn join_set(&self) -> Result<u32, ExecutionError> {
        number(self.ask(Request::JoinSet).await)
    }

    /// Puts an invocation into a join set.
    pub async fn submit(&self, set: u32, promise: u32) -> Result<(), ExecutionError> {
        done(self.ask(Request::Submit { set, promise }).await)
    }

    /// Takes the next result of a join set.
    pub async fn next(&self, set: u32, timeout_ms: Option<u64>) -> Result<Taken, ExecutionError> {
        match self.ask(Request::Next { set, timeout_ms }).await {
            Answer::Taken(taken) => Ok(taken),
            other => Err(refusal(other)),
        }
    }

    /// Cancels what is under way in a join set.
    pub async fn close(&self, set: u32) -> Result<(), ExecutionError> {
        done(self.ask(Request::Close { set }).await)
    }

    /// Waits for a signal.
    pub async fn signal(&self, name: &str, timeout_ms: Option<u64>) -> Result<Option<Payload>, ExecutionError> {
        let name: Name = name.parse().map_err(|error| misuse(&format!("{error}")))?;
        match self.ask(Request::Signal { name, timeout_ms }).await {
            Answer::Signal(payload) => Ok(payload),
            other => Err(refusal(other)),
        }
    }

    /// Reads the clock.
    pub async fn now(&self) -> Result<Timestamp, ExecutionError> {
        match self.ask(Request::Now).await {
            Answer::Time(time) => Ok(time),
            other => Err(refusal(other)),
        }
    }

    /// Draws entropy.
    pub async fn random(&self, length: u32) -> Result<Arc<[u8]>, ExecutionError> {
        match self.ask(Request::Random { length }).await {
            Answer::Random(bytes) => Ok(bytes),
            other => Err(refusal(other)),
        }
    }

    /// Whether the script was told of cancellation.
    pub async fn is_cancelled(&self) -> bool {
        matches!(self.ask(Request::IsCancelled).await, Answer::Flag(true))
    }

    /// Starts anew with this input when the script ends.
    pub async fn continue_as_new(&self, input: Payload) -> Result<(), ExecutionError> {
        done(self.ask(Request::ContinueAsNew { input }).await)
    }
}

fn number(answer: Answer) -> Result<u32, ExecutionError> {
    match answer {
        Answer::Promise(number) => Ok(number),
        other => Err(refusal(other)),
    }
}

fn done(answer: Answer) -> Result<(), ExecutionError> {
    match answer {
        Answer::Done => Ok(()),
        other => Err(refusal(other)),
    }
}

fn refusal(answer: Answer) -> ExecutionError {
    match answer {
        Answer::Refused(error) => error,
        other => misuse(&format!("an answer to another question: {other:?}")),
    }
}

fn misuse(message: &str) -> ExecutionError {
    ExecutionError::named("misuse", message).permanent()
}
