//! Scenarios for crash tests: a workflow, its input, and external events.

/// A workflow, its input, and external events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) function: &'static str,
    pub(crate) input: &'static str,
    pub(crate) act: Act,
}

/// An external event. After a crash it is repeated under the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Nothing,
    /// Sends a signal before the workflow runs.
    SignalFirst(&'static str, &'static str),
    /// Sends a signal once the workflow waits for one.
    Signal(&'static str, &'static str),
    /// Cancels it once it waits for a signal.
    Cancel,
}

const fn scenario(
    name: &'static str,
    function: &'static str,
    input: &'static str,
    act: Act,
) -> Scenario {
    Scenario {
        name,
        function,
        input,
        act,
    }
}

const APPROVAL: &str = r#"{"approved":true,"by":"grace"}"#;

/// Every workflow that the examples have, but for those that never end.
pub(crate) const SCENARIOS: [Scenario; 19] = [
    scenario(
        "order",
        "order",
        r#"{"customer":"ada","item":"tea","quantity":2}"#,
        Act::SignalFirst("approval", APPROVAL),
    ),
    scenario("full example", "full_example", r#"{"id":42}"#, Act::Nothing),
    scenario(
        "buffered signal",
        "buffered_signal",
        r#"{"order":7}"#,
        Act::SignalFirst("user_approval", APPROVAL),
    ),
    scenario(
        "blocking signal",
        "blocking_signal",
        r#"{"order":7}"#,
        Act::Signal("user_approval", APPROVAL),
    ),
    scenario("chain", "chain", r#"{"steps":5,"work":3}"#, Act::Nothing),
    scenario("fan-out", "fan_out", r#"{"steps":4}"#, Act::Nothing),
    scenario("parent", "parent", "5", Act::Nothing),
    scenario("saga", "saga", r#""seat""#, Act::Signal("commit", "true")),
    scenario("cancelled saga", "saga", r#""seat""#, Act::Cancel),
    scenario("counter", "counter", "3", Act::Nothing),
    scenario(
        "counter with more",
        "counter",
        "1",
        Act::SignalFirst("add", "1"),
    ),
    scenario("sleeper", "sleeper", "30", Act::Nothing),
    scenario("waiter", "waiter", r#"{"timeout_ms":30}"#, Act::Nothing),
    scenario("flaky", "persistent", r#"{"count":2}"#, Act::Nothing),
    scenario(
        "flaky for good",
        "persistent",
        r#"{"count":2,"non_retryable":true}"#,
        Act::Nothing,
    ),
    scenario("fail", "fail", r#""card_declined""#, Act::Nothing),
    scenario("trap", "trap", "null", Act::Nothing),
    scenario(
        "native task",
        "call_native",
        r#"{"function":"native_echo","input":[1]}"#,
        Act::Nothing,
    ),
    scenario("echo", "echo", r#"{"a":[1]}"#, Act::Nothing),
];

/// A task that is never repeated: what a crash leaves unknown is reported as being in doubt.
pub(crate) const AT_MOST_ONCE: Scenario = scenario(
    "at most once",
    "call_native",
    r#"{"function":"step","input":"work","at_most_once":true}"#,
    Act::Nothing,
);
