//! Passes a request from a workflow to the engine and the response back. The host functions use one
//! end, [`Guest::resume_guest`](onward_execution::Guest::resume_guest) the other.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use onward_execution::{GuestRequest, GuestResponse};

/// Holds at most one request: a guest that waits for a response cannot make another request.
#[derive(Debug, Default, Clone)]
pub(crate) struct RequestMailbox(Arc<Mutex<MailboxSlot>>);

#[derive(Debug, Default)]
enum MailboxSlot {
    #[default]
    Empty,
    Requested(GuestRequest),
    /// The request was taken and has no response yet.
    Waiting,
    Answered(GuestResponse),
}

/// A response without a request, or no response where one is required.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnexpectedAnswer;

impl RequestMailbox {
    fn lock_slot(&self) -> MutexGuard<'_, MailboxSlot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the response to the pending request. Fails if there is a response without a pending
    /// request, or a pending request without a response.
    pub(crate) fn put_answer(&self, answer: Option<GuestResponse>) -> Result<(), UnexpectedAnswer> {
        let mut slot = self.lock_slot();
        match (&*slot, answer) {
            // The guest may not have been polled since it received its last response.
            (MailboxSlot::Empty | MailboxSlot::Answered(_), None) => Ok(()),
            (MailboxSlot::Waiting, Some(answer)) => {
                *slot = MailboxSlot::Answered(answer);
                Ok(())
            }
            _ => Err(UnexpectedAnswer),
        }
    }

    /// Takes the request that the guest made; `None` if it made none.
    pub(crate) fn take_request(&self) -> Option<GuestRequest> {
        let mut slot = self.lock_slot();
        match mem::replace(&mut *slot, MailboxSlot::Waiting) {
            MailboxSlot::Requested(request) => Some(request),
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Returns a future that makes the request and completes with its response.
    pub(crate) fn send_request(&self, request: GuestRequest) -> AnswerFuture {
        AnswerFuture {
            mailbox: self.clone(),
            request: Some(request),
        }
    }
}

/// Completes with the response to a request. It registers no waker: `resume_guest` polls it when
/// there is progress to make.
#[derive(Debug)]
pub(crate) struct AnswerFuture {
    mailbox: RequestMailbox,
    request: Option<GuestRequest>,
}

impl Future for AnswerFuture {
    type Output = GuestResponse;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<GuestResponse> {
        let request = self.request.take();
        let mut slot = self.mailbox.lock_slot();
        if let Some(request) = request {
            *slot = MailboxSlot::Requested(request);
            return Poll::Pending;
        }
        match mem::take(&mut *slot) {
            MailboxSlot::Answered(answer) => Poll::Ready(answer),
            other => {
                *slot = other;
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_request_is_taken_once_and_answered_once() {
        let mailbox = RequestMailbox::default();
        let mut ask = pin!(mailbox.send_request(GuestRequest::ReadClock));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(mailbox.take_request(), None);
        assert!(ask.as_mut().poll(&mut context).is_pending());
        assert_eq!(
            mailbox.put_answer(Some(GuestResponse::Done)),
            Err(UnexpectedAnswer),
            "not taken yet"
        );
        assert_eq!(mailbox.take_request(), Some(GuestRequest::ReadClock));
        assert_eq!(mailbox.take_request(), None);
        assert_eq!(mailbox.put_answer(None), Err(UnexpectedAnswer));
        assert!(
            ask.as_mut().poll(&mut context).is_pending(),
            "no answer yet"
        );
        assert_eq!(mailbox.put_answer(Some(GuestResponse::Done)), Ok(()));
        assert_eq!(
            mailbox.put_answer(Some(GuestResponse::Done)),
            Err(UnexpectedAnswer)
        );
        assert_eq!(
            ask.as_mut().poll(&mut context),
            Poll::Ready(GuestResponse::Done)
        );
        assert_eq!(mailbox.put_answer(None), Ok(()));
    }
}
