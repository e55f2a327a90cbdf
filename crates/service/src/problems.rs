//! Converts errors of the engine, the campaigns and the store to API problems.

use onward_api::problem::{Code, Problem};
use onward_campaign_dispatch::CampaignError;
use onward_engine::client::ClientError;
use onward_store::{Error, InvalidRequest};

/// Converts an error of the engine client to an API problem.
pub(super) fn engine_problem(error: ClientError) -> Problem {
    let code = match &error {
        ClientError::Store(_) => Code::Internal,
        ClientError::FunctionNotFound(_) => Code::NoFunction,
        ClientError::NotAWorkflow(_) => Code::NotAWorkflow,
        ClientError::ExecutionNotFound(_) => Code::NoExecution,
        ClientError::ExecutionEnded(_) => Code::ExecutionOver,
        ClientError::IdempotencyKeyConflict(_) => Code::KeyTaken,
        ClientError::FunctionDeployed(_) => Code::Conflict,
        ClientError::UnprintableFunctionName(_) => Code::BadComponent,
        ClientError::FunctionsTaken(_) => Code::FunctionsTaken,
        ClientError::LeaseLost => Code::LeaseLost,
        ClientError::SignalsFull { .. } => Code::SignalsFull,
        ClientError::PayloadTooLarge { .. } => Code::TooLarge,
    };
    match error {
        ClientError::Store(error) => store_problem(error),
        other => Problem::new(code, other.to_string()),
    }
}

/// Converts a campaign error to an API problem.
pub(super) fn campaign_problem(error: CampaignError) -> Problem {
    let code = match &error {
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
        CampaignError::AlreadyReached { .. } => Code::RecipientsAlreadyReached,
        CampaignError::Store(_) => Code::Internal,
    };
    match error {
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
        | Error::SchemaOutdated { .. }
        | Error::Closed => Code::Unavailable,
        Error::OutcomeUnknown(_) => Code::OutcomeUnknown,
        Error::Conflict(_) => Code::Conflict,
        Error::Invalid(InvalidRequest::NoSuchRun(_)) => Code::NoRun,
        Error::Invalid(_) => Code::Unprocessable,
        Error::Corrupt(_) | Error::UnreadableEvent { .. } => Code::Corrupt,
    };
    Problem::new(code, error.to_string())
}

/// Why a page cursor is rejected.
pub(super) const INVALID_CURSOR: &str = "not a page cursor: pass the `next` of the previous page";

/// The problem of a request field that cannot be parsed.
pub(super) fn invalid_field(field: &str, error: impl std::fmt::Display) -> Problem {
    Problem::new(Code::InvalidRequest, format!("{field}: {error}"))
}

/// Fails if a text has more than `characters_max` characters.
pub(super) fn check_length(field: &str, text: &str, characters_max: usize) -> Result<(), Problem> {
    let found = text.chars().count();
    if found > characters_max {
        let detail =
            format!("{field}: {found} characters, but at most {characters_max} are allowed");
        Err(Problem::new(Code::Unprocessable, detail))
    } else {
        Ok(())
    }
}
