//! Workflows written as Rust futures: for tests, for simulation, and for programs that bring their
//! own workflows.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use onward_base::{BoundedName, Payload, Timestamp};
use onward_journal::{DeliveryGuarantee, ExecutionError, InvokeKind, InvokeResult, RetryPolicy};

use crate::{AwaitMode, Guest, GuestRequest, GuestResponse, GuestTurn, JoinSetNext};

/// A guest that is a Rust future. The future must be deterministic: it may only use its
/// [`ScriptHost`], and must take the same path whenever it receives the same responses.
pub struct ScriptedGuest {
    future: Pin<Box<dyn Future<Output = InvokeResult> + Send>>,
    host: ScriptHost,
}

/// The host functions that a script calls.
#[derive(Debug, Clone, Default)]
pub struct ScriptHost(Arc<Mutex<ScriptChannel>>);

#[derive(Debug, Default)]
struct ScriptChannel {
    request: Option<GuestRequest>,
    answer: Option<GuestResponse>,
}

impl ScriptedGuest {
    /// Creates a guest that runs the future that `script` returns.
    pub fn new<F: Future<Output = InvokeResult> + Send + 'static>(
        script: impl FnOnce(ScriptHost) -> F,
    ) -> Self {
        let line = ScriptHost::default();
        Self {
            future: Box::pin(script(line.clone())),
            host: line,
        }
    }
}

impl Guest for ScriptedGuest {
    fn resume_guest(&mut self, answer: Option<GuestResponse>) -> GuestTurn {
        self.host.lock_channel().answer = answer;
        match self
            .future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(result) => GuestTurn::Completed(result),
            Poll::Pending => self
                .host
                .lock_channel()
                .request
                .take()
                .map_or(GuestTurn::Paused, GuestTurn::Requested),
        }
    }
}

impl ScriptHost {
    fn lock_channel(&self) -> MutexGuard<'_, ScriptChannel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and waits for the response.
    pub async fn send_request(&self, request: GuestRequest) -> GuestResponse {
        self.lock_channel().request = Some(request);
        poll_fn(|_| {
            self.lock_channel()
                .answer
                .take()
                .map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Schedules a function with the default retry policy and at-least-once delivery. Returns the
    /// number of its promise without waiting for the result.
    pub async fn schedule_function(
        &self,
        function: &str,
        input: Payload,
    ) -> Result<u32, ExecutionError> {
        self.schedule_with_policy(function, input, None, DeliveryGuarantee::AtLeastOnce)
            .await
    }

    /// Schedules a function with this retry policy and delivery guarantee. Returns the number of
    /// its promise without waiting for the result.
    pub async fn schedule_with_policy(
        &self,
        function: &str,
        input: Payload,
        policy: Option<Box<RetryPolicy>>,
        delivery: DeliveryGuarantee,
    ) -> Result<u32, ExecutionError> {
        let function: BoundedName = function
            .parse()
            .map_err(|error| misuse_error(&format!("{error}")))?;
        let kind = InvokeKind::Function;
        expect_promise(
            self.send_request(GuestRequest::Invoke {
                kind,
                function,
                input,
                policy,
                delivery,
            })
            .await,
        )
    }

    /// Schedules a function with the defaults and waits for its result.
    pub async fn invoke_function(&self, function: &str, input: Payload) -> InvokeResult {
        let promise = self.schedule_function(function, input).await?;
        self.await_promise(promise).await
    }

    /// Waits for a promise and returns its outcome; the outcome of a timer is `null`.
    pub async fn await_promise(&self, promise: u32) -> InvokeResult {
        match self
            .send_request(GuestRequest::Await {
                promises: vec![promise],
                wait: AwaitMode::One,
            })
            .await
        {
            GuestResponse::Outcome(outcome) => outcome,
            other => Err(refusal_error(other)),
        }
    }

    /// Waits for the first of several promises. Returns its index in `promises` and its outcome.
    pub async fn await_any(&self, promises: &[u32]) -> Result<(u32, InvokeResult), ExecutionError> {
        match self
            .send_request(GuestRequest::Await {
                promises: promises.to_vec(),
                wait: AwaitMode::Any,
            })
            .await
        {
            GuestResponse::First(place, outcome) => Ok((place, outcome)),
            other => Err(refusal_error(other)),
        }
    }

    /// Waits for all promises. Returns their outcomes in the order of `promises`.
    pub async fn await_all(&self, promises: &[u32]) -> Result<Vec<InvokeResult>, ExecutionError> {
        match self
            .send_request(GuestRequest::Await {
                promises: promises.to_vec(),
                wait: AwaitMode::All,
            })
            .await
        {
            GuestResponse::Outcomes(outcomes) => Ok(outcomes),
            other => Err(refusal_error(other)),
        }
    }

    /// Schedules a timer and returns the number of its promise.
    pub async fn schedule_timer(&self, duration_ms: u64) -> Result<u32, ExecutionError> {
        expect_promise(
            self.send_request(GuestRequest::ScheduleTimer { duration_ms })
                .await,
        )
    }

    /// Schedules a timer and waits until it fires.
    pub async fn sleep(&self, duration_ms: u64) -> Result<(), ExecutionError> {
        let timer = self.schedule_timer(duration_ms).await?;
        self.await_promise(timer).await.map(drop)
    }

    /// Creates a join set and returns its number.
    pub async fn create_join_set(&self) -> Result<u32, ExecutionError> {
        expect_promise(self.send_request(GuestRequest::CreateJoinSet).await)
    }

    /// Submits an invocation to a join set. Fails if a result was already taken from the set or the
    /// invocation is already in one.
    pub async fn submit_to_join_set(&self, set: u32, promise: u32) -> Result<(), ExecutionError> {
        expect_done(
            self.send_request(GuestRequest::SubmitToJoinSet { set, promise })
                .await,
        )
    }

    /// Takes the next result of a join set, and waits for it at most `timeout_ms` milliseconds.
    pub async fn next_result(
        &self,
        set: u32,
        timeout_ms: Option<u64>,
    ) -> Result<JoinSetNext, ExecutionError> {
        match self
            .send_request(GuestRequest::NextResult { set, timeout_ms })
            .await
        {
            GuestResponse::NextResult(taken) => Ok(taken),
            other => Err(refusal_error(other)),
        }
    }

    /// Cancels the unfinished operations of a join set.
    pub async fn close_join_set(&self, set: u32) -> Result<(), ExecutionError> {
        expect_done(self.send_request(GuestRequest::CloseJoinSet { set }).await)
    }

    /// Waits for a signal, at most `timeout_ms` milliseconds. Returns `None` if the timeout passed
    /// first.
    pub async fn await_signal(
        &self,
        name: &str,
        timeout_ms: Option<u64>,
    ) -> Result<Option<Payload>, ExecutionError> {
        let name: BoundedName = name
            .parse()
            .map_err(|error| misuse_error(&format!("{error}")))?;
        match self
            .send_request(GuestRequest::AwaitSignal { name, timeout_ms })
            .await
        {
            GuestResponse::Signal(payload) => Ok(payload),
            other => Err(refusal_error(other)),
        }
    }

    /// Reads the clock; a replay returns the recorded time.
    pub async fn now(&self) -> Result<Timestamp, ExecutionError> {
        match self.send_request(GuestRequest::ReadClock).await {
            GuestResponse::Time(time) => Ok(time),
            other => Err(refusal_error(other)),
        }
    }

    /// Draws random bytes; a replay returns the recorded ones. Fails if `length` is more than 4096.
    pub async fn random_bytes(&self, length: u32) -> Result<Arc<[u8]>, ExecutionError> {
        match self.send_request(GuestRequest::Random { length }).await {
            GuestResponse::Random(bytes) => Ok(bytes),
            other => Err(refusal_error(other)),
        }
    }

    /// Returns whether cancellation interrupted one of the script's awaits.
    pub async fn is_cancelled(&self) -> bool {
        matches!(
            self.send_request(GuestRequest::IsCancelled).await,
            GuestResponse::Boolean(true)
        )
    }

    /// Continues as a new execution with this input when the script ends.
    pub async fn continue_as_new(&self, input: Payload) -> Result<(), ExecutionError> {
        expect_done(
            self.send_request(GuestRequest::ContinueAsNew { input })
                .await,
        )
    }
}

fn expect_promise(answer: GuestResponse) -> Result<u32, ExecutionError> {
    match answer {
        GuestResponse::Promise(number) => Ok(number),
        other => Err(refusal_error(other)),
    }
}

fn expect_done(answer: GuestResponse) -> Result<(), ExecutionError> {
    match answer {
        GuestResponse::Done => Ok(()),
        other => Err(refusal_error(other)),
    }
}

fn refusal_error(answer: GuestResponse) -> ExecutionError {
    match answer {
        GuestResponse::Refused(error) => error,
        other => misuse_error(&format!("an answer to another question: {other:?}")),
    }
}

fn misuse_error(message: &str) -> ExecutionError {
    ExecutionError::from_kind_name("misuse", message).into_permanent()
}
