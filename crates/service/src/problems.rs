//! Converts errors of the engine, the campaigns and the store to API problems.

use onward_api::problem::{Code, Problem};
use onward_campaign_dispatch::CampaignError;
use onward_engine::client::ClientError;
use onward_store::{Error, InvalidRequest};

/// Converts an error of the engine client to an API problem.
pub(super) fn engine_problem(refused: ClientError) -> Problem {
    let code = match &refused {
        ClientError::Store(_) => Code::Internal,
        ClientError::FunctionNotFound(_) => Code::NoFunction,
        ClientError::NotAWorkflow(_) => Code::NotAWorkflow,
        ClientError::ExecutionNotFound(_) => Code::NoExecution,
        ClientError::ExecutionEnded(_) => Code::ExecutionOver,
        ClientError::IdempotencyKeyConflict(_) => Code::KeyTaken,
        ClientError::FunctionDeployed(_) => Code::Conflict,
        ClientError::LeaseLost => Code::LeaseLost,
        ClientError::PayloadTooLarge { .. } => Code::TooLarge,
    };
    match refused {
        ClientError::Store(error) => store_problem(error),
        other => Problem::new(code, other.to_string()),
    }
}

/// Converts a campaign error to an API problem.
pub(super) fn campaign_problem(refused: CampaignError) -> Problem {
    let code = match &refused {
        CampaignError::RunNotFound(_)
        | CampaignError::ItemNotFound(_)
        | CampaignError::JobNotFound(_)
        | CampaignError::AudienceNotFound(_) => Code::NotFound,
        CampaignError::RunCancelled(_)
        | CampaignError::ItemNotInDoubt(_)
        | CampaignError::JobNotRedrivable(_)
        | CampaignError::RunNotFinished(_)
        | CampaignError::RunInDoubt(..)
        | CampaignError::AlreadyRetried(..) => Code::Conflict,
        CampaignError::AudienceExpired(_)
        | CampaignError::RunFinished(_)
        | CampaignError::ConcurrentChange(_)
        | CampaignError::JobLocked(..)
        | CampaignError::AudiencePartMissing(..)
        | CampaignError::AudiencePartConflict(..) => Code::Conflict,
        CampaignError::EmptyAudience
        | CampaignError::NothingToRetry
        | CampaignError::AudiencePartSize(_)
        | CampaignError::TooManyJobs(_) => Code::Unprocessable,
        CampaignError::AmbiguousRunId(_) | CampaignError::RunIdTooShort(_) => Code::AmbiguousId,
        CampaignError::DeploymentKeyReused(_) => Code::KeyTaken,
        CampaignError::AlreadyReached { .. } => Code::ReachedBefore,
        CampaignError::Store(_) => Code::Internal,
    };
    match refused {
        CampaignError::Store(error) => store_problem(error),
        other => Problem::new(code, other.to_string()),
    }
}

/// Converts a store error to an API problem.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub fn store_problem(error: Error) -> Problem {
    let code = match &error {
        Error::Unavailable(_)
        | Error::DiskFull(_)
        | Error::Poisoned(_)
        | Error::Unusable(_)
        | Error::Closed => Code::Unavailable,
        Error::OutcomeUnknown(_) => Code::OutcomeUnknown,
        Error::Conflict(_) => Code::Conflict,
        Error::Invalid(InvalidRequest::NoSuchRun(_)) => Code::NoRun,
        Error::Invalid(_) => Code::Unprocessable,
        Error::Corrupt(_) => Code::Corrupt,
    };
    Problem::new(code, error.to_string())
}

/// The problem of a request field that cannot be parsed.
pub(super) fn invalid_field(what: &str, error: impl std::fmt::Display) -> Problem {
    Problem::new(Code::InvalidRequest, format!("{what}: {error}"))
}

/// Fails if a text has more than `characters_max` characters.
pub(super) fn check_length(what: &str, text: &str, characters_max: usize) -> Result<(), Problem> {
    let found = text.chars().count();
    let words = || format!("{what} has {found} characters, at most {characters_max} are allowed");
    if found > characters_max {
        Err(Problem::new(Code::Unprocessable, words()))
    } else {
        Ok(())
    }
}
