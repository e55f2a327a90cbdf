//! A workflow that runs. The call into the instance is a future that only `turn` polls: between two turns the guest stands
//! still in the middle of a host function, and costs the pages it has touched.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use onward_execution::{Answer, Guest, Turn};
use onward_journal::{ExecutionError, InvokeResult, Payload, Text};
use tokio::sync::OwnedSemaphorePermit;

use crate::component::{Component, Kind};
use crate::config::WorkflowLimits;
use crate::host::{Data, OwnContext, Role, outcome_of};
use crate::limiter::Limiter;
use crate::mailbox::Mailbox;
use crate::stop::{defect, explain, is_of_the_machine, too_large, trap};

/// A call that has not begun.
pub(crate) struct Call {
    pub(crate) component: Component,
    pub(crate) function: Text,
    pub(crate) input: Payload,
    pub(crate) context: OwnContext,
    pub(crate) limits: WorkflowLimits,
}

pub(crate) struct Workflow {
    stage: Stage,
    mailbox: Mailbox,
    limits: WorkflowLimits,
    /// Fuel used since the guest last asked for something, in whole slices.
    fuel_used: u64,
    has_asked: bool,
}

enum Stage {
    New(Box<Call>),
    Running(Pin<Box<dyn Future<Output = Ran> + Send>>),
    Ended,
}

/// How a call came out.
enum Ran {
    Ended(InvokeResult),
    /// The machine could not make an instance. That is no fault of the guest, so its execution must not fail by it.
    NotNow(Box<Call>),
}

impl Workflow {
    pub(crate) fn new(call: Call) -> Self {
        let limits = call.limits;
        Self { stage: Stage::New(Box::new(call)), mailbox: Mailbox::default(), limits, fuel_used: 0, has_asked: false }
    }

    /// Starts the guest if there is room for it.
    fn start(&mut self) -> Result<Poll<()>, ExecutionError> {
        let Stage::New(call) = &self.stage else { return Ok(Poll::Ready(())) };
        check(call)?;
        let Some(permit) = call.component.shared().try_workflow(call.component.weight()) else {
            return Ok(Poll::Pending);
        };
        if let Stage::New(call) = std::mem::replace(&mut self.stage, Stage::Ended) {
            self.stage = Stage::Running(Box::pin(run(call, self.mailbox.clone(), permit)));
        }
        Ok(Poll::Ready(()))
    }

    /// One turn; an error ends the guest.
    fn advance(&mut self, answer: Option<Answer>) -> Result<Turn, ExecutionError> {
        self.mailbox.put(answer).map_err(|_| defect("an answer came out of turn, or is missing"))?;
        if self.start()?.is_pending() {
            return Ok(Turn::Pauses);
        }
        let Stage::Running(call) = &mut self.stage else { return Err(defect("the guest has ended already")) };
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ran::Ended(result)) => Ok(Turn::Ends(result)),
            Poll::Ready(Ran::NotNow(call)) => self.again(call),
            Poll::Pending => match self.mailbox.take() {
                Some(request) => {
                    (self.fuel_used, self.has_asked) = (0, true);
                    Ok(Turn::Asks(request))
                }
                None => self.pause(),
            },
        }
    }

    /// Tries the start again later, unless it got as far as asking for something: nobody would expect that twice.
    fn again(&mut self, call: Box<Call>) -> Result<Turn, ExecutionError> {
        if self.has_asked {
            return Err(defect("there was no memory for all of an instance"));
        }
        self.stage = Stage::New(call);
        Ok(Turn::Pauses)
    }

    fn pause(&mut self) -> Result<Turn, ExecutionError> {
        self.fuel_used = self.fuel_used.saturating_add(self.limits.fuel_slice);
        if self.fuel_used < self.limits.fuel_max {
            return Ok(Turn::Pauses);
        }
        let max = self.limits.fuel_max;
        Err(trap(format!("out of fuel: it ran for {max} instructions without asking for anything")))
    }
}

impl Guest for Workflow {
    fn turn(&mut self, answer: Option<Answer>) -> Turn {
        let turn = self.advance(answer).unwrap_or_else(|error| Turn::Ends(Err(error)));
        if matches!(turn, Turn::Ends(_)) {
            self.stage = Stage::Ended;
        }
        turn
    }
}

/// What can be refused before anything is instantiated.
fn check(call: &Call) -> Result<(), ExecutionError> {
    call.component.require(&call.function, Kind::Workflow)?;
    let (bytes, max) = (call.input.as_str().len(), call.limits.payload_bytes_max);
    if bytes > max { Err(too_large("the input", bytes, max)) } else { Ok(()) }
}

async fn run(call: Box<Call>, mailbox: Mailbox, permit: OwnedSemaphorePermit) -> Ran {
    // Outlives the instance.
    let _permit = permit;
    let (component, limits) = (&call.component, call.limits);
    let limiter = Limiter::new(limits.memory_bytes_max, component.shared().table_elements_max);
    let data = Data::new(Role::Workflow(mailbox), call.context.clone(), limiter, limits.payload_bytes_max);
    let mut store = match component.store(data, limits.fuel_slice) {
        Ok(store) => store,
        Err(error) => return Ran::Ended(Err(error)),
    };
    let instance = match component.instantiate(&mut store).await {
        Ok(instance) => instance,
        Err(error) if is_of_the_machine(&error, store.data()) => {
            tracing::warn!(%error, "cannot make an instance now");
            drop(store);
            return Ran::NotNow(call);
        }
        Err(error) => return Ran::Ended(Err(explain(&error, store.data()))),
    };
    let input = call.input.as_str().to_owned();
    Ran::Ended(match instance.call_call(&mut store, &call.function, &input).await {
        Ok(outcome) => outcome_of(outcome, limits.payload_bytes_max),
        Err(error) => Err(explain(&error, store.data())),
    })
}
