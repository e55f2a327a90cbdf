//! What leaves the component: requests, and functions that only the process that runs it has.

use onward::prelude::*;
use onward::{Response, call_named};
use serde::{Deserialize, Serialize};

/// What `call_native` calls.
#[derive(Serialize, Deserialize)]
pub struct Named {
    pub function: String,
    pub input: Json,
    /// Whether it is never repeated after a crash.
    #[serde(default)]
    pub at_most_once: bool,
}

/// Three attempts, ten milliseconds apart.
fn patience() -> Retry {
    Retry::attempts(3)
        .first_wait(Duration::from_millis(10))
        .factor_permille(1_000)
        .jitter_permille(0)
}

/// Asks for a URL, and returns whatever the answer is.
#[workflow]
pub fn http_get(url: String) -> Result<Response> {
    http(&format!("GET {url}"))
        .into_call()
        .retry(patience())
        .run()
}

/// Has `http_task` ask for a URL, and returns whatever the answer is.
#[workflow]
pub fn http_by_task(url: String) -> Result<Response> {
    call(http_task, url).retry(patience()).run()
}

/// Asks for a URL. A service that is broken is a failure, anything else an answer.
#[task]
pub fn http_task(url: String) -> Result<Response> {
    let response = http(&format!("GET {url}")).send()?;
    if response.status < 500 {
        Ok(response)
    } else {
        response.successful()
    }
}

/// Calls the function of this name.
#[workflow]
pub fn call_native(named: Named) -> Result<Json> {
    let call = call_named(&named.function, &named.input).retry(patience());
    if named.at_most_once {
        call.at_most_once().run()
    } else {
        call.run()
    }
}
