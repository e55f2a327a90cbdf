//! Where a workflow leaves a request and finds its answer. The host functions see one end, `turn` the other.

use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use onward_execution::{Answer, Request};

/// One request at a time: a guest that waits for an answer cannot ask for anything else.
#[derive(Debug, Default, Clone)]
pub(crate) struct Mailbox(Arc<Mutex<Slot>>);

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Empty,
    Asked(Request),
    /// The request was taken; its answer is to come.
    Waiting,
    Answered(Answer),
}

/// The answer does not belong to a request, or is missing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutOfTurn;

impl Mailbox {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in what the guest waits for.
    pub(crate) fn put(&self, answer: Option<Answer>) -> Result<(), OutOfTurn> {
        let mut slot = self.slot();
        match (&*slot, answer) {
            (Slot::Empty, None) => Ok(()),
            (Slot::Waiting, Some(answer)) => {
                *slot = Slot::Answered(answer);
                Ok(())
            }
            _ => Err(OutOfTurn),
        }
    }

    /// Takes the request that the guest has left.
    pub(crate) fn take(&self) -> Option<Request> {
        let mut slot = self.slot();
        match mem::replace(&mut *slot, Slot::Waiting) {
            Slot::Asked(request) => Some(request),
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Leaves a request and waits for its answer.
    pub(crate) fn ask(&self, request: Request) -> Ask {
        Ask { mailbox: self.clone(), request: Some(request) }
    }
}

/// Waits for an answer. Nothing wakes it: `turn` polls when there is something to see.
#[derive(Debug)]
pub(crate) struct Ask {
    mailbox: Mailbox,
    request: Option<Request>,
}

impl Future for Ask {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Answer> {
        let request = self.request.take();
        let mut slot = self.mailbox.slot();
        if let Some(request) = request {
            *slot = Slot::Asked(request);
            return Poll::Pending;
        }
        match mem::take(&mut *slot) {
            Slot::Answered(answer) => Poll::Ready(answer),
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
        let mailbox = Mailbox::default();
        let mut ask = pin!(mailbox.ask(Request::Now));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(mailbox.take(), None);
        assert!(ask.as_mut().poll(&mut context).is_pending());
        assert_eq!(mailbox.put(Some(Answer::Done)), Err(OutOfTurn), "not taken yet");
        assert_eq!(mailbox.take(), Some(Request::Now));
        assert_eq!(mailbox.take(), None);
        assert_eq!(mailbox.put(None), Err(OutOfTurn));
        assert!(ask.as_mut().poll(&mut context).is_pending(), "no answer yet");
        assert_eq!(mailbox.put(Some(Answer::Done)), Ok(()));
        assert_eq!(mailbox.put(Some(Answer::Done)), Err(OutOfTurn));
        assert_eq!(ask.as_mut().poll(&mut context), Poll::Ready(Answer::Done));
        assert_eq!(mailbox.put(None), Ok(()));
    }
}
