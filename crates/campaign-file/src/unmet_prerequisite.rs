//! Reasons why a prerequisite of a deployment is not met, for the user who deploys the campaign.

use std::fmt;

use onward_base::Timestamp;
use thiserror::Error;

use crate::address::AddressError;
use crate::audience::InvalidRow;
use crate::schedule::ScheduleError;
use crate::template_composer::MessageRenderError;

/// Maximum number of characters of an unknown time zone in a message.
const TIME_ZONE_CHARS_MAX: usize = 60;

/// Reasons why a prerequisite of a deployment is not met.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnmetPrerequisite {
    /// A template cannot be compiled.
    #[error(transparent)]
    InvalidTemplate(#[from] MessageRenderError),
    /// The templates cannot be rendered for some of the recipients.
    #[error("cannot be rendered for {} of {rendered} recipients; {failures}", failures.count)]
    RenderingFailed {
        /// The recipients whose message cannot be rendered.
        failures: RenderFailures,
        /// Number of recipients for whom the templates were rendered, failures included.
        rendered: u64,
    },
    /// The template lacks parts that every email needs.
    #[error("required template parts are missing or empty: {}", .0.join(", "))]
    MissingEmailParts(Vec<&'static str>),
    /// The `from` part is not an email address.
    #[error("invalid `from` address: {0}")]
    InvalidFromAddress(AddressError),
    /// The start time is invalid.
    #[error(transparent)]
    InvalidSchedule(#[from] ScheduleError),
    /// The start time is more than a day in the past, so it is probably a mistake.
    #[error("the start time {0} is more than one day ago: change `schedule.at`")]
    StartTimePassed(Timestamp),
    /// No recipient has a known time zone in the field for it, so its name is probably wrong.
    #[error(
        "no recipient has a known time zone in the field `{field}`{}: check \
         `schedule.quiet_hours.time_zone_field`",
        unknown.as_ref().map(|unknown| format!(" ({unknown})")).unwrap_or_default()
    )]
    NoTimeZone {
        /// Name of the field.
        field: String,
        /// The recipients with an unknown time zone, if there are any.
        unknown: Option<UnknownTimeZones>,
    },
    /// The audience has no valid row.
    #[error("the audience has no valid row")]
    NoRecipients,
    /// The audience has invalid rows, which the campaign does not skip.
    #[error(
        "invalid rows: {count}{}. Correct them, or set `audience.invalid_rows: skip`",
        first.as_ref().map(|row| format!("; the first is {row}")).unwrap_or_default()
    )]
    InvalidRows {
        /// Number of invalid rows.
        count: u64,
        /// The first invalid row.
        first: Option<InvalidRow>,
    },
}

/// The recipients whose message cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderFailures {
    /// Number of these recipients.
    pub count: u64,
    /// Id of the first of them.
    pub first_recipient: String,
    /// The error of the first of them.
    pub first_error: MessageRenderError,
}

impl RenderFailures {
    /// Creates the failures with a count of 0; the caller counts the first one as well.
    pub(crate) fn starting_with(recipient: &str, error: MessageRenderError) -> Self {
        Self {
            count: 0,
            first_recipient: recipient.to_owned(),
            first_error: error,
        }
    }
}

impl fmt::Display for RenderFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            first_recipient,
            first_error,
            ..
        } = self;
        write!(
            f,
            "first error: {first_error} (recipient `{first_recipient}`)"
        )
    }
}

/// The recipients whose own time zone is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownTimeZones {
    /// Number of these recipients.
    pub count: u64,
    /// The time zone of the first of them, truncated.
    pub first: String,
}

impl UnknownTimeZones {
    /// Creates the time zones with a count of 0; the caller counts the first one as well.
    pub(crate) fn starting_with(name: &str) -> Self {
        Self {
            count: 0,
            first: name.chars().take(TIME_ZONE_CHARS_MAX).collect(),
        }
    }
}

impl fmt::Display for UnknownTimeZones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, first } = self;
        write!(
            f,
            "{count} with an unknown time zone, such as `{first}`, get that of the campaign"
        )
    }
}
