//! What a campaign file says: whom to reach, by which channel, with what, and when.
//!
//! - [`Campaign`]: the file, and the document that is stored of it.
//! - [`audience`]: those whom it is to reach, read one by one from a file of any length.
//! - [`Composer`]: what each of them is sent.
//! - [`Quiet`]: the hours in which nobody is reached.
//! - [`check()`], [`Checker`]: what has to be right before a campaign is deployed.
//! - [`Sample`]: what somebody would be sent, for those who know whether a provider could send it.
//!
//! This crate knows neither the network nor the store, and no clock: whoever asks says what time it is.

pub mod address;
pub mod audience;

mod campaign;
mod campaign_document;
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

pub use campaign::{AudienceFormat, AudienceSpec, BadRowPolicy, Campaign, CampaignRetries};
pub use deploy_check::{CampaignChecker, DeployCheckInput, DeployPrerequisite, check_campaign};
pub use duplicates::DuplicateCounts;
pub use error::Error;
pub use provider_ref::ProviderRef;
pub use quiet_hours::QuietHours;
pub use sample_message::SampleMessage;
pub use schedule::CampaignSchedule;
pub use template_composer::{MessageRenderError, TemplateComposer};
