//! The attributes of the SDK. Each adds a type of the function's name that knows the name, the
//! input and the output, and marks the function with it, so that calls need no strings and are
//! checked by the compiler.

mod expand;

use proc_macro::TokenStream;
use syn::{ItemFn, parse_macro_input};

use crate::expand::{Kind, expand};

/// Makes a function a workflow: durable, replayed after a crash, calling others through `onward`.
///
/// The function takes owned values that serde can read and returns a `Result` of one that serde can
/// write. It is called durably with `invoke(name, input)?` and the like, and at once, unrecorded,
/// with `name(input)?`.
///
/// `#[workflow(schema)]` also puts a JSON schema of the input into the component, for whoever
/// starts the workflow. It needs the feature `schema` of the SDK, and `JsonSchema` of the input.
#[proc_macro_attribute]
pub fn workflow(arguments: TokenStream, item: TokenStream) -> TokenStream {
    attribute(arguments, item, Kind::Workflow)
}

/// Makes a function a task: a leaf that has effects, runs at least once, and is retried when it
/// fails.
///
/// The function takes owned values that serde can read and returns a `Result` of one that serde can
/// write. It is called durably with `invoke(name, input)?` and the like, and at once, unrecorded,
/// with `name(input)?`.
///
/// `#[task(schema)]` also puts a JSON schema of the input into the component. It needs the feature
/// `schema` of the SDK, and `JsonSchema` of the input.
#[proc_macro_attribute]
pub fn task(arguments: TokenStream, item: TokenStream) -> TokenStream {
    attribute(arguments, item, Kind::Task)
}

fn attribute(arguments: TokenStream, item: TokenStream, kind: Kind) -> TokenStream {
    let item = parse_macro_input!(item as ItemFn);
    expand(&arguments.into(), &item, kind)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
