//! Failures as a workflow receives them: kind, message and `retryable` are unchanged; failures of
//! the engine have its messages.

use std::num::ParseIntError;

use onward::prelude::*;
use onward::testing::TestEnv;
use onward::{HttpResponse, call_named};

const SECOND: Duration = Duration::from_secs(1);

#[task]
fn decline(is_final: bool) -> Result<u64> {
    Err(declined(is_final))
}

#[workflow]
fn decline_as_child(is_final: bool) -> Result<u64> {
    Err(declined(is_final))
}

fn declined(is_final: bool) -> Error {
    let error = Error::new(
        "card_declined",
        "the bank refused: ünïcödé\nand a second line",
    );
    if is_final {
        error.non_retryable()
    } else {
        error
    }
}

#[workflow]
fn by_task(is_final: bool) -> Result<u64> {
    call(decline, is_final)
        .retry(RetryPolicy::max_attempts(2))
        .run()
}

#[workflow]
fn by_child(is_final: bool) -> Result<u64> {
    call(decline_as_child, is_final)
        .retry(RetryPolicy::max_attempts(2))
        .run()
}

#[workflow]
fn by_set(is_final: bool) -> Result<u64> {
    let mut set = join_set()?;
    set.submit_call(call(decline, is_final).retry(RetryPolicy::no_retries()))?;
    match set.next()? {
        Some(done) => done.result,
        None => Ok(0),
    }
}

#[test]
fn a_failure_arrives_unchanged() {
    let mut env = TestEnv::new();
    for is_final in [true, false] {
        assert_eq!(
            env.crash_everywhere(by_task, is_final),
            Err(declined(is_final))
        );
        assert_eq!(env.call_count(decline), if is_final { 1 } else { 2 });
        assert_eq!(
            env.crash_everywhere(by_child, is_final),
            Err(declined(is_final))
        );
        assert_eq!(
            env.call_count(decline_as_child),
            if is_final { 1 } else { 2 }
        );
        assert_eq!(
            env.crash_everywhere(by_set, is_final),
            Err(declined(is_final))
        );
    }
}

#[task]
fn parse(text: String) -> Result<u64, ParseIntError> {
    text.parse()
}

#[workflow]
fn parsed(text: String) -> Result<u64> {
    call(parse, text).retry(RetryPolicy::no_retries()).run()
}

#[test]
fn any_error_of_a_task_is_a_user_error() {
    let mut env = TestEnv::new();
    assert_eq!(
        env.run(parsed, "x"),
        Err(Error::other("invalid digit found in string"))
    );
    assert_eq!(env.run(parsed, "12"), Ok(12));
}

#[test]
fn a_plain_call_returns_the_error_itself() {
    fn twice(text: &str) -> Result<u64> {
        Ok(2 * parse(text.to_owned())?)
    }
    assert_eq!(twice("21"), Ok(42));
    assert!(twice("x").is_err_and(|error| error.has_kind("user_error")));
    let failed = parse("x".to_owned()).unwrap_err();
    assert_eq!(failed.kind(), &std::num::IntErrorKind::InvalidDigit);
    assert_eq!(failed.to_string(), "invalid digit found in string");
    assert_eq!(decline(true).unwrap_err(), declined(true));
    assert_eq!(decline(true).unwrap_err().into_inner(), declined(true));
}

#[task]
fn nameless(kind: String) -> Result<()> {
    Err(Error::new(kind, "x".repeat(20_000)).non_retryable())
}

#[workflow]
fn by_nameless(kind: String) -> Result<()> {
    invoke(nameless, kind)
}

#[test]
fn an_invalid_kind_becomes_user_error_and_a_long_message_is_truncated() {
    for (kind, expected) in [
        ("", "user_error"),
        ("a\nb", "user_error"),
        ("own kind", "own kind"),
    ] {
        let error = TestEnv::new().run(by_nameless, kind).unwrap_err();
        assert_eq!((error.kind.as_str(), error.retryable), (expected, false));
        assert_eq!(error.message, "x".repeat(16 << 10) + "…");
    }
}

const URL: &str = "GET https://api.example.com/a";

#[workflow]
fn asks() -> Result<u16> {
    Ok(http(URL)
        .into_call()
        .retry(RetryPolicy::max_attempts(3))
        .run()?
        .status)
}

#[task]
fn asks_in_task() -> Result<String> {
    http(URL).send()?.successful()?.text()
}

#[workflow]
fn asks_by_task() -> Result<String> {
    call(asks_in_task, ())
        .retry(RetryPolicy::max_attempts(3))
        .run()
}

#[test]
fn a_workflow_receives_responses_and_failures_of_requests() {
    let mut env = TestEnv::new();
    env.stub_http(URL, |_| Ok(HttpResponse::new(404, "nothing")));
    assert_eq!(env.crash_everywhere(asks, ()), Ok(404));
    for status in [408, 429, 500, 503] {
        env.stub_http(URL, move |_| Ok(HttpResponse::new(status, "")));
        let message = format!("{URL} answered with status {status}");
        assert_eq!(
            env.crash_everywhere(asks, ()),
            Err(Error::new("http_status", message))
        );
        assert_eq!(env.elapsed(), 3 * SECOND);
    }
    let denied = || {
        Error::new(
            "http_denied",
            "requests to `api.example.com:443` are not allowed",
        )
        .non_retryable()
    };
    env.stub_http(URL, move |_| Err(denied()));
    assert_eq!(env.crash_everywhere(asks, ()), Err(denied()));
    assert_eq!(env.elapsed(), Duration::ZERO);
}

#[test]
fn a_task_receives_every_response_and_decides_what_is_a_failure() {
    let mut env = TestEnv::new();
    env.stub_http(URL, |_| Ok(HttpResponse::new(404, "nothing")));
    assert_eq!(
        env.crash_everywhere(asks_by_task, ()),
        Err(Error::new("http_404", "nothing").non_retryable())
    );
    assert_eq!(env.call_count(asks_in_task), 1);
    env.stub_http(URL, |_| Ok(HttpResponse::new(503, "busy")));
    assert_eq!(
        env.crash_everywhere(asks_by_task, ()),
        Err(Error::new("http_503", "busy"))
    );
    assert_eq!(env.call_count(asks_in_task), 3);
}

#[test]
fn every_request_carries_the_key_of_its_operation() {
    let mut env = TestEnv::new();
    env.stub_http(URL, |request| {
        let keys: Vec<_> = request
            .headers
            .iter()
            .filter(|(name, _)| name == "idempotency-key")
            .collect();
        Ok(HttpResponse::new(200, format!("{keys:?}")))
    });
    assert_eq!(
        env.run(asks_by_task, ()),
        Ok(r#"[("idempotency-key", "test.0")]"#.to_owned())
    );
    assert_eq!(env.run(asks, ()), Ok(200));
}

/// Asks three times, the second time under a key of its own, and fails once.
#[task]
fn asks_thrice() -> Result<Vec<String>> {
    let asked = [
        http(URL),
        http(URL).header("Idempotency-Key", "mine"),
        http(URL),
    ];
    let keys = asked
        .into_iter()
        .map(|request| request.send()?.text())
        .collect::<Result<Vec<_>>>()?;
    info!("{}", keys.join(" "));
    if call_context().attempt == 1 {
        Err(Error::other("again"))
    } else {
        Ok(keys)
    }
}

#[workflow]
fn asks_thrice_by_task() -> Result<Vec<String>> {
    invoke(asks_thrice, ())
}

#[test]
fn each_request_of_a_task_has_its_own_key_and_attempts_repeat_the_keys() {
    let mut env = TestEnv::new();
    env.stub_http(URL, |request| {
        let mut keys = request
            .headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("idempotency-key"));
        Ok(HttpResponse::new(
            200,
            keys.next().map_or("", |(_, key)| key),
        ))
    });
    let keys = ["test.0", "mine", "test.0/3"].map(str::to_owned);
    assert_eq!(env.run(asks_thrice_by_task, ()), Ok(keys.to_vec()));
    let keys: Vec<&str> = env
        .log_messages()
        .iter()
        .map(|(_, message)| message.as_str())
        .collect();
    assert_eq!(keys, ["test.0 mine test.0/3"; 2]);
}

#[workflow]
fn cookies() -> Result<Vec<(String, String)>> {
    Ok(http(URL).send()?.headers)
}

#[test]
fn a_repeated_header_keeps_all_values() {
    let mut env = TestEnv::new();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    env.stub_http(URL, move |_| {
        let headers = vec![
            pair("Set-Cookie", "b=1; Path=/, x"),
            pair("etag", "e"),
            pair("set-cookie", "a=2"),
        ];
        Ok(HttpResponse {
            headers,
            ..HttpResponse::new(200, "")
        })
    });
    let expected = vec![
        pair("etag", "e"),
        pair("set-cookie", "b=1; Path=/, x"),
        pair("set-cookie", "a=2"),
    ];
    assert_eq!(env.crash_everywhere(cookies, ()), Ok(expected));
}

#[test]
fn a_response_is_recorded_as_the_engine_records_it() {
    let recorded = r#"{"status":200,"headers":{"etag":"e","set-cookie":["b","a"]},"body":"text"}"#;
    let response: HttpResponse = serde_json::from_str(recorded).unwrap();
    assert_eq!(
        (response.header("ETag"), response.header("set-cookie")),
        (Some("e"), Some("b"))
    );
    assert_eq!(response.headers.len(), 3);
    assert_eq!(serde_json::to_string(&response).unwrap(), recorded);
}

#[workflow]
fn malformed() -> Result<u16> {
    Ok(http("https://api.example.com").send()?.status)
}

#[workflow]
fn misuses(which: u32) -> Result<()> {
    let promise = timer(SECOND)?;
    let mut set = join_set()?;
    let factor = || RetryPolicy::no_retries().factor_permille(999);
    match which {
        0 => all(&[promise, promise]).map(drop),
        1 => set.add(promise),
        2 => call(decline, true).retry(factor()).run().map(drop),
        3 => call(decline, true)
            .retry(RetryPolicy::no_retries().jitter_permille(1_001))
            .run()
            .map(drop),
        4 => call_named("", &()).run(),
        5 => await_signal(""),
        _ => any::<()>(&[]).map(drop),
    }
}

#[test]
fn invalid_calls_are_refused_with_the_messages_of_the_engine() {
    let name = "`` is not a name: expected 1 to 1024 bytes without control characters";
    let expected = [
        ("misuse", "promise 0 is named twice"),
        ("misuse", "operation 0 is not an invocation"),
        (
            "invalid_policy",
            "`factor-permille` must be from 1000 to 1000000",
        ),
        ("invalid_policy", "`jitter-permille` must be from 0 to 1000"),
        ("invalid_name", name),
        ("invalid_name", name),
        ("misuse", "there is nothing to wait for"),
    ];
    for (which, (kind, message)) in (0..).zip(expected) {
        assert_eq!(
            TestEnv::new().run(misuses, which),
            Err(Error::new(kind, message).non_retryable())
        );
    }
    let error = TestEnv::new().run(malformed, ()).unwrap_err();
    assert_eq!(
        (error.kind.as_str(), error.retryable),
        ("http_invalid", false)
    );
}

#[workflow]
fn elsewhere(n: u64) -> Result<u64> {
    call_named("of_another_component", &n)
        .retry(RetryPolicy::max_attempts(2))
        .run()
}

#[test]
fn a_call_by_name_uses_a_stub_by_name() {
    let mut env = TestEnv::new();
    env.stub_named("of_another_component", |n: u64| {
        match call_context().attempt {
            1 => Err(Error::new("busy", "once")),
            _ => Ok(n + 1),
        }
    });
    assert_eq!(env.crash_everywhere(elsewhere, 1), Ok(2));
}
