//! The protocol between a guest and its host. A guest is a coroutine: it runs until it makes a
//! request or ends, and resumes with the response. It has no other access to the outside.

use std::sync::Arc;

use onward_base::{BoundedName, Payload, SharedText, Timestamp};
use onward_journal::{DeliveryGuarantee, ExecutionError, InvokeKind, InvokeResult, RetryPolicy};

/// A running workflow: a WASM instance, or a script in a test.
pub trait Guest: Send {
    /// Runs the guest until it makes a request, ends, or has used up its time slice.
    ///
    /// `answer` is `None` in the first call and after [`GuestTurn::Paused`]; after
    /// [`GuestTurn::Requested`] it is the response to that request.
    fn resume_guest(&mut self, answer: Option<GuestResponse>) -> GuestTurn;
}

/// Why a guest returned control to its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestTurn {
    /// The guest made a request and waits for the response.
    Requested(GuestRequest),
    /// The guest has more to do, but has used up its time slice: other guests should run first.
    Paused,
    /// The machine has no room for the guest: a new guest has to replay the journal later.
    Evicted,
    /// The guest returned, or was stopped.
    Completed(InvokeResult),
}

/// A request of a guest. Promises and join sets are identified by their number among the operations
/// of the execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestRequest {
    /// Schedule an invocation. The response is [`GuestResponse::Promise`].
    Invoke {
        /// The target of the invocation: a function or an HTTP request.
        kind: InvokeKind,
        /// The name of the function, or `METHOD URL` for an HTTP request.
        function: BoundedName,
        /// The input of the invocation.
        input: Payload,
        /// The retry policy; `None` means the default policy.
        policy: Option<Box<RetryPolicy>>,
        /// Whether the invocation may be repeated after a crash.
        delivery: DeliveryGuarantee,
    },
    /// Schedule a timer. The response is [`GuestResponse::Promise`].
    ScheduleTimer {
        /// Time until the timer fires, in milliseconds.
        duration_ms: u64,
    },
    /// Wait for promises. The response is [`GuestResponse::Outcome`], [`GuestResponse::First`] or
    /// [`GuestResponse::Outcomes`], depending on `wait`.
    Await {
        /// The numbers of the promises: at least one, and none twice.
        promises: Vec<u32>,
        /// How many of the promises must complete.
        wait: AwaitMode,
    },
    /// Create a join set. The response is [`GuestResponse::Promise`].
    CreateJoinSet,
    /// Submit an invocation to a join set. The response is [`GuestResponse::Done`].
    SubmitToJoinSet {
        /// The number of the join set.
        set: u32,
        /// The number of the invocation.
        promise: u32,
    },
    /// Take the next result of a join set. The response is [`GuestResponse::NextResult`].
    NextResult {
        /// The number of the join set.
        set: u32,
        /// Timeout of the wait, in milliseconds; `None` means no timeout.
        timeout_ms: Option<u64>,
    },
    /// Cancel the unfinished operations of a join set. The response is [`GuestResponse::Done`].
    CloseJoinSet {
        /// The number of the join set.
        set: u32,
    },
    /// Wait for a signal. The response is [`GuestResponse::Signal`].
    AwaitSignal {
        /// The name of the signal.
        name: BoundedName,
        /// Timeout of the wait, in milliseconds; `None` means no timeout.
        timeout_ms: Option<u64>,
    },
    /// Read the clock. The response is [`GuestResponse::Time`].
    ReadClock,
    /// Draw random bytes. The response is [`GuestResponse::Random`].
    Random {
        /// The number of bytes, at most 4096.
        length: u32,
    },
    /// Ask whether cancellation interrupted one of the guest's awaits. The response is
    /// [`GuestResponse::Boolean`].
    IsCancelled,
    /// Continue as a new execution with this input when the guest ends. The response is
    /// [`GuestResponse::Done`].
    ContinueAsNew {
        /// The input of the new execution.
        input: Payload,
    },
    /// Write a log message. The response is [`GuestResponse::Done`].
    Log {
        /// The severity of the message.
        level: GuestLogLevel,
        /// The text of the message.
        message: SharedText,
    },
}

/// How many of the promises of an await must complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitMode {
    /// The only promise of the await must complete.
    One,
    /// The first promise that completes ends the await.
    Any,
    /// All promises must complete.
    All,
}

/// The severity of a log message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GuestLogLevel {
    /// Details for finding a defect.
    Debug,
    /// General information.
    Info,
    /// Something unexpected happened.
    Warn,
    /// Something failed.
    Error,
}

/// The host's response to a request of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestResponse {
    /// The number of the operation that the request began.
    Promise(u32),
    /// The outcome of the promise; the outcome of a timer is `null`.
    Outcome(InvokeResult),
    /// The index in the list of the promise that completed first, and its outcome.
    First(u32, InvokeResult),
    /// The outcomes of the promises, in the order of the list.
    Outcomes(Vec<InvokeResult>),
    /// The next result of a join set, or why there is none.
    NextResult(JoinSetNext),
    /// The payload of the signal; `None` if the timeout passed first.
    Signal(Option<Payload>),
    /// The time that was read from the clock.
    Time(Timestamp),
    /// The random bytes that were drawn.
    Random(Arc<[u8]>),
    /// The answer to a yes-or-no request.
    Boolean(bool),
    /// The request was carried out and has no value.
    Done,
    /// The request was refused: it is invalid in this state or exceeds a limit, or cancellation
    /// interrupted the wait.
    Refused(ExecutionError),
}

/// The outcome of taking the next result of a join set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinSetNext {
    /// The number of the invocation, and its result.
    Result(u32, InvokeResult),
    /// No result arrived before the timeout.
    TimedOut,
    /// All results of the join set were already taken.
    Empty,
}
