//! Campaigns that cannot send twice: what `onward-dispatch` decides, done with a store and a provider.
//!
//! - [`Gathering`]: an audience, part by part; a [`Deployment`] then makes the run and its jobs in one commit.
//! - [`Provider`]: who really sends. It is called with [`Reservation`]s, which only a commit can make.
//! - [`Dispatcher`]: takes jobs, reserves, calls, settles; on as many nodes as there are.
//! - [`Campaigns`]: what people can ask, and want of a campaign run: to pause, to cancel, to settle what is in doubt.
//! - [`load`]: what dispatchers are measured with.

mod audience;
mod audit;
mod scoped_campaigns;
mod clock;
mod deploy;
mod dispatcher;
mod doctor;
mod entropy;
mod run_completion;
mod listing;
pub mod bench_load;
mod item_metrics;
mod delivery;
mod reached_recipients;
mod reservation;
mod retry;
mod row_mapping;
mod unsendable_runs;
mod suppressions;
mod audience_sweep;
mod fair_share;
mod resolution;
mod job;

pub use audience::{StoredAudience, AudienceWriter, PART_ITEMS_MAX, AudienceRecipient};
pub use scoped_campaigns::{ScopedCampaigns, RunActivity, CampaignError, CampaignScope};
pub use deploy::{DeploymentResult, CampaignDeployment};
pub use dispatcher::{Dispatcher, Options};
pub use doctor::{CampaignFindingKind, CampaignFinding, CampaignDoctorStats, examine_runs};
pub use entropy::EntropySource;
pub use listing::{JobFilter, JobCursor, TimestampCursor};
pub use delivery::{SendAdmission, ComposeMessage, AdmissionGate, RenderedMessage, ProviderCapabilities, UnrestrictedGate, CampaignDelivery, DeliveryResolver, Provider};
pub use reached_recipients::RepeatSendPolicy;
pub use reservation::Reservation;
pub use row_mapping::item_state;
pub use resolution::{ResolvedItem, Resolution};
