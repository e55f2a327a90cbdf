//! A minimal WASI for language runtimes that require it: a clock, randomness, and two output
//! streams. There are no files, no arguments and no network. A workflow gets the recorded clock and
//! randomness, so it stays deterministic; its output is logged.
//!
//! A component may import more functions than are implemented here, because a language runtime
//! links its whole standard library. A call to an unimplemented function stops the guest with an
//! error that names the function.

mod clocks;
mod environment;
mod random;
mod streams;

use wasmtime::component::types::{ComponentInstance, ComponentItem};
use wasmtime::component::{Component, Linker, LinkerInstance, ResourceType};
use wasmtime::{Engine, Result};

use crate::guest_error::{GuestStop, trap_error};
use crate::host::GuestState;

pub(crate) use streams::PartialLines;

/// WASI packages of which at least one function is implemented.
const WASI_PACKAGES: [&str; 5] = [
    "wasi:cli",
    "wasi:clocks",
    "wasi:filesystem",
    "wasi:io",
    "wasi:random",
];
const VERSION_PREFIX: &str = "0.2.";

type WasiLinker<'a> = LinkerInstance<'a, GuestState>;

/// Resource types that a guest can name. It only ever receives streams and pollables.
enum InputStreamResource {}
enum OutputStreamResource {}
enum IoErrorResource {}
enum PollableResource {}
enum TerminalResource {}
enum DescriptorResource {}
enum DirectoryEntriesResource {}

/// Whether an import belongs to a WASI package that is at least partly implemented.
pub(crate) fn is_virtual_import(import: &str) -> bool {
    wasi_interface(import).is_some()
}

/// Returns the interface of a supported import without its version; `None` if the package or the
/// version is not supported.
fn wasi_interface(import: &str) -> Option<&str> {
    let (interface, version) = import.split_once('@')?;
    let (package, _) = interface.split_once('/')?;
    (WASI_PACKAGES.contains(&package) && version.starts_with(VERSION_PREFIX)).then_some(interface)
}

/// Defines the WASI functions that a component imports, in the versions that it imports.
pub(crate) fn link_wasi_imports(
    linker: &mut Linker<GuestState>,
    component: &Component,
    engine: &Engine,
) -> Result<()> {
    for (import, item) in component.component_type().imports(engine) {
        if let (Some(interface), ComponentItem::ComponentInstance(wanted)) =
            (wasi_interface(import), item.ty)
        {
            define_interface(&mut linker.instance(import)?, interface, &wanted, engine)?;
        }
    }
    Ok(())
}

fn define_interface(
    instance: &mut WasiLinker<'_>,
    interface: &str,
    wanted: &ComponentInstance,
    engine: &Engine,
) -> Result<()> {
    for (name, item) in wanted.exports(engine) {
        match item.ty {
            ComponentItem::Resource(_) => {
                instance.resource(name, resource_type(name), |_, _| Ok(()))?
            }
            ComponentItem::ComponentFunc(_) => define_function(instance, interface, name)?,
            _ => {}
        }
    }
    Ok(())
}

/// Maps the name of a resource to its type; a resource has the same name in all interfaces.
fn resource_type(name: &str) -> ResourceType {
    match name {
        "input-stream" => ResourceType::host::<InputStreamResource>(),
        "output-stream" => ResourceType::host::<OutputStreamResource>(),
        "error" => ResourceType::host::<IoErrorResource>(),
        "pollable" => ResourceType::host::<PollableResource>(),
        "descriptor" => ResourceType::host::<DescriptorResource>(),
        "directory-entry-stream" => ResourceType::host::<DirectoryEntriesResource>(),
        _ => ResourceType::host::<TerminalResource>(),
    }
}

fn define_function(instance: &mut WasiLinker<'_>, interface: &str, name: &str) -> Result<()> {
    let defined = match interface {
        "wasi:clocks/wall-clock" | "wasi:clocks/monotonic-clock" => {
            clocks::define_clock_function(instance, interface, name)?
        }
        "wasi:random/random" | "wasi:random/insecure" | "wasi:random/insecure-seed" => {
            random::define_random_function(instance, name)?
        }
        "wasi:io/streams" | "wasi:io/poll" | "wasi:io/error" => {
            streams::define_stream_function(instance, name)?
        }
        _ => environment::define_environment_function(instance, name)?,
    };
    if !defined {
        let called = format!("it called `{interface}#{name}`, which does not exist");
        instance.func_new(name, move |_, _, _, _| {
            Err(GuestStop(trap_error(called.clone())).into())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_packages_are_virtual() {
        for (import, expected) in [
            ("wasi:cli/stdout@0.2.0", true),
            ("wasi:io/streams@0.2.11", true),
            ("wasi:sockets/tcp@0.2.0", false),
            ("wasi:http/outgoing-handler@0.2.0", false),
            ("wasi:cli/stdout@0.3.0", false),
            ("wasi:cli/stdout", false),
            ("wasi:cli", false),
        ] {
            assert_eq!(is_virtual_import(import), expected, "{import}");
        }
    }
}
