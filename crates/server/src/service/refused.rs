//! What the engine and the store refuse, as problems.

use onward_api::problem::{Code, Problem};
use onward_engine::client::Refused;
use onward_store::{Error, Invalid};

/// Why a client refused.
pub(super) fn problem(refused: Refused) -> Problem {
    let code = match &refused {
        Refused::Store(_) => Code::Internal,
        Refused::NoFunction(_) => Code::NoFunction,
        Refused::NotAWorkflow(_) => Code::NotAWorkflow,
        Refused::NoExecution(_) => Code::NoExecution,
        Refused::Over(_) => Code::ExecutionOver,
        Refused::KeyTaken(_) => Code::KeyTaken,
        Refused::Deployed(_) => Code::Conflict,
        Refused::LeaseLost => Code::LeaseLost,
        Refused::TooLarge { .. } => Code::TooLarge,
    };
    match refused {
        Refused::Store(error) => store(error),
        other => Problem::new(code, other.to_string()),
    }
}

/// Why a store refused.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn store(error: Error) -> Problem {
    let code = match &error {
        Error::Unavailable(_) | Error::Full(_) | Error::Poisoned(_) | Error::Unusable(_) | Error::Closed => {
            Code::Unavailable
        }
        Error::OutcomeUnknown(_) => Code::OutcomeUnknown,
        Error::Conflict(_) => Code::Conflict,
        Error::Invalid(Invalid::NoSuchRun(_)) => Code::NoRun,
        Error::Invalid(_) => Code::Unprocessable,
        Error::Corrupt(_) => Code::Corrupt,
    };
    Problem::new(code, error.to_string())
}

/// Something that cannot be read.
pub(super) fn unreadable(what: &str, error: impl std::fmt::Display) -> Problem {
    Problem::new(Code::InvalidRequest, format!("{what}: {error}"))
}

/// A text that is not longer than it may be.
pub(super) fn fitting(what: &str, text: &str, characters_max: usize) -> Result<(), Problem> {
    let found = text.chars().count();
    let words = || format!("{what} has {found} characters, at most {characters_max} are allowed");
    if found > characters_max { Err(Problem::new(Code::Unprocessable, words())) } else { Ok(()) }
}
