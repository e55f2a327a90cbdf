//! Checks that a component must pass before it is loaded.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use onward_base::{BoundedName, NameError, Payload, SharedText};
use onward_journal::ComponentDigest;
use thiserror::Error;
use wasmtime::Trap;
use wasmtime::component::Linker;
use wasmtime::component::types::ComponentItem;

use crate::bindings::{self, ComponentPre, types};
use onward_execution::{GuestFunction, GuestFunctionKind};

use crate::component::LoadedComponent;
use crate::config::Config;
use crate::guest_error::explain_call_error;
use crate::host::{CallContext, GuestState, InstanceRole};
use crate::limiter::InstanceLimiter;
use crate::memory_budget::MemoryReservation;
use crate::runtime::{InstancePool, TABLES_PER_SLOT};
use crate::wasi;

/// Maximum weight of a component, which is also the maximum number of its memories.
pub(crate) const COMPONENT_WEIGHT_MAX: u32 = 4;
/// Fuel limit of `describe`. A component that needs more is refused as broken.
const DESCRIBE_FUEL_MAX: u64 = 10_000_000_000;
/// Prefixes of the interfaces and versions that are compatible with this host.
const INTERFACE_PREFIX: &str = "onward:guest/";
const VERSION_PREFIX: &str = "0.1.";

/// Reason why a component is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LoadError {
    /// The component is larger than the configuration allows.
    #[error("the component has {bytes} bytes, the limit is {max}")]
    TooLarge {
        /// Size of the component in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        max: usize,
    },
    /// The component has more code, or a larger function, than the configuration allows.
    #[error("{what} of the component has at least {bytes} bytes, the limit is {max}")]
    TooMuchCode {
        /// What is too large: all code or one function.
        what: &'static str,
        /// Size in bytes, as far as it was counted.
        bytes: usize,
        /// Maximum size in bytes.
        max: usize,
    },
    /// Compiling takes longer than the configuration allows. The compiler goes on: a later load may
    /// find the component ready.
    #[error("the component is not compiled after {ms} ms; try again later")]
    CompileTimeout {
        /// The timeout in milliseconds.
        ms: u128,
    },
    /// The bytes are not a valid component.
    #[error("not a component: {0}")]
    Invalid(String),
    /// The component imports an interface that the host does not provide.
    #[error(
        "unsupported import `{0}`: a component can import `onward:guest` 0.1 and a part of WASI 0.2"
    )]
    ForeignImport(String),
    /// The component imports a provided interface with different types.
    #[error("the imports of the component do not match the host interface: {0}")]
    WrongImport(String),
    /// The component lacks a function that the world `component` requires.
    #[error("the component does not export the function `{0}`")]
    MissingExport(&'static str),
    /// An exported function has a different type than the world `component` requires.
    #[error("the exports of the component do not match the guest interface: {0}")]
    WrongExport(String),
    /// The component needs more memories or tables than one component may have.
    #[error("the component needs {what}, the limit is {max}")]
    TooDemanding {
        /// The resource and the number of them that the component needs.
        what: String,
        /// Maximum number of this resource.
        max: u32,
    },
    /// The component's `describe` failed, so its functions are unknown.
    #[error("`describe` failed: {0}")]
    Describe(String),
    /// The component has more functions than the configuration allows.
    #[error("the component has {count} functions, the limit is {max}")]
    TooManyFunctions {
        /// Number of functions of the component.
        count: usize,
        /// Maximum number of functions.
        max: usize,
    },
    /// The name of a function is invalid.
    #[error("a function of the component: {0}")]
    FunctionName(#[from] NameError),
    /// Two functions have the same name.
    #[error("the component has two functions `{0}`")]
    DuplicateFunction(BoundedName),
    /// The input schema of a function is not valid JSON.
    #[error("the schema of `{function}` is {reason}")]
    Schema {
        /// The function with the invalid schema.
        function: BoundedName,
        /// Why the schema is invalid.
        reason: String,
    },
}

impl LoadError {
    pub(crate) fn from_compile_error(error: &wasmtime::Error) -> Self {
        Self::Invalid(format!("{error:#}"))
    }
}

/// Checks a compiled component and calls its `describe` to read its functions.
pub(crate) fn admit_component(
    digest: ComponentDigest,
    compiled: &wasmtime::component::Component,
    shared: &Arc<InstancePool>,
    linker: &Linker<GuestState>,
    config: &Config,
) -> Result<LoadedComponent, LoadError> {
    check_imports(compiled, shared)?;
    check_exports(compiled, shared)?;
    let weight = component_weight(compiled)?;
    let mut linker = linker.clone();
    let pre = wasi::link_wasi_imports(&mut linker, compiled, shared.engine())
        .and_then(|()| linker.instantiate_pre(compiled))
        .map_err(|error| LoadError::WrongImport(format!("{error:#}")))?;
    let pre =
        ComponentPre::new(pre).map_err(|error| LoadError::WrongExport(format!("{error:#}")))?;
    let described = describe_functions(&pre, shared, config)?;
    let functions = parse_functions(described, config.functions_max)?;
    Ok(LoadedComponent::new(
        digest,
        functions,
        pre,
        weight,
        Arc::clone(shared),
    ))
}

fn check_imports(
    compiled: &wasmtime::component::Component,
    shared: &InstancePool,
) -> Result<(), LoadError> {
    let component = compiled.component_type();
    let foreign = component
        .imports(shared.engine())
        .find(|(name, _)| !is_onward_import(name) && !wasi::is_virtual_import(name));
    foreign.map_or(Ok(()), |(name, _)| {
        Err(LoadError::ForeignImport(name.to_owned()))
    })
}

fn is_onward_import(import: &str) -> bool {
    let Some((interface, version)) = import
        .strip_prefix(INTERFACE_PREFIX)
        .and_then(|rest| rest.split_once('@'))
    else {
        return false;
    };
    matches!(interface, "types" | "host" | "workflow" | "task")
        && version.starts_with(VERSION_PREFIX)
}

fn check_exports(
    compiled: &wasmtime::component::Component,
    shared: &InstancePool,
) -> Result<(), LoadError> {
    let component = compiled.component_type();
    for name in ["describe", "call"] {
        match component
            .get_export(shared.engine(), name)
            .map(|item| item.ty)
        {
            Some(ComponentItem::ComponentFunc(_)) => {}
            _ => return Err(LoadError::MissingExport(name)),
        }
    }
    Ok(())
}

/// Number of pool slots that an instance occupies: one for each memory or for each
/// [`TABLES_PER_SLOT`] tables, whichever is more.
fn component_weight(compiled: &wasmtime::component::Component) -> Result<u32, LoadError> {
    let too_demanding = |what, max| Err(LoadError::TooDemanding { what, max });
    let Some(needs) = compiled.resources_required() else {
        return too_demanding("modules that it imports".to_owned(), 0);
    };
    if needs.num_memories > COMPONENT_WEIGHT_MAX {
        return too_demanding(
            format!("{} memories", needs.num_memories),
            COMPONENT_WEIGHT_MAX,
        );
    }
    if needs.num_tables > COMPONENT_WEIGHT_MAX * TABLES_PER_SLOT {
        return too_demanding(
            format!("{} tables", needs.num_tables),
            COMPONENT_WEIGHT_MAX * TABLES_PER_SLOT,
        );
    }
    Ok(needs
        .num_memories
        .max(needs.num_tables.div_ceil(TABLES_PER_SLOT))
        .max(1))
}

fn describe_functions(
    pre: &ComponentPre<GuestState>,
    shared: &InstancePool,
    config: &Config,
) -> Result<Vec<types::Function>, LoadError> {
    let context = CallContext {
        execution: SharedText::from(""),
        idempotency_key: SharedText::from(""),
        attempt: 1,
    };
    let limiter = InstanceLimiter::new(
        config.memory_bytes_max,
        config.table_elements_max,
        MemoryReservation::uncounted(),
    );
    let slice = shared.slice_clock();
    let role = InstanceRole::Describe {
        ticks_max: slice.ticks_in(config.describe_timeout),
    };
    let data = GuestState::new(role, context, limiter, 0, slice);
    let mut store = shared
        .new_store(data, DESCRIBE_FUEL_MAX, None)
        .map_err(|error| LoadError::Describe(format!("{error:#}")))?;
    let waits = || LoadError::Describe("it makes a request that waits".to_owned());
    let failed = |error: wasmtime::Error, data: &GuestState| match error.downcast_ref() {
        Some(Trap::Interrupt) => {
            let max = config.describe_timeout.as_millis();
            LoadError::Describe(format!("it takes longer than {max} ms"))
        }
        _ => LoadError::Describe(explain_call_error(&error, data).message.to_string()),
    };
    let instance = poll_once(pre.instance_pre().instantiate_async(&mut store))
        .ok_or_else(waits)?
        .map_err(|error| failed(error, store.data()))?;
    let typed = bindings::Component::new(&mut store, &instance)
        .map_err(|error| LoadError::WrongExport(format!("{error:#}")))?;
    poll_once(typed.call_describe(&mut store))
        .ok_or_else(waits)?
        .map_err(|error| failed(error, store.data()))
}

/// Polls a future once; `None` if it is pending. During `describe` every host function responds
/// immediately, so the future never waits.
fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn parse_functions(
    described: Vec<types::Function>,
    max: usize,
) -> Result<Vec<GuestFunction>, LoadError> {
    if described.len() > max {
        return Err(LoadError::TooManyFunctions {
            count: described.len(),
            max,
        });
    }
    let mut functions: Vec<GuestFunction> = Vec::with_capacity(described.len());
    for function in described {
        let name: BoundedName = function.name.parse()?;
        if functions.iter().any(|other| other.name == name) {
            return Err(LoadError::DuplicateFunction(name));
        }
        let kind = match function.kind {
            types::Kind::Workflow => GuestFunctionKind::Workflow,
            types::Kind::Task => GuestFunctionKind::Task,
        };
        let schema = match function.schema.as_deref().map(Payload::parse).transpose() {
            Ok(schema) => schema,
            Err(error) => {
                return Err(LoadError::Schema {
                    function: name,
                    reason: error.to_string(),
                });
            }
        };
        functions.push(GuestFunction { name, kind, schema });
    }
    Ok(functions)
}
