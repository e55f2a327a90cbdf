//! The WASI environment of a guest: no arguments, variables, files or terminal; standard streams;
//! and `exit`, which stops the guest with an error.

use wasmtime::Result;
use wasmtime::component::Resource;

use super::streams::{STDERR, STDOUT};
use super::{
    DescriptorResource, InputStreamResource, OutputStreamResource, TerminalResource, WasiLinker,
};
use crate::guest_error::{GuestStop, trap_error};

pub(super) fn define_environment_function(
    instance: &mut WasiLinker<'_>,
    name: &str,
) -> Result<bool> {
    match name {
        "get-environment" => {
            instance.func_wrap(name, |_, (): ()| Ok((Vec::<(String, String)>::new(),)))?;
        }
        "get-arguments" => instance.func_wrap(name, |_, (): ()| Ok((Vec::<String>::new(),)))?,
        "initial-cwd" => instance.func_wrap(name, |_, (): ()| Ok((None::<String>,)))?,
        "exit" => instance.func_wrap(
            name,
            |_, (_,): (std::result::Result<(), ()>,)| -> Result<()> {
                Err(GuestStop(trap_error("it called `exit` instead of returning")).into())
            },
        )?,
        "get-stdin" => instance.func_wrap(name, |_, (): ()| {
            Ok((Resource::<InputStreamResource>::new_own(0),))
        })?,
        "get-stdout" => instance.func_wrap(name, |_, (): ()| {
            Ok((Resource::<OutputStreamResource>::new_own(STDOUT),))
        })?,
        "get-stderr" => instance.func_wrap(name, |_, (): ()| {
            Ok((Resource::<OutputStreamResource>::new_own(STDERR),))
        })?,
        "get-terminal-stdin" | "get-terminal-stdout" | "get-terminal-stderr" => {
            instance.func_wrap(name, |_, (): ()| Ok((None::<Resource<TerminalResource>>,)))?;
        }
        "get-directories" => {
            instance.func_wrap(name, |_, (): ()| {
                Ok((Vec::<(Resource<DescriptorResource>, String)>::new(),))
            })?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}
