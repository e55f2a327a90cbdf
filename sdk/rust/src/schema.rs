//! JSON schemas of inputs, for clients that start a workflow.

/// The schema of a type, used by the attributes. The type must implement `JsonSchema`:
///
/// ```compile_fail
/// # use onward::prelude::*;
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Secret;
///
/// #[task(schema)]
/// fn keep(secret: Secret) -> Result<()> {
///     Ok(())
/// }
/// ```
#[cfg(feature = "schema")]
#[doc(hidden)]
#[macro_export]
macro_rules! __schema {
    ($input:ty) => {
        $crate::schema::schema_of::<$input>()
    };
}

/// Without the feature `schema` the attribute fails to compile:
///
/// ```compile_fail
/// # use onward::prelude::*;
/// #[task(schema)]
/// fn double(n: u64) -> Result<u64> {
///     Ok(2 * n)
/// }
/// ```
#[cfg(not(feature = "schema"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __schema {
    ($input:ty) => {
        ::core::compile_error!(
            "`schema` needs a feature of the SDK: onward-sdk = { …, features = [\"schema\"] }"
        )
    };
}

/// The schema of a type, as a JSON text.
#[cfg(feature = "schema")]
pub fn schema_of<T: schemars::JsonSchema>() -> String {
    schemars::schema_for!(T).as_value().to_string()
}
