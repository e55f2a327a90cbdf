//! Rust bindings of the host interface, generated from `sdk/wit/onward.wit`.

wasmtime::component::bindgen!({
    path: "../../sdk/wit",
    world: "component",
    imports: { default: async | trappable },
    exports: { default: async },
});

pub(crate) use onward::guest::{host, task, types, workflow};
