//! A component that was loaded: what it is called by, what it can do, and how to call it.

use std::fmt;
use std::sync::Arc;

use onward_base::{BoundedName, Payload, SharedText};
use onward_execution::Guest;
use onward_journal::{ComponentDigest, ExecutionError, InvokeResult};
use wasmtime::Store;

use crate::bindings::{self, ComponentPre};
use crate::config::WorkflowLimits;
use crate::guest_error::{host_defect_error, permanent_error};
use crate::host::{CallContext, GuestState};
use crate::runtime::InstancePool;
use crate::task::{self, TaskCall};
use crate::workflow_guest::{WorkflowCall, WorkflowGuest};

/// A compiled component. A clone is a counter, not a copy.
#[derive(Clone)]
pub struct LoadedComponent(Arc<ComponentInner>);

struct ComponentInner {
    digest: ComponentDigest,
    functions: Vec<GuestFunction>,
    pre: ComponentPre<GuestState>,
    weight: u32,
    instance_pool: Arc<InstancePool>,
}

/// A function that a component describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFunction {
    /// What it is called by.
    pub name: BoundedName,
    /// What sort it is.
    pub kind: GuestFunctionKind,
    /// A JSON schema of its input.
    pub schema: Option<Payload>,
}

/// The sorts of functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestFunctionKind {
    /// Durable; asks the engine for everything.
    Workflow,
    /// A leaf with effects.
    Task,
}

impl fmt::Display for GuestFunctionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Workflow => "workflow",
            Self::Task => "task",
        })
    }
}

impl fmt::Debug for LoadedComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component")
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

    /// The digest of its bytes.
    pub fn digest(&self) -> ComponentDigest {
        self.0.digest
    }

    /// What it can do.
    pub fn functions(&self) -> &[GuestFunction] {
        &self.0.functions
    }

    /// The function of this name.
    pub fn find_function(&self, name: &str) -> Option<&GuestFunction> {
        self.0
            .functions
            .iter()
            .find(|function| &*function.name == name)
    }

    /// A workflow to be run by its turns. Nothing is instantiated before the first; dropping it frees everything.
    pub fn new_workflow(
        &self,
        function: &str,
        input: &Payload,
        context: CallContext,
        limits: WorkflowLimits,
    ) -> Box<dyn Guest> {
        let call = WorkflowCall {
            component: self.clone(),
            function: SharedText::from(function),
            input: input.clone(),
            context,
            limits,
        };
        Box::new(WorkflowGuest::new(call))
    }

    /// Runs a task to its end. Dropping the future cancels it. Needs a tokio runtime with its timer and its network.
    pub async fn run_task(&self, function: &str, input: &Payload, call: TaskCall) -> InvokeResult {
        task::run_task(self, function, input, call).await
    }

    pub(crate) fn instance_pool(&self) -> &Arc<InstancePool> {
        &self.0.instance_pool
    }

    /// How many places of the pool an instance takes.
    pub(crate) fn weight(&self) -> u32 {
        self.0.weight
    }

    /// Refuses what is not a function of this kind.
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

    /// A store that yields after each slice of fuel.
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
