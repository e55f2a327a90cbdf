//! The interface `workflow`, which only workflows can call. Each call is one request to the engine.

use onward_execution::{AwaitMode, GuestRequest, GuestResponse, JoinSetNext};
use onward_journal::ExecutionError;
use wasmtime::Result;

use super::convert::parse_guest_name;
use super::{EngineResult, GuestState, HostResult};
use crate::bindings::types::Failure;
use crate::bindings::workflow::{Host, Options, Taken as GuestTaken, Target};
use crate::guest_error::GuestStop;

type GuestOutcome = std::result::Result<String, Failure>;

impl Host for GuestState {
    async fn invoke(&mut self, target: Target, input: String, options: Options) -> HostResult<u32> {
        match self.to_invoke_request(&target, &input, options) {
            Ok(request) => {
                to_host_result(self.request_engine("invoke", request, EXPECT_PROMISE).await)
            }
            Err(error) => {
                self.yield_after_copy(input.len()).await;
                Ok(Err(error.into()))
            }
        }
    }

    async fn timer(&mut self, duration_ms: u64) -> HostResult<u32> {
        to_host_result(
            self.request_engine(
                "timer",
                GuestRequest::ScheduleTimer { duration_ms },
                EXPECT_PROMISE,
            )
            .await,
        )
    }

    async fn await_one(&mut self, promise: u32) -> Result<GuestOutcome> {
        let request = GuestRequest::Await {
            promises: vec![promise],
            wait: AwaitMode::One,
        };
        let outcome = |answer| {
            if let GuestResponse::Outcome(result) = answer {
                Some(result)
            } else {
                None
            }
        };
        let result = self.request_engine("await-one", request, outcome).await?;
        Ok(self.to_guest_outcome(result.and_then(|result| result)))
    }

    async fn await_any(&mut self, promises: Vec<u32>) -> HostResult<(u32, GuestOutcome)> {
        let request = GuestRequest::Await {
            promises,
            wait: AwaitMode::Any,
        };
        let first = |answer| {
            if let GuestResponse::First(place, result) = answer {
                Some((place, result))
            } else {
                None
            }
        };
        let first = self.request_engine("await-any", request, first).await?;
        Ok(first
            .map(|(place, result)| (place, self.to_guest_outcome(result)))
            .map_err(Failure::from))
    }

    async fn await_all(&mut self, promises: Vec<u32>) -> HostResult<Vec<GuestOutcome>> {
        let request = GuestRequest::Await {
            promises,
            wait: AwaitMode::All,
        };
        let results = |answer| {
            if let GuestResponse::Outcomes(results) = answer {
                Some(results)
            } else {
                None
            }
        };
        let results = self.request_engine("await-all", request, results).await?;
        let outcomes = results.map(|results| {
            results
                .into_iter()
                .map(|result| self.to_guest_outcome(result))
                .collect()
        });
        Ok(outcomes.map_err(Failure::from))
    }

    async fn new_join_set(&mut self) -> HostResult<u32> {
        to_host_result(
            self.request_engine("new-join-set", GuestRequest::CreateJoinSet, EXPECT_PROMISE)
                .await,
        )
    }

    async fn submit(&mut self, set: u32, promise: u32) -> HostResult<()> {
        to_host_result(
            self.request_engine(
                "submit",
                GuestRequest::SubmitToJoinSet { set, promise },
                EXPECT_DONE,
            )
            .await,
        )
    }

    async fn next(&mut self, set: u32, timeout_ms: Option<u64>) -> HostResult<GuestTaken> {
        let taken = |answer| {
            if let GuestResponse::NextResult(taken) = answer {
                Some(taken)
            } else {
                None
            }
        };
        let taken = self
            .request_engine("next", GuestRequest::NextResult { set, timeout_ms }, taken)
            .await?;
        Ok(taken
            .map(|taken| self.to_guest_taken(taken))
            .map_err(Failure::from))
    }

    async fn close(&mut self, set: u32) -> HostResult<()> {
        to_host_result(
            self.request_engine("close", GuestRequest::CloseJoinSet { set }, EXPECT_DONE)
                .await,
        )
    }

    async fn await_signal(
        &mut self,
        name: String,
        timeout_ms: Option<u64>,
    ) -> HostResult<Option<String>> {
        Ok(self
            .await_signal_payload(&name, timeout_ms)
            .await?
            .map_err(Failure::from))
    }

    async fn is_cancelled(&mut self) -> Result<bool> {
        let flag = |answer| {
            if let GuestResponse::Boolean(flag) = answer {
                Some(flag)
            } else {
                None
            }
        };
        self.request_or_stop("is-cancelled", GuestRequest::IsCancelled, flag)
            .await
    }

    async fn continue_as_new(&mut self, input: String) -> Result<()> {
        let input = self
            .parse_guest_payload("the input", &input)
            .map_err(GuestStop)?;
        self.request_or_stop(
            "continue-as-new",
            GuestRequest::ContinueAsNew { input },
            EXPECT_DONE,
        )
        .await
    }
}

impl GuestState {
    async fn await_signal_payload(
        &mut self,
        signal: &str,
        timeout_ms: Option<u64>,
    ) -> EngineResult<Option<String>> {
        let name = match parse_guest_name(signal) {
            Ok(name) => name,
            Err(error) => return Ok(Err(error)),
        };
        let payload = |answer| {
            if let GuestResponse::Signal(payload) = answer {
                Some(payload)
            } else {
                None
            }
        };
        let payload = self
            .request_engine(
                "await-signal",
                GuestRequest::AwaitSignal { name, timeout_ms },
                payload,
            )
            .await?;
        Ok(payload.and_then(|payload| {
            payload
                .map(|payload| self.to_guest_payload("a signal", &payload))
                .transpose()
        }))
    }

    fn to_guest_taken(&self, taken: JoinSetNext) -> GuestTaken {
        match taken {
            JoinSetNext::Result(promise, result) => {
                GuestTaken::Done((promise, self.to_guest_outcome(result)))
            }
            JoinSetNext::TimedOut => GuestTaken::TimedOut,
            JoinSetNext::Empty => GuestTaken::Empty,
        }
    }
}

/// Extract the response of the most common requests: those that create a promise, and those that
/// return nothing.
const EXPECT_PROMISE: fn(GuestResponse) -> Option<u32> = |answer| {
    if let GuestResponse::Promise(number) = answer {
        Some(number)
    } else {
        None
    }
};
const EXPECT_DONE: fn(GuestResponse) -> Option<()> =
    |answer| matches!(answer, GuestResponse::Done).then_some(());

fn to_host_result<T>(asked: EngineResult<T>) -> HostResult<T> {
    asked.map(|answer| answer.map_err(|error: ExecutionError| error.into()))
}
