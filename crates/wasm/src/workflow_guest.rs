//! A running workflow. The call into the instance is a future that only [`Guest::resume_guest`]
//! polls: between two turns the guest is suspended inside a host function, and occupies only the
//! memory pages that it has touched.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use onward_base::{Payload, SharedText};
use onward_execution::{Guest, GuestRequest, GuestResponse, GuestTurn};
use onward_journal::{ExecutionError, InvokeResult};
use tokio::sync::OwnedSemaphorePermit;

use onward_execution::GuestFunctionKind;

use crate::component::LoadedComponent;
use crate::config::WorkflowLimits;
use crate::guest_error::{
    explain_call_error, host_defect_error, is_resource_exhaustion, too_large_error, trap_error,
};
use crate::host::{CallContext, GuestState, InstanceRole, to_invoke_result};
use crate::limiter::InstanceLimiter;
use crate::mailbox::RequestMailbox;
use crate::memory_budget::{MemoryBudgetExhausted, MemoryReservation};
use crate::slice_clock::{SLICE_TICKS, SliceClock};

/// The arguments of a call that has not started.
pub(crate) struct WorkflowCall {
    pub(crate) component: LoadedComponent,
    pub(crate) tenant: SharedText,
    pub(crate) function: SharedText,
    pub(crate) input: Payload,
    pub(crate) context: CallContext,
    pub(crate) limits: WorkflowLimits,
}

/// Fuel that a request costs if the journal does not record it: such a request takes the host about
/// a microsecond.
const REQUEST_FUEL: u64 = 1_000;

pub(crate) struct WorkflowGuest {
    stage: WorkflowStage,
    mailbox: RequestMailbox,
    limits: WorkflowLimits,
    /// Fuel used since the guest's last recorded request, in whole slices.
    fuel_used: u64,
    /// Ticks for which the guest has computed since its last recorded request.
    computed_ticks: u64,
    /// `None` before the guest is started.
    slice: Option<SliceClock>,
    /// Ticks for which the guest has computed since it last paused.
    slice_ticks: u64,
    /// Whether the guest has used up its time slice although it is about to receive a response.
    is_slice_over: bool,
}

enum WorkflowStage {
    New(Box<WorkflowCall>),
    Running(Pin<Box<dyn Future<Output = CallOutcome> + Send>>),
    Ended,
}

/// Outcome of a call into an instance.
enum CallOutcome {
    Ended(InvokeResult),
    /// The machine lacks the resources for the instance. The guest did not cause this, so its
    /// execution must not fail: it is replayed later.
    NoResources,
}

impl WorkflowGuest {
    pub(crate) fn new(call: WorkflowCall) -> Self {
        let limits = call.limits;
        Self {
            stage: WorkflowStage::New(Box::new(call)),
            mailbox: RequestMailbox::default(),
            limits,
            fuel_used: 0,
            computed_ticks: 0,
            slice: None,
            slice_ticks: 0,
            is_slice_over: false,
        }
    }

    /// Starts the guest if the pool has room for it; returns `Poll::Pending` if it has not.
    fn try_start(&mut self) -> Result<Poll<()>, ExecutionError> {
        let WorkflowStage::New(call) = &self.stage else {
            return Ok(Poll::Ready(()));
        };
        check_call(call)?;
        let Some(permit) = call
            .component
            .instance_pool()
            .try_reserve_workflow(call.component.weight())
        else {
            return Ok(Poll::Pending);
        };
        if let WorkflowStage::New(call) = std::mem::replace(&mut self.stage, WorkflowStage::Ended) {
            let slice = call.component.instance_pool().slice_clock();
            self.slice = Some(slice.clone());
            self.stage = WorkflowStage::Running(Box::pin(run_call(
                call,
                self.mailbox.clone(),
                permit,
                slice,
            )));
        }
        Ok(Poll::Ready(()))
    }

    /// Runs one turn. An error ends the guest.
    fn run_turn(&mut self, answer: Option<GuestResponse>) -> Result<GuestTurn, ExecutionError> {
        self.mailbox
            .put_answer(answer)
            .map_err(|_| host_defect_error("a response is missing or out of order"))?;
        if std::mem::take(&mut self.is_slice_over) || self.try_start()?.is_pending() {
            self.slice_ticks = 0;
            return Ok(GuestTurn::Paused);
        }
        let (WorkflowStage::Running(call), Some(slice)) = (&mut self.stage, &self.slice) else {
            return Err(host_defect_error("the guest has ended already"));
        };
        let polled = slice.poll_call(call.as_mut(), &mut Context::from_waker(Waker::noop()));
        let ticks = slice.elapsed_ticks();
        self.computed_ticks += ticks;
        match polled {
            Poll::Ready(CallOutcome::Ended(result)) => Ok(GuestTurn::Completed(result)),
            Poll::Ready(CallOutcome::NoResources) => Ok(GuestTurn::Evicted),
            Poll::Pending => match self.mailbox.take_request() {
                Some(request) => {
                    // A guest that makes one cheap request after the other has to yield as well.
                    self.slice_ticks += ticks;
                    self.is_slice_over = self.slice_ticks >= SLICE_TICKS;
                    self.charge_request(&request)?;
                    Ok(GuestTurn::Requested(request))
                }
                None => self.yield_turn(),
            },
        }
    }

    /// Starts a new allowance of fuel and time for a request that the journal records. Other
    /// requests do not, or a guest could make them for ever.
    fn charge_request(&mut self, request: &GuestRequest) -> Result<(), ExecutionError> {
        match request {
            GuestRequest::Log { message, .. } => {
                self.charge_fuel(REQUEST_FUEL + message.len() as u64)
            }
            GuestRequest::IsCancelled => self.charge_fuel(REQUEST_FUEL),
            GuestRequest::ContinueAsNew { input } => {
                self.charge_fuel(REQUEST_FUEL + input.as_str().len() as u64)
            }
            _ => {
                (self.fuel_used, self.computed_ticks) = (0, 0);
                Ok(())
            }
        }
    }

    fn yield_turn(&mut self) -> Result<GuestTurn, ExecutionError> {
        self.slice_ticks = 0;
        let time_max = self.limits.compute_time_max;
        let ticks_max = self.slice.as_ref().map(|slice| slice.ticks_in(time_max));
        if ticks_max.is_some_and(|max| self.computed_ticks > max) {
            return Err(trap_error(format!(
                "out of time: {} ms of computation without a request",
                time_max.as_millis()
            )));
        }
        // A guest that yields because of the clock has not used up a slice of fuel.
        if !self.slice.as_ref().is_some_and(SliceClock::take_yielded) {
            self.charge_fuel(self.limits.fuel_slice)?;
        }
        Ok(GuestTurn::Paused)
    }

    fn charge_fuel(&mut self, fuel: u64) -> Result<(), ExecutionError> {
        self.fuel_used = self.fuel_used.saturating_add(fuel);
        if self.fuel_used < self.limits.fuel_max {
            return Ok(());
        }
        let max = self.limits.fuel_max;
        Err(trap_error(format!(
            "out of fuel: {max} instructions without a request"
        )))
    }
}

impl Guest for WorkflowGuest {
    fn resume_guest(&mut self, answer: Option<GuestResponse>) -> GuestTurn {
        let turn = self
            .run_turn(answer)
            .unwrap_or_else(|error| GuestTurn::Completed(Err(error)));
        if matches!(turn, GuestTurn::Completed(_) | GuestTurn::Evicted) {
            self.stage = WorkflowStage::Ended;
        }
        turn
    }
}

/// Checks everything that can be refused before instantiation.
fn check_call(call: &WorkflowCall) -> Result<(), ExecutionError> {
    call.component
        .require_function(&call.function, GuestFunctionKind::Workflow)?;
    let (bytes, max) = (call.input.as_str().len(), call.limits.payload_bytes_max);
    if bytes > max {
        Err(too_large_error("the input", bytes, max))
    } else {
        Ok(())
    }
}

async fn run_call(
    call: Box<WorkflowCall>,
    mailbox: RequestMailbox,
    permit: OwnedSemaphorePermit,
    slice: SliceClock,
) -> CallOutcome {
    // Declared first, so that the permit is dropped after the instance.
    let _permit = permit;
    let (component, limits) = (&call.component, call.limits);
    let limiter = InstanceLimiter::new(
        limits.memory_bytes_max,
        component.instance_pool().table_elements_max,
        MemoryReservation::new(
            &component.instance_pool().memory_budget,
            call.tenant.clone(),
        ),
    );
    let data = GuestState::new(
        InstanceRole::Workflow(mailbox),
        call.context.clone(),
        limiter,
        limits.payload_bytes_max,
        slice,
    );
    let mut store = match component.new_store(data, limits.fuel_slice) {
        Ok(store) => store,
        Err(error) => return CallOutcome::Ended(Err(error)),
    };
    let instance = match component.instantiate(&mut store).await {
        Ok(instance) => instance,
        Err(error) if is_resource_exhaustion(&error, store.data()) => {
            tracing::warn!(%error, "cannot create an instance now");
            drop(store);
            return CallOutcome::NoResources;
        }
        Err(error) => return CallOutcome::Ended(Err(explain_call_error(&error, store.data()))),
    };
    let input = call.input.as_str().to_owned();
    CallOutcome::Ended(
        match instance.call_call(&mut store, &call.function, &input).await {
            Ok(outcome) => to_invoke_result(outcome, limits.payload_bytes_max),
            Err(error) if error.is::<MemoryBudgetExhausted>() => return CallOutcome::NoResources,
            Err(error) => Err(explain_call_error(&error, store.data())),
        },
    )
}
