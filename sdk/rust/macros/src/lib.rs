//! The attributes of the SDK. Each leaves its function as it is, and adds a type of the same name that knows the function's
//! name, input and output, so that calls need no strings and are checked by the compiler.

mod expand;

use proc_macro::TokenStream;
use syn::{ItemFn, parse_macro_input};

use crate::expand::{Kind, expand};

/// Makes a function a workflow: durable, replayed after a crash, calling others through `onward`.
///
/// The function takes owned values that serde can read and returns a `Result` of one that serde can write. It stays
/// a function; its name is now also a type, for `invoke::<name>(input)` and the like.
#[proc_macro_attribute]
pub fn workflow(arguments: TokenStream, item: TokenStream) -> TokenStream {
    attribute(arguments, item, Kind::Workflow)
}

/// Makes a function a task: a leaf that has effects, runs at least once, and is retried when it fails.
///
/// The function takes owned values that serde can read and returns a `Result` of one that serde can write. It stays
/// a function; its name is now also a type, for `invoke::<name>(input)` and the like.
#[proc_macro_attribute]
pub fn task(arguments: TokenStream, item: TokenStream) -> TokenStream {
    attribute(arguments, item, Kind::Task)
}

fn attribute(arguments: TokenStream, item: TokenStream, kind: Kind) -> TokenStream {
    let item = parse_macro_input!(item as ItemFn);
    expand(&arguments.into(), &item, kind).unwrap_or_else(|error| error.to_compile_error()).into()
}
