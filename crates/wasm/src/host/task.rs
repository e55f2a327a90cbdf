//! The interface `task`, which only tasks can call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onward_base::SharedText;

use super::{GuestState, HostResult, InstanceRole};
use crate::bindings::task::{Host, Request, Response};
use crate::guest_error::permanent_error;
use crate::http::HttpRequest;

impl Host for GuestState {
    async fn http(&mut self, request: Request) -> HostResult<Response> {
        let InstanceRole::Task(served) = &self.role else {
            self.yield_after_copy(copied_bytes(&request)).await;
            return Ok(Err(permanent_error(
                "not_in_workflow",
                "`http` is for tasks: invoke one, or an HTTP request",
            )
            .into()));
        };
        let served = Arc::clone(served);
        self.yield_after_copy(copied_bytes(&request)).await;
        let request = HttpRequest {
            method: request.method,
            url: request.url,
            headers: request.headers,
            body: Bytes::from(request.body.unwrap_or_default()),
            timeout: request.timeout_ms.map(Duration::from_millis),
            idempotency_key: self.next_request_key(),
        };
        Ok(match served.http.send(request).await {
            Ok(response) => Ok(Response {
                status: response.status,
                headers: response.headers,
                body: response.body.into(),
            }),
            Err(error) => Err(error.into_execution_error().into()),
        })
    }
}

/// Bytes of a request that the host copied out of the guest.
fn copied_bytes(request: &Request) -> usize {
    let headers = request
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len());
    let body = request.body.as_ref().map_or(0, Vec::len);
    request.url.len() + headers.sum::<usize>() + body
}

impl GuestState {
    /// Idempotency key of the next HTTP request; `None` if the call has no key. Each request of an
    /// attempt has its own key, so that a service deduplicates only true repetitions. The next
    /// attempt counts from 1 again and so repeats the keys of this attempt.
    fn next_request_key(&mut self) -> Option<SharedText> {
        self.request_count = self.request_count.saturating_add(1);
        let key = &self.context.idempotency_key;
        match self.request_count {
            _ if key.is_empty() => None,
            1 => Some(key.clone()),
            count => Some(format!("{key}/{count}").into()),
        }
    }
}
