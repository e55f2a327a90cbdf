//! What a program finds around it: no arguments, no variables, no files, no terminal, and a way to leave.

use wasmtime::Result;
use wasmtime::component::Resource;

use super::streams::{STDERR, STDOUT};
use super::{Descriptor, Input, Instance, Output, Terminal};
use crate::stop::{Stop, trap};

pub(super) fn define(instance: &mut Instance<'_>, name: &str) -> Result<bool> {
    match name {
        "get-environment" => {
            instance.func_wrap(name, |_, (): ()| Ok((Vec::<(String, String)>::new(),)))?;
        }
        "get-arguments" => instance.func_wrap(name, |_, (): ()| Ok((Vec::<String>::new(),)))?,
        "initial-cwd" => instance.func_wrap(name, |_, (): ()| Ok((None::<String>,)))?,
        "exit" => instance.func_wrap(name, |_, (_,): (std::result::Result<(), ()>,)| -> Result<()> {
            Err(Stop(trap("it called `exit` instead of returning")).into())
        })?,
        "get-stdin" => instance.func_wrap(name, |_, (): ()| Ok((Resource::<Input>::new_own(0),)))?,
        "get-stdout" => instance.func_wrap(name, |_, (): ()| Ok((Resource::<Output>::new_own(STDOUT),)))?,
        "get-stderr" => instance.func_wrap(name, |_, (): ()| Ok((Resource::<Output>::new_own(STDERR),)))?,
        "get-terminal-stdin" | "get-terminal-stdout" | "get-terminal-stderr" => {
            instance.func_wrap(name, |_, (): ()| Ok((None::<Resource<Terminal>>,)))?;
        }
        "get-directories" => {
            instance.func_wrap(name, |_, (): ()| Ok((Vec::<(Resource<Descriptor>, String)>::new(),)))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}
