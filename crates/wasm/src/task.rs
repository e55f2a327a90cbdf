//! A task that runs: an instance that nobody else uses meanwhile, real time and randomness, and HTTP to hosts that are allowed.

use std::sync::Arc;

use onward_execution::Level;
use onward_journal::{ErrorKind, ExecutionError, InvokeResult, Payload, Text, Timestamp};

use crate::component::{Component, Kind};
use crate::config::{FUEL_SLICE, TaskLimits};
use crate::host::{Data, OwnContext, Role, outcome_of};
use crate::http::Egress;
use crate::limiter::Limiter;
use crate::stop::{defect, explain, too_large};
use crate::warm::{Owner, Warm};

/// What a task gets from the outside, apart from HTTP.
pub trait Services: Send + Sync {
    /// The time.
    fn now(&self) -> Timestamp;

    /// Fills `bytes` with what nobody can guess.
    fn random(&self, bytes: &mut [u8]);

    /// Takes a line that the task logs.
    fn log(&self, context: &OwnContext, level: Level, message: &str);
}

/// How a task is called.
pub struct TaskCall {
    /// On whose behalf. Calls on behalf of others get other instances.
    pub owner: Text,
    /// What it is told about itself.
    pub context: OwnContext,
    /// What it may use.
    pub limits: TaskLimits,
    /// Where it may send requests.
    pub http: Egress,
    /// What else it gets.
    pub services: Arc<dyn Services>,
}

/// What a running task is served by.
pub(crate) struct Served {
    pub(crate) http: Egress,
    pub(crate) services: Arc<dyn Services>,
}

pub(crate) async fn run(component: &Component, function: &str, input: &Payload, call: TaskCall) -> InvokeResult {
    component.require(function, Kind::Task)?;
    let (bytes, max) = (input.as_str().len(), call.limits.payload_bytes_max);
    if bytes > max {
        return Err(too_large("the input", bytes, max));
    }
    // Waiting for room is not the task's fault, and takes none of its time.
    let _permit = component.shared().task(component.weight()).await.ok_or_else(|| defect("the pool is closed"))?;
    let timeout = call.limits.timeout;
    let Ok(result) = tokio::time::timeout(timeout, execute(component, function, input, call)).await else {
        return Err(ExecutionError::new(ErrorKind::Timeout, format!("no result in {} ms", timeout.as_millis())));
    };
    result
}

/// A busy task hands control back after each slice of fuel, so that it can be timed out, or dropped.
async fn execute(component: &Component, function: &str, input: &Payload, call: TaskCall) -> InvokeResult {
    let TaskCall { owner, context, limits, http, services } = call;
    let role = Role::Task(Arc::new(Served { http, services }));
    let owner = Owner { component: component.digest(), owner };
    let mut warm = match component.shared().warm.take(&owner) {
        Some(warm) => again(warm, role, context, &limits)?,
        None => anew(component, role, context, &limits).await?,
    };
    match warm.instance.call_call(&mut warm.store, function, &input.as_str().to_owned()).await {
        Ok(outcome) => {
            component.shared().warm.put(owner, component.weight(), warm);
            outcome_of(outcome, limits.payload_bytes_max)
        }
        Err(error) => Err(explain(&error, warm.store.data())),
    }
}

fn again(mut warm: Warm, role: Role, context: OwnContext, limits: &TaskLimits) -> Result<Warm, ExecutionError> {
    warm.store.data_mut().renew(role, context, limits.memory_bytes_max, limits.payload_bytes_max);
    warm.store.set_fuel(u64::MAX).map_err(|error| defect(format_args!("{error:#}")))?;
    Ok(warm)
}

async fn anew(
    component: &Component,
    role: Role,
    context: OwnContext,
    limits: &TaskLimits,
) -> Result<Warm, ExecutionError> {
    let limiter = Limiter::new(limits.memory_bytes_max, component.shared().table_elements_max);
    let mut store = component.store(Data::new(role, context, limiter, limits.payload_bytes_max), FUEL_SLICE)?;
    match component.instantiate(&mut store).await {
        Ok(instance) => Ok(Warm { store, instance, calls: 0 }),
        Err(error) => Err(explain(&error, store.data())),
    }
}
