//! What tasks can call.

use std::time::Duration;

use bytes::Bytes;

use super::{Data, Role, Told};
use crate::bindings::task::{Host, Request, Response};
use crate::http::HttpRequest;
use crate::stop::named;

impl Host for Data {
    async fn http(&mut self, request: Request) -> Told<Response> {
        let Role::Task(served) = &self.role else {
            return Ok(Err(named("not_in_workflow", "`http` is for tasks: invoke one, or an HTTP request").into()));
        };
        let request = HttpRequest {
            method: request.method,
            url: request.url,
            headers: request.headers,
            body: Bytes::from(request.body.unwrap_or_default()),
            timeout: request.timeout_ms.map(Duration::from_millis),
            idempotency_key: (!self.context.idempotency_key.is_empty()).then(|| self.context.idempotency_key.clone()),
        };
        Ok(match served.http.send(request).await {
            Ok(response) => {
                Ok(Response { status: response.status, headers: response.headers, body: response.body.into() })
            }
            Err(error) => Err(error.into_execution_error().into()),
        })
    }
}
