//! Calls that leave the component: HTTP requests and native functions of the embedding process.

use onward::prelude::*;
use onward::{HttpResponse, call_named};
use serde::{Deserialize, Serialize};

/// Input of `call_native`.
#[derive(Serialize, Deserialize)]
pub struct NativeCall {
    /// Name of the function.
    pub function: String,
    /// Input of the function.
    pub input: Json,
    /// At-most-once delivery: the call is not repeated after a crash.
    #[serde(default)]
    pub at_most_once: bool,
}

/// At most three attempts, at an interval of 10 ms.
fn retry_policy() -> RetryPolicy {
    RetryPolicy::max_attempts(3)
        .initial_interval(Duration::from_millis(10))
        .factor_permille(1_000)
        .jitter_permille(0)
}

/// Sends a GET request and returns the response.
#[workflow]
pub fn http_get(url: String) -> Result<HttpResponse> {
    http(&format!("GET {url}"))
        .into_call()
        .retry(retry_policy())
        .run()
}

/// Calls `http_task` and returns the response.
#[workflow]
pub fn http_by_task(url: String) -> Result<HttpResponse> {
    call(http_task, url).retry(retry_policy()).run()
}

/// Sends a GET request. A status of 500 or above is a failure; every other response is returned.
#[task]
pub fn http_task(url: String) -> Result<HttpResponse> {
    let response = http(&format!("GET {url}")).send()?;
    if response.status < 500 {
        Ok(response)
    } else {
        response.successful()
    }
}

/// Calls a function by name.
#[workflow]
pub fn call_native(input: NativeCall) -> Result<Json> {
    let call = call_named(&input.function, &input.input).retry(retry_policy());
    if input.at_most_once {
        call.at_most_once().run()
    } else {
        call.run()
    }
}
