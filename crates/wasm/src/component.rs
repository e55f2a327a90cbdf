//! A loaded component: its digest, its functions, and the calls into them.

use std::fmt;
use std::sync::Arc;

use onward_base::{Payload, SharedText};
use onward_execution::{Guest, GuestFunction, GuestFunctionKind};
use onward_journal::{ComponentDigest, ExecutionError, InvokeResult};
use wasmtime::Store;

use crate::bindings::{self, ComponentPre};
use crate::config::WorkflowLimits;
use crate::guest_error::{host_defect_error, permanent_error};
use crate::host::{CallContext, GuestState};
use crate::runtime::InstancePool;
use crate::task::{self, TaskCall};
use crate::workflow_guest::{WorkflowCall, WorkflowGuest};

/// A compiled component that passed all checks. Clones share the same component.
#[derive(Clone)]
pub struct LoadedComponent(Arc<ComponentInner>);

struct ComponentInner {
    digest: ComponentDigest,
    functions: Vec<GuestFunction>,
    pre: ComponentPre<GuestState>,
    weight: u32,
    instance_pool: Arc<InstancePool>,
}

impl fmt::Debug for LoadedComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedComponent")
            .field("digest", &self.0.digest)
            .field("functions", &self.0.functions)
            .finish()
    }
}

impl LoadedComponent {
    pub(crate) fn new(
        digest: ComponentDigest,
        functions: Vec<GuestFunction>,
        pre: ComponentPre<GuestState>,
        weight: u32,
        shared: Arc<InstancePool>,
    ) -> Self {
        Self(Arc::new(ComponentInner {
            digest,
            functions,
            pre,
            weight,
            instance_pool: shared,
        }))
    }

    /// Returns the digest of the component's bytes, which identifies it.
    pub fn digest(&self) -> ComponentDigest {
        self.0.digest
    }

    /// Returns the functions that the component exports.
    pub fn functions(&self) -> &[GuestFunction] {
        &self.0.functions
    }

    /// Returns the function with this name; `None` if the component exports no such function.
    pub fn find_function(&self, name: &str) -> Option<&GuestFunction> {
        self.0
            .functions
            .iter()
            .find(|function| &*function.name == name)
    }

    /// Creates a workflow guest of a tenant, which runs turn by turn. It is not instantiated before
    /// its first turn. Dropping the guest frees its instance.
    pub fn new_workflow(
        &self,
        tenant: &str,
        function: &str,
        input: &Payload,
        context: CallContext,
        limits: WorkflowLimits,
    ) -> Box<dyn Guest> {
        let call = WorkflowCall {
            component: self.clone(),
            tenant: SharedText::from(tenant),
            function: SharedText::from(function),
            input: input.clone(),
            context,
            limits,
        };
        Box::new(WorkflowGuest::new(call))
    }

    /// Runs a task to completion. Dropping the future cancels the task. Requires a tokio runtime
    /// with timers and network I/O enabled.
    pub async fn run_task(&self, function: &str, input: &Payload, call: TaskCall) -> InvokeResult {
        task::run_task(self, function, input, call).await
    }

    pub(crate) fn instance_pool(&self) -> &Arc<InstancePool> {
        &self.0.instance_pool
    }

    /// Number of pool slots that one instance occupies.
    pub(crate) fn weight(&self) -> u32 {
        self.0.weight
    }

    /// Fails with the permanent error `unknown_function` if the component has no function with this
    /// name and kind.
    pub(crate) fn require_function(
        &self,
        name: &str,
        kind: GuestFunctionKind,
    ) -> Result<(), ExecutionError> {
        match self.find_function(name) {
            Some(function) if function.kind == kind => Ok(()),
            Some(function) => Err(permanent_error(
                "unknown_function",
                format!("`{name}` is a {}, not a {kind}", function.kind),
            )),
            None => Err(permanent_error(
                "unknown_function",
                format!("{} has no function `{name}`", self.0.digest),
            )),
        }
    }

    /// Creates a wasmtime store that yields after each slice of fuel.
    pub(crate) fn new_store(
        &self,
        data: GuestState,
        fuel_slice: u64,
    ) -> Result<Store<GuestState>, ExecutionError> {
        let store = self
            .0
            .instance_pool
            .new_store(data, u64::MAX, Some(fuel_slice.max(1)));
        store.map_err(|error| host_defect_error(format_args!("{error:#}")))
    }

    pub(crate) async fn instantiate(
        &self,
        store: &mut Store<GuestState>,
    ) -> wasmtime::Result<bindings::Component> {
        self.0.pre.instantiate_async(store).await
    }
}
