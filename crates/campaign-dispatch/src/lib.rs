//! Campaigns that cannot send twice: what `onward-campaign-core` decides, done with a store and a provider.
//!
//! - [`Gathering`]: an audience, part by part; a [`Deployment`] then makes the run and its jobs in one commit.
//! - [`Provider`]: who really sends. It is called with [`Reservation`]s, which only a commit can make.
//! - [`Dispatcher`]: takes jobs, reserves, calls, settles; on as many nodes as there are.
//! - [`Campaigns`]: what people can ask, and want of a campaign run: to pause, to cancel, to settle what is in doubt.
//! - [`load`]: what dispatchers are measured with.

mod audience;
mod audience_sweep;
mod audit;
pub mod bench_load;
mod clock;
mod delivery;
mod deploy;
mod dispatcher;
mod doctor;
mod entropy;
mod fair_share;
mod item_metrics;
mod job;
mod listing;
mod reached_recipients;
mod reservation;
mod resolution;
mod retry;
mod row_mapping;
mod run_completion;
mod scoped_campaigns;
mod suppressions;
mod unsendable_runs;

pub use audience::{AudienceRecipient, AudienceWriter, PART_ITEMS_MAX, StoredAudience};
pub use delivery::{
    AdmissionGate, CampaignDelivery, ComposeMessage, DeliveryResolver, Provider,
    ProviderCapabilities, RenderedMessage, SendAdmission, UnrestrictedGate,
};
pub use deploy::{CampaignDeployment, DeploymentResult};
pub use dispatcher::{Dispatcher, Options};
pub use doctor::{CampaignDoctorStats, CampaignFinding, CampaignFindingKind, examine_runs};
pub use entropy::EntropySource;
pub use listing::{JobCursor, JobFilter, TimestampCursor};
pub use reached_recipients::RepeatSendPolicy;
pub use reservation::Reservation;
pub use resolution::{Resolution, ResolvedItem};
pub use row_mapping::item_state;
pub use scoped_campaigns::{CampaignError, CampaignScope, RunActivity, ScopedCampaigns};
