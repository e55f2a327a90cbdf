//! Exports functions as a component.

/// Exports these workflows and tasks as the functions of the component. Use it once, in a `cdylib`
/// crate.
///
/// ```
/// # use onward::prelude::*;
/// #[task]
/// fn greet(name: String) -> Result<String> {
///     Ok(format!("hello {name}"))
/// }
///
/// #[workflow]
/// fn welcome(name: String) -> Result<String> {
///     invoke(greet, name)
/// }
///
/// onward::component!(welcome, greet);
/// # fn main() {}
/// ```
///
/// Names must be unique:
///
/// ```compile_fail
/// # use onward::prelude::*;
/// #[task]
/// fn greet() -> Result<()> {
///     Ok(())
/// }
///
/// onward::component!(greet, greet);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! component {
    ($($function:path),+ $(,)?) => {
        const _: () = {
            const FUNCTIONS: &[$crate::component::FunctionEntry] = &[$($crate::component::FunctionEntry::of::<$function>()),+];
            ::core::assert!($crate::component::names_are_distinct(FUNCTIONS), "two functions of the component have one name");
            $crate::__export!(FUNCTIONS);
        };
    };
}

/// Exports the table to the host.
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($functions:expr) => {
        struct Component;

        impl $crate::bindings::Guest for Component {
            fn describe() -> ::std::vec::Vec<$crate::bindings::onward::guest::types::Function> {
                $crate::component::describe_functions($functions)
            }

            fn call(
                function: ::std::string::String,
                input: ::std::string::String,
            ) -> ::core::result::Result<::std::string::String, $crate::bindings::onward::guest::types::Failure> {
                $crate::component::call_function($functions, &function, &input)
            }
        }

        $crate::bindings::__onward_export!(Component with_types_in $crate::bindings);
    };
}

/// In a native build there is no host: the table is only type-checked.
#[cfg(not(target_arch = "wasm32"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($functions:expr) => {
        const _: &[$crate::component::FunctionEntry] = $functions;
    };
}

#[doc(hidden)]
pub use crate::function::FunctionEntry;

/// Whether all names differ. Evaluated at compile time, so it is limited to const operations.
#[doc(hidden)]
pub const fn names_are_distinct(functions: &[FunctionEntry]) -> bool {
    let mut first = 0;
    while first < functions.len() {
        let mut second = first + 1;
        while second < functions.len() {
            if bytes_are_equal(
                functions[first].name.as_bytes(),
                functions[second].name.as_bytes(),
            ) {
                return false;
            }
            second += 1;
        }
        first += 1;
    }
    true
}

const fn bytes_are_equal(mut left: &[u8], mut right: &[u8]) -> bool {
    loop {
        match (left, right) {
            ([], []) => return true,
            ([one, left_rest @ ..], [other, right_rest @ ..]) if *one == *other => {
                (left, right) = (left_rest, right_rest);
            }
            _ => return false,
        }
    }
}
#[cfg(target_arch = "wasm32")]
pub use guest::{call_function, describe_functions};

#[cfg(target_arch = "wasm32")]
mod guest {
    use std::panic;

    use crate::bindings::onward::guest::types::{self, Failure, Function};

    use crate::function::{FunctionEntry, FunctionKind};
    use crate::log::LogLevel;
    use crate::{Error, host};

    #[doc(hidden)]
    pub fn describe_functions(functions: &[FunctionEntry]) -> Vec<Function> {
        functions.iter().map(describe_function).collect()
    }

    fn describe_function(entry: &FunctionEntry) -> Function {
        let kind = match entry.kind {
            FunctionKind::Workflow => types::Kind::Workflow,
            FunctionKind::Task => types::Kind::Task,
        };
        Function {
            name: entry.name.to_owned(),
            kind,
            schema: (entry.schema)(),
        }
    }

    #[doc(hidden)]
    pub fn call_function(
        functions: &[FunctionEntry],
        name: &str,
        input: &str,
    ) -> Result<String, Failure> {
        let Some(entry) = functions.iter().find(|entry| entry.name == name) else {
            let message = format!("the component has no function {name}");
            return Err(to_failure(
                Error::new("unknown_function", message).non_retryable(),
            ));
        };
        // A panic becomes a trap without a message, so the message is logged.
        panic::set_hook(Box::new(|info| {
            host::log(LogLevel::Error, &info.to_string())
        }));
        host::enter_function(entry);
        (entry.run)(input).map_err(to_failure)
    }

    fn to_failure(error: Error) -> Failure {
        let Error {
            kind,
            message,
            retryable,
        } = error;
        Failure {
            kind,
            message,
            retryable,
        }
    }
}
