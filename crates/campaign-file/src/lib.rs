//! The campaign file: recipients, channel, message templates, schedule, and the checks before a
//! deployment.
//!
//! - [`Campaign`]: the file, and the document that is stored for a run.
//! - [`audience`]: streaming readers for CSV and JSON Lines audiences of any length.
//! - [`TemplateComposer`]: renders the message of each recipient. [`templates`]: templates with
//!   bounded time and memory.
//! - [`QuietHours`]: local hours in which no message is sent.
//! - [`check_campaign`], [`CampaignChecker`]: the prerequisites of a deployment.
//! - [`SampleMessage`]: a rendered message that a provider can validate without sending it.
//!
//! This crate uses no network, no store and no clock: the caller passes the current time.

pub mod address;
pub mod audience;
pub mod templates;

mod campaign;
mod campaign_document;
mod conflicting_rows;
mod deploy_check;
mod duplicates;
mod error;
mod provider_ref;
mod quiet_hours;
mod sample_message;
mod schedule;
mod template_composer;
mod template_part;
mod time_zone;
mod unmet_prerequisite;

pub use campaign::{AudienceFormat, AudienceSpec, Campaign, CampaignRetries, InvalidRowPolicy};
pub use conflicting_rows::ConflictingRows;
pub use deploy_check::{CampaignChecker, DeployCheckInput, DeployPrerequisite, check_campaign};
pub use duplicates::DuplicateCounts;
pub use error::Error;
pub use provider_ref::ProviderRef;
pub use quiet_hours::{QuietHours, QuietHoursError};
pub use sample_message::SampleMessage;
pub use schedule::{CampaignSchedule, ScheduleError};
pub use template_composer::{
    MessagePartError, MessageRenderError, TemplateComposer, UnsubscribeLinkError,
};
pub use time_zone::UnknownTimeZone;
pub use unmet_prerequisite::{RenderFailures, UnknownTimeZones, UnmetPrerequisite};
