//! WASI for runtimes of languages that cannot do without: a clock, randomness, and two places to write lines to. There are
//! no files, no arguments and nobody to talk to. A workflow gets the clock and randomness that are recorded, so it stays
//! deterministic; what it writes is logged.
//!
//! A component may import more than there is here: a runtime brings its whole library along. What it then calls in vain
//! stops it, and the error says what it was.

mod clocks;
mod random;
mod streams;
mod surroundings;

use wasmtime::component::types::{ComponentInstance, ComponentItem};
use wasmtime::component::{Component, Linker, LinkerInstance, ResourceType};
use wasmtime::{Engine, Result};

use crate::host::Data;
use crate::stop::{Stop, trap};

pub(crate) use streams::Lines;

/// Packages of WASI of which at least something is here.
const PACKAGES: [&str; 5] = ["wasi:cli", "wasi:clocks", "wasi:filesystem", "wasi:io", "wasi:random"];
const VERSION: &str = "0.2.";

type Instance<'a> = LinkerInstance<'a, Data>;

/// Resources that a guest can name. It never gets more than streams and what to wait for.
enum Input {}
enum Output {}
enum Failure {}
enum Pollable {}
enum Terminal {}
enum Descriptor {}
enum Entries {}

/// Whether an import is of a package that is here.
pub(crate) fn is_virtual(import: &str) -> bool {
    interface(import).is_some()
}

/// The interface that an import names, without its version.
fn interface(import: &str) -> Option<&str> {
    let (interface, version) = import.split_once('@')?;
    let (package, _) = interface.split_once('/')?;
    (PACKAGES.contains(&package) && version.starts_with(VERSION)).then_some(interface)
}

/// Defines what a component imports of WASI, in the versions that it wants.
pub(crate) fn provide(linker: &mut Linker<Data>, component: &Component, engine: &Engine) -> Result<()> {
    for (import, item) in component.component_type().imports(engine) {
        if let (Some(interface), ComponentItem::ComponentInstance(wanted)) = (interface(import), item.ty) {
            define(&mut linker.instance(import)?, interface, &wanted, engine)?;
        }
    }
    Ok(())
}

fn define(instance: &mut Instance<'_>, interface: &str, wanted: &ComponentInstance, engine: &Engine) -> Result<()> {
    for (name, item) in wanted.exports(engine) {
        match item.ty {
            ComponentItem::Resource(_) => instance.resource(name, resource(name), |_, _| Ok(()))?,
            ComponentItem::ComponentFunc(_) => function(instance, interface, name)?,
            _ => {}
        }
    }
    Ok(())
}

/// A resource goes by one name in all interfaces.
fn resource(name: &str) -> ResourceType {
    match name {
        "input-stream" => ResourceType::host::<Input>(),
        "output-stream" => ResourceType::host::<Output>(),
        "error" => ResourceType::host::<Failure>(),
        "pollable" => ResourceType::host::<Pollable>(),
        "descriptor" => ResourceType::host::<Descriptor>(),
        "directory-entry-stream" => ResourceType::host::<Entries>(),
        _ => ResourceType::host::<Terminal>(),
    }
}

fn function(instance: &mut Instance<'_>, interface: &str, name: &str) -> Result<()> {
    let defined = match interface {
        "wasi:clocks/wall-clock" | "wasi:clocks/monotonic-clock" => clocks::define(instance, interface, name)?,
        "wasi:random/random" | "wasi:random/insecure" | "wasi:random/insecure-seed" => random::define(instance, name)?,
        "wasi:io/streams" | "wasi:io/poll" | "wasi:io/error" => streams::define(instance, name)?,
        _ => surroundings::define(instance, name)?,
    };
    if !defined {
        let called = format!("it called `{interface}#{name}`, which there is not");
        instance.func_new(name, move |_, _, _, _| Err(Stop(trap(called.clone())).into()))?;
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
            assert_eq!(is_virtual(import), expected, "{import}");
        }
    }
}
