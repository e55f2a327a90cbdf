//! Runs a task in an instance that no other call uses at the same time, with real time and
//! randomness, and with HTTP requests to allowed hosts.

use std::sync::Arc;

use onward_base::{Payload, SharedText, Timestamp};
use onward_execution::GuestLogLevel;
use onward_journal::{ErrorKind, ExecutionError, InvokeResult};

use onward_execution::GuestFunctionKind;

use crate::component::LoadedComponent;
use crate::config::{FUEL_SLICE, TaskLimits};
use crate::guest_error::{explain_call_error, host_defect_error, too_large_error};
use crate::host::{CallContext, GuestState, InstanceRole, to_invoke_result};
use crate::http::ComponentEgress;
use crate::limiter::InstanceLimiter;
use crate::memory_budget::MemoryReservation;
use crate::warm_pool::{InstanceOwner, WarmInstance};

/// Services of the host that a task can use, apart from HTTP.
pub trait TaskServices: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Fills `bytes` with cryptographically secure random bytes.
    fn fill_random(&self, bytes: &mut [u8]);

    /// Records a line that the task logs.
    fn log_line(&self, context: &CallContext, level: GuestLogLevel, message: &str);
}

/// Context, limits and services of one task call.
pub struct TaskCall {
    /// The owner of the execution. Different owners never share an instance.
    pub owner: SharedText,
    /// The context that the task can read about its own call.
    pub context: CallContext,
    /// Resource limits of the call.
    pub limits: TaskLimits,
    /// HTTP client, restricted to the hosts that the component may reach.
    pub http: ComponentEgress,
    /// Clock, randomness and log of the task.
    pub services: Arc<dyn TaskServices>,
}

/// HTTP client and services of a running task.
pub(crate) struct TaskEnvironment {
    pub(crate) http: ComponentEgress,
    pub(crate) services: Arc<dyn TaskServices>,
}

pub(crate) async fn run_task(
    component: &LoadedComponent,
    function: &str,
    input: &Payload,
    call: TaskCall,
) -> InvokeResult {
    component.require_function(function, GuestFunctionKind::Task)?;
    let (bytes, max) = (input.as_str().len(), call.limits.payload_bytes_max);
    if bytes > max {
        return Err(too_large_error("the input", bytes, max));
    }
    // The time that the call waits for a free slot does not count towards the task's timeout.
    let _permit = component
        .instance_pool()
        .reserve_task(component.weight())
        .await
        .ok_or_else(|| host_defect_error("the pool is closed"))?;
    let timeout = call.limits.timeout;
    let Ok(result) =
        tokio::time::timeout(timeout, call_task(component, function, input, call)).await
    else {
        return Err(ExecutionError::new(
            ErrorKind::Timeout,
            format!("no result in {} ms", timeout.as_millis()),
        ));
    };
    result
}

/// Calls the task in a warm or a new instance. A busy task yields after each slice of fuel, so that
/// it can time out or be dropped.
async fn call_task(
    component: &LoadedComponent,
    function: &str,
    input: &Payload,
    call: TaskCall,
) -> InvokeResult {
    let TaskCall {
        owner,
        context,
        limits,
        http,
        services,
    } = call;
    let role = InstanceRole::Task(Arc::new(TaskEnvironment { http, services }));
    let tenant = SharedText::from(owner.split('|').next().unwrap_or_default());
    let owner = InstanceOwner {
        component: component.digest(),
        owner,
    };
    let mut warm = match component.instance_pool().warm_pool.take_instance(&owner) {
        Some(warm) => reuse_instance(warm, role, context, &limits)?,
        None => create_instance(component, role, context, &limits, tenant).await?,
    };
    let slice = warm.store.data().slice.clone();
    let (
        input,
        WarmInstance {
            store, instance, ..
        },
    ) = (input.as_str().to_owned(), &mut warm);
    match slice
        .poll_guest(instance.call_call(store, function, &input))
        .await
    {
        Ok(outcome) => {
            component
                .instance_pool()
                .warm_pool
                .keep_instance(owner, component.weight(), warm);
            to_invoke_result(outcome, limits.payload_bytes_max)
        }
        Err(error) => Err(explain_call_error(&error, warm.store.data())),
    }
}

fn reuse_instance(
    mut warm: WarmInstance,
    role: InstanceRole,
    context: CallContext,
    limits: &TaskLimits,
) -> Result<WarmInstance, ExecutionError> {
    warm.store.data_mut().reuse_for_call(
        role,
        context,
        limits.memory_bytes_max,
        limits.payload_bytes_max,
    );
    warm.store
        .set_fuel(u64::MAX)
        .map_err(|error| host_defect_error(format_args!("{error:#}")))?;
    Ok(warm)
}

async fn create_instance(
    component: &LoadedComponent,
    role: InstanceRole,
    context: CallContext,
    limits: &TaskLimits,
    tenant: SharedText,
) -> Result<WarmInstance, ExecutionError> {
    let pool = component.instance_pool();
    if !pool.memory_budget.admits(&tenant) {
        pool.warm_pool.clear();
        pool.memory_budget.wait_for_room(&tenant).await;
    }
    let limiter = InstanceLimiter::new(
        limits.memory_bytes_max,
        component.instance_pool().table_elements_max,
        MemoryReservation::new(&component.instance_pool().memory_budget, tenant),
    );
    let slice = component.instance_pool().slice_clock();
    let state = GuestState::new(
        role,
        context,
        limiter,
        limits.payload_bytes_max,
        slice.clone(),
    );
    let mut store = component.new_store(state, FUEL_SLICE)?;
    match slice.poll_guest(component.instantiate(&mut store)).await {
        Ok(instance) => Ok(WarmInstance {
            store,
            instance,
            calls: 0,
        }),
        Err(error) => Err(explain_call_error(&error, store.data())),
    }
}
