//! Reads request bodies within a limit of size, a timeout, and one budget of bytes for all bodies
//! of the server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use futures_util::StreamExt as _;
use onward_api::problem::{Code, Problem};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http_types::ProblemResponse;
use crate::request_checks::declared_length;

/// Number of bytes that one permit of the budget stands for.
const PERMIT_BYTES: usize = 1_024;

/// Maximum size of the bodies of a route, as an extension of its requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimit(pub(crate) usize);

/// The bytes that bodies may occupy in memory, for all requests of a server together.
pub(crate) struct BodyBudget {
    permits: Arc<Semaphore>,
    /// Time that a client has to send the next part of a body.
    timeout: Duration,
}

impl BodyBudget {
    pub(crate) fn new(bytes: usize, timeout: Duration) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(bytes / PERMIT_BYTES)),
            timeout,
        }
    }

    /// Returns the share of one request, which is empty at first.
    pub(crate) fn new_share(&self) -> BodyShare {
        BodyShare {
            budget: Arc::clone(&self.permits),
            held: Arc::default(),
            timeout: self.timeout,
        }
    }
}

/// The part of the budget that a request occupies, as an extension of the request. It is given back
/// when the last clone is dropped, which is after the handler has responded.
#[derive(Clone)]
pub(crate) struct BodyShare {
    budget: Arc<Semaphore>,
    held: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
    timeout: Duration,
}

impl BodyShare {
    /// Grows the share to this number of bytes. Fails if the budget is used up: waiting could last
    /// for ever, since other requests that wait hold a part of it.
    fn grow_to(&self, bytes: usize) -> Result<(), Problem> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let has = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.div_ceil(PERMIT_BYTES).saturating_sub(has);
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        if missing == 0 {
            return Ok(());
        }
        let more = Arc::clone(&self.budget)
            .try_acquire_many_owned(missing)
            .map_err(|_| {
                Problem::new(
                    Code::Unavailable,
                    "the server receives too many large requests at the moment: retry later",
                )
            })?;
        match &mut *held {
            Some(held) => held.merge(more),
            empty => *empty = Some(more),
        }
        Ok(())
    }
}

/// Extracts the body as unparsed bytes.
pub(crate) struct RawBody(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ProblemResponse> {
        let extensions = request.extensions();
        let (Some(BodyLimit(limit)), Some(share)) = (
            extensions.get::<BodyLimit>().copied(),
            extensions.get::<BodyShare>().cloned(),
        ) else {
            return Err(Problem::new(Code::Internal, "the route has no limit for bodies").into());
        };
        Ok(Self(read_body(request, limit, &share).await?))
    }
}

async fn read_body(request: Request, limit: usize, share: &BodyShare) -> Result<Bytes, Problem> {
    let too_large = || {
        let detail = format!(
            "the body exceeds the maximum size for this path, {limit} bytes: send less data per \
             request"
        );
        Problem::new(Code::TooLarge, detail)
    };
    if declared_length(request.headers()).is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let mut parts = request.into_body().into_data_stream();
    let mut next_part = async || {
        let part = tokio::time::timeout(share.timeout, parts.next())
            .await
            .map_err(|_| {
                let ms = share.timeout.as_millis();
                let detail = format!("the next part of the body did not arrive within {ms} ms");
                Problem::new(Code::TimedOut, detail)
            })?;
        part.transpose().map_err(|error| {
            let detail = format!("the body could not be read: {error}");
            Problem::new(Code::InvalidRequest, detail)
        })
    };
    // Most bodies arrive in one part, which is then not copied.
    let Some(first) = next_part().await? else {
        return Ok(Bytes::new());
    };
    let check_size = |size: usize| {
        if size > limit {
            return Err(too_large());
        }
        share.grow_to(size)
    };
    check_size(first.len())?;
    let Some(second) = next_part().await? else {
        return Ok(first);
    };
    let mut body = Vec::from(first);
    let mut part = Some(second);
    while let Some(bytes) = part {
        check_size(body.len() + bytes.len())?;
        body.extend_from_slice(&bytes);
        part = next_part().await?;
    }
    Ok(body.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_shared_and_given_back() {
        let budget = BodyBudget::new(4 * PERMIT_BYTES, Duration::from_secs(1));
        let (first, second) = (budget.new_share(), budget.new_share());
        first.grow_to(1).expect("one permit");
        first.grow_to(3 * PERMIT_BYTES).expect("three permits");
        second.grow_to(PERMIT_BYTES).expect("the last permit");
        let refused = second
            .grow_to(PERMIT_BYTES + 1)
            .expect_err("no permit is left");
        assert_eq!(refused.code, Code::Unavailable);
        drop(first);
        second.grow_to(4 * PERMIT_BYTES).expect("all permits");
    }
}
