//! Maps a function, as written in a call, to the type that describes it.
//!
//! The type of a function has no name that a trait could be implemented for. So `#[workflow]` and
//! `#[task]` mark what the function returns, and any function that returns something marked can be
//! called.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use crate::error::Error;
use crate::function::{Function, FunctionResult};

/// A function with `#[workflow]` or `#[task]`: the first argument of `invoke(fetch_user, 42)`.
///
/// `A` is the tuple of its arguments, which the compiler infers. Pass the function itself: only its
/// identity is used, so a closure around a function stands for that function, and the rest of the
/// closure does not run.
///
/// ```compile_fail
/// # use onward::prelude::*;
/// fn plain(n: u64) -> Result<u64> {
///     Ok(n)
/// }
/// # #[workflow]
/// # fn example() -> Result<u64> {
/// invoke(plain, 1)
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a workflow nor a task",
    note = "put #[workflow] or #[task] on the function",
    note = "a variable of the same name hides a function: `self::name` means the function"
)]
pub trait Callable<A> {
    /// The type that describes the function.
    type Function: Function;
}

/// The input of a function: its argument, or the tuple of its arguments.
pub type InputOf<F, A> = <<F as Callable<A>>::Function as Function>::Input;

/// The result of a function that succeeds.
pub type OutputOf<F, A> = <<F as Callable<A>>::Function as Function>::Output;

macro_rules! callable {
    ($($argument:ident)*) => {
        impl<F, M: Function, T, E, $($argument),*> Callable<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> Result<T, DirectCallError<M, E>>,
        {
            type Function = M;
        }
    };
}

callable!();
callable!(A1);
callable!(A1 A2);
callable!(A1 A2 A3);
callable!(A1 A2 A3 A4);
callable!(A1 A2 A3 A4 A5);
callable!(A1 A2 A3 A4 A5 A6);
callable!(A1 A2 A3 A4 A5 A6 A7);
callable!(A1 A2 A3 A4 A5 A6 A7 A8);
callable!(A1 A2 A3 A4 A5 A6 A7 A8 A9);
callable!(A1 A2 A3 A4 A5 A6 A7 A8 A9 A10);
callable!(A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11);
callable!(A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12);

/// The return type of a plain call of the workflow or task `F` that is declared to return `R`.
pub type DirectCallResult<F, R> =
    Result<<R as FunctionResult>::Output, DirectCallError<F, <R as FunctionResult>::Error>>;

/// The failure of a plain call of the workflow or task `F`: the error that it returned, and the
/// marker type that makes the function callable.
///
/// `?` converts it into an [`Error`].
pub struct DirectCallError<F, E = Error> {
    error: E,
    function: PhantomData<fn() -> F>,
}

impl<F, E> DirectCallError<F, E> {
    /// Adds the marker to the return value of the function.
    #[doc(hidden)]
    pub fn mark_result<R: FunctionResult<Error = E>>(returned: R) -> DirectCallResult<F, R> {
        returned.into_std().map_err(|error| Self {
            error,
            function: PhantomData,
        })
    }

    /// The error that the function returned.
    pub fn into_inner(self) -> E {
        self.error
    }
}

impl<F, E> Deref for DirectCallError<F, E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.error
    }
}

impl<F, E: Into<Error>> From<DirectCallError<F, E>> for Error {
    fn from(failed: DirectCallError<F, E>) -> Self {
        failed.error.into()
    }
}

impl<F, E: fmt::Debug> fmt::Debug for DirectCallError<F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<F, E: fmt::Display> fmt::Display for DirectCallError<F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<F, E: PartialEq> PartialEq for DirectCallError<F, E> {
    fn eq(&self, other: &Self) -> bool {
        self.error == other.error
    }
}

impl<F, E: PartialEq> PartialEq<E> for DirectCallError<F, E> {
    fn eq(&self, other: &E) -> bool {
        self.error == *other
    }
}
