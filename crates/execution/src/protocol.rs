//! What a guest and its host say to each other. A guest is a coroutine: it runs until it asks for something or ends, and
//! goes on when it is answered. It knows nothing else.

use std::sync::Arc;

use onward_base::{BoundedName, Payload, SharedText, Timestamp};
use onward_journal::{DeliveryGuarantee, ExecutionError, InvokeKind, InvokeResult, RetryPolicy};

/// A workflow that runs: a WASM instance, or a script in a test.
pub trait Guest: Send {
    /// Runs until the guest asks for something, ends, or has used up its slice of time.
    ///
    /// The first call has no answer; each one after [`Turn::Asks`] has the answer to that request; the one after
    /// [`Turn::Pauses`] has none.
    fn resume_guest(&mut self, answer: Option<GuestResponse>) -> GuestTurn;
}

/// Why a guest handed control back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestTurn {
    /// It wants an answer.
    Requested(GuestRequest),
    /// It has more to do; others should have their turn first.
    Paused,
    /// It returned, or was stopped.
    Completed(InvokeResult),
}

/// Something a guest asks for. Promises and join sets go by their number among the operations of the execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestRequest {
    /// Have something done. Answered with [`Answer::Promise`].
    Invoke {
        /// A function, or an HTTP request.
        kind: InvokeKind,
        /// Its name; `METHOD URL` of a request.
        function: BoundedName,
        /// What it is called with.
        input: Payload,
        /// How it is retried; the default when absent.
        policy: Option<Box<RetryPolicy>>,
        /// Whether it may be repeated after a crash.
        delivery: DeliveryGuarantee,
    },
    /// Set a timer. Answered with [`Answer::Promise`].
    ScheduleTimer {
        /// In how many milliseconds it fires.
        duration_ms: u64,
    },
    /// Wait for promises. Answered with [`Answer::Outcome`], [`Answer::First`] or [`Answer::Outcomes`].
    Await {
        /// Which.
        promises: Vec<u32>,
        /// For how many of them.
        wait: AwaitMode,
    },
    /// Make a join set. Answered with [`Answer::Promise`].
    CreateJoinSet,
    /// Put an invocation into a join set. Answered with [`Answer::Done`].
    SubmitToJoinSet {
        /// The set.
        set: u32,
        /// The invocation.
        promise: u32,
    },
    /// Take the next result of a set. Answered with [`Answer::Taken`].
    NextResult {
        /// The set.
        set: u32,
        /// How long to wait at most.
        timeout_ms: Option<u64>,
    },
    /// Cancel what is under way in a set. Answered with [`Answer::Done`].
    CloseJoinSet {
        /// The set.
        set: u32,
    },
    /// Wait for a signal. Answered with [`Answer::Signal`].
    AwaitSignal {
        /// Its name.
        name: BoundedName,
        /// How long to wait at most.
        timeout_ms: Option<u64>,
    },
    /// Read the clock. Answered with [`Answer::Time`].
    ReadClock,
    /// Draw entropy. Answered with [`Answer::Random`].
    Random {
        /// How many bytes.
        length: u32,
    },
    /// Whether the guest was told of cancellation. Answered with [`Answer::Flag`].
    IsCancelled,
    /// Start anew with this input when the guest ends. Answered with [`Answer::Done`].
    ContinueAsNew {
        /// What the next execution is called with.
        input: Payload,
    },
    /// Say something. Answered with [`Answer::Done`].
    Log {
        /// How important it is.
        level: GuestLogLevel,
        /// What.
        message: SharedText,
    },
}

/// For how many promises an await waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitMode {
    /// The only one.
    One,
    /// The first.
    Any,
    /// All.
    All,
}

/// How important a line of a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GuestLogLevel {
    /// For whoever looks for a mistake.
    Debug,
    /// For whoever wants to know.
    Info,
    /// Something is odd.
    Warn,
    /// Something is wrong.
    Error,
}

/// What a guest is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestResponse {
    /// The number of the operation.
    Promise(u32),
    /// What the promise ended with; a timer ends with `null`.
    Outcome(InvokeResult),
    /// The place of the first promise in the list, and what it ended with.
    First(u32, InvokeResult),
    /// What the promises ended with, in the order of the list.
    Outcomes(Vec<InvokeResult>),
    /// The next result of a join set.
    NextResult(JoinSetNext),
    /// A signal; nothing when the time was over first.
    Signal(Option<Payload>),
    /// The time.
    Time(Timestamp),
    /// Entropy.
    Random(Arc<[u8]>),
    /// Yes or no.
    Boolean(bool),
    /// It is done.
    Done,
    /// It cannot be done: the request makes no sense here, or cancellation interrupted the wait.
    Refused(ExecutionError),
}

/// What taking from a join set came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinSetNext {
    /// Whose result, and the result.
    Result(u32, InvokeResult),
    /// None came in time.
    TimedOut,
    /// All were taken.
    Empty,
}
