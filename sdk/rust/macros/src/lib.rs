//! The attributes of the SDK. Each adds a type with the function's name that describes its name,
//! input and output, so that calls need no strings and are checked by the compiler.

mod expand;

use proc_macro::TokenStream;
use syn::{ItemFn, parse_macro_input};

use crate::expand::{AttributeKind, expand_function};

/// Declares a workflow: durable, replayed after a crash, calls other functions through `onward`.
///
/// The function takes owned values that serde can deserialize, and returns a `Result` of a value
/// that serde can serialize. `invoke(name, input)?` and similar functions call it durably;
/// `name(input)?` calls it directly, without a record.
///
/// `#[workflow(schema)]` also embeds a JSON schema of the input in the component. It requires the
/// feature `schema` of the SDK, and `JsonSchema` of the input.
#[proc_macro_attribute]
pub fn workflow(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand_attribute(arguments, item, AttributeKind::Workflow)
}

/// Declares a task: a leaf with side effects, which runs at least once and is retried when it
/// fails.
///
/// The function takes owned values that serde can deserialize, and returns a `Result` of a value
/// that serde can serialize. `invoke(name, input)?` and similar functions call it durably;
/// `name(input)?` calls it directly, without a record.
///
/// `#[task(schema)]` also embeds a JSON schema of the input in the component. It requires the
/// feature `schema` of the SDK, and `JsonSchema` of the input.
#[proc_macro_attribute]
pub fn task(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand_attribute(arguments, item, AttributeKind::Task)
}

fn expand_attribute(arguments: TokenStream, item: TokenStream, kind: AttributeKind) -> TokenStream {
    let item = parse_macro_input!(item as ItemFn);
    expand_function(&arguments.into(), &item, kind)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
