//! Values over the size limits: each fails at once and permanently, with the message of the engine.

use onward::prelude::*;
use onward::testing::TestEnv;
use onward::{HttpResponse, call_named};

/// Number of characters of a text whose payload, two bytes longer, is at the limit.
const FITS: usize = (1 << 20) - 2;

#[task]
fn grow(length: usize) -> Result<String> {
    Ok("x".repeat(length))
}

#[task]
fn measure(text: String) -> Result<usize> {
    Ok(text.len())
}

#[workflow]
fn grown(length: usize) -> Result<usize> {
    Ok(invoke(grow, length)?.len())
}

#[workflow]
fn measured(length: usize) -> Result<usize> {
    invoke(measure, "x".repeat(length))
}

#[workflow]
fn large(length: usize) -> Result<String> {
    Ok("x".repeat(length))
}

#[workflow]
fn parent(length: usize) -> Result<usize> {
    Ok(invoke(large, length)?.len())
}

fn too_large(what: &str) -> Error {
    Error::new(
        "too_large",
        format!("{what} has 1048577 bytes, the limit is 1048576"),
    )
    .non_retryable()
}

#[test]
fn results_and_inputs_of_tasks_and_children_have_a_limit() {
    let mut env = TestEnv::new();
    assert_eq!(env.run(grown, FITS), Ok(FITS));
    assert_eq!(env.run(grown, FITS + 1), Err(too_large("the result")));
    assert_eq!(env.call_count(grow), 1, "it is not retried");
    assert_eq!(env.run(measured, FITS), Ok(FITS));
    assert_eq!(env.run(measured, FITS + 1), Err(too_large("the input")));
    assert_eq!(env.call_count(measure), 0, "it was not called");
    assert_eq!(env.run(parent, FITS), Ok(FITS));
    assert_eq!(env.run(parent, FITS + 1), Err(too_large("the result")));
    assert_eq!(env.call_count(large), 1);
}

#[test]
fn the_limits_apply_to_the_started_workflow() {
    let mut env = TestEnv::new();
    assert_eq!(env.run(large, FITS + 1), Err(too_large("the result")));
    assert_eq!(
        env.run(echo, "x".repeat(FITS + 1)),
        Err(too_large("the input"))
    );
    assert_eq!(
        env.run_attempt(measure, 1, "x".repeat(FITS + 1)),
        Err(too_large("the input"))
    );
    assert_eq!(
        env.run_attempt(grow, 1, FITS + 1),
        Err(too_large("the result"))
    );
}

#[workflow]
fn echo(text: String) -> Result<String> {
    Ok(text)
}

#[workflow]
fn regrows(text: String) -> Result<String> {
    // The host ends the workflow here: there is no error to handle.
    let _ = continue_as_new(regrows, "x".repeat(FITS + 1));
    Ok(text)
}

#[test]
fn continuing_with_an_input_over_the_limit_fails() {
    assert_eq!(
        TestEnv::new().crash_everywhere(regrows, ""),
        Err(too_large("the input"))
    );
}

#[workflow]
fn receives() -> Result<(Option<Error>, usize)> {
    let first: Result<String> = await_signal("go");
    let second: String = await_signal("go")?;
    Ok((first.err(), second.len()))
}

#[test]
fn a_signal_over_the_limit_is_consumed_and_refused() {
    let mut env = TestEnv::new();
    env.signal("go", &"x".repeat(FITS + 1));
    env.signal("go", &"small");
    assert_eq!(
        env.crash_everywhere(receives, ()),
        Ok((Some(too_large("a signal")), 5))
    );
}

#[workflow]
fn downloads() -> Result<usize> {
    Ok(http("GET https://api.example.com").send()?.body.len())
}

#[workflow]
fn uploads(length: usize) -> Result<usize> {
    Ok(http("GET https://api.example.com")
        .body("x".repeat(length))
        .send()?
        .body
        .len())
}

#[test]
fn requests_and_responses_have_a_limit() {
    let refused = |message: &str| Err(Error::new("too_large", message).non_retryable());
    let mut env = TestEnv::new();
    env.stub_http("GET https://api.example.com", |_| {
        Ok(HttpResponse::new(200, "x".repeat(1 << 20)))
    });
    let payload = "1048613 bytes of payload, at most 1048576 are allowed";
    assert_eq!(env.run(downloads, ()), refused(payload));
    env.stub_http("GET https://api.example.com", |_| {
        Ok(HttpResponse::new(200, "x".repeat((1 << 20) + 1)))
    });
    assert_eq!(
        env.run(downloads, ()),
        refused("the response has more than 1048576 bytes")
    );
    assert_eq!(
        env.run(uploads, FITS - 100),
        refused("the response has more than 1048576 bytes")
    );
    assert!(
        env.run(uploads, FITS)
            .is_err_and(|error| error.message.starts_with("the input has"))
    );
}

#[workflow]
fn named() -> Result<usize> {
    call_named(&"x".repeat(1_025), &()).run()
}

#[test]
fn a_name_has_a_limit() {
    assert!(
        TestEnv::new()
            .run(named, ())
            .is_err_and(|error| error.has_kind("invalid_name") && !error.retryable)
    );
}
