//! A component that was loaded: what it is called by, what it can do, and how to call it.

use std::fmt;
use std::sync::Arc;

use onward_execution::Guest;
use onward_journal::{ComponentDigest, ExecutionError, InvokeResult, Name, Payload, Text};
use wasmtime::Store;

use crate::bindings::{self, ComponentPre};
use crate::config::WorkflowLimits;
use crate::guest::{Call, Workflow};
use crate::host::{Data, OwnContext};
use crate::runtime::Shared;
use crate::stop::{defect, named};
use crate::task::{self, TaskCall};

/// A compiled component. A clone is a counter, not a copy.
#[derive(Clone)]
pub struct Component(Arc<Inner>);

struct Inner {
    digest: ComponentDigest,
    functions: Vec<FunctionInfo>,
    pre: ComponentPre<Data>,
    weight: u32,
    shared: Arc<Shared>,
}

/// A function that a component describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionInfo {
    /// What it is called by.
    pub name: Name,
    /// What sort it is.
    pub kind: Kind,
    /// A JSON schema of its input.
    pub schema: Option<Payload>,
}

/// The sorts of functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Durable; asks the engine for everything.
    Workflow,
    /// A leaf with effects.
    Task,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Workflow => "workflow",
            Self::Task => "task",
        })
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component").field("digest", &self.0.digest).field("functions", &self.0.functions).finish()
    }
}

impl Component {
    pub(crate) fn new(
        digest: ComponentDigest,
        functions: Vec<FunctionInfo>,
        pre: ComponentPre<Data>,
        weight: u32,
        shared: Arc<Shared>,
    ) -> Self {
        Self(Arc::new(Inner { digest, functions, pre, weight, shared }))
    }

    /// The digest of its bytes.
    pub fn digest(&self) -> ComponentDigest {
        self.0.digest
    }

    /// What it can do.
    pub fn functions(&self) -> &[FunctionInfo] {
        &self.0.functions
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<&FunctionInfo> {
        self.0.functions.iter().find(|function| &*function.name == name)
    }

    /// A workflow to be run by its turns. Nothing is instantiated before the first; dropping it frees everything.
    pub fn workflow(
        &self,
        function: &str,
        input: &Payload,
        context: OwnContext,
        limits: WorkflowLimits,
    ) -> Box<dyn Guest> {
        let call =
            Call { component: self.clone(), function: Text::from(function), input: input.clone(), context, limits };
        Box::new(Workflow::new(call))
    }

    /// Runs a task to its end. Dropping the future cancels it. Needs a tokio runtime with its timer and its network.
    pub async fn task(&self, function: &str, input: &Payload, call: TaskCall) -> InvokeResult {
        task::run(self, function, input, call).await
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// How many places of the pool an instance takes.
    pub(crate) fn weight(&self) -> u32 {
        self.0.weight
    }

    /// Refuses what is not a function of this kind.
    pub(crate) fn require(&self, name: &str, kind: Kind) -> Result<(), ExecutionError> {
        match self.function(name) {
            Some(function) if function.kind == kind => Ok(()),
            Some(function) => Err(named("unknown_function", format!("`{name}` is a {}, not a {kind}", function.kind))),
            None => Err(named("unknown_function", format!("{} has no function `{name}`", self.0.digest))),
        }
    }

    /// A store that yields after each slice of fuel.
    pub(crate) fn store(&self, data: Data, fuel_slice: u64) -> Result<Store<Data>, ExecutionError> {
        let store = self.0.shared.store(data, u64::MAX, Some(fuel_slice.max(1)));
        store.map_err(|error| defect(format_args!("{error:#}")))
    }

    pub(crate) async fn instantiate(&self, store: &mut Store<Data>) -> wasmtime::Result<bindings::Component> {
        self.0.pre.instantiate_async(store).await
    }
}
