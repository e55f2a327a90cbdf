//! Dispatches campaigns: performs with a store and providers what `onward-campaign-core` decides.
//!
//! - [`AudienceWriter`]: stores an audience in parts; a [`CampaignDeployment`] then creates the run
//!   and its jobs in one commit.
//! - [`Provider`]: delivers items. It is called only with [`Reservation`]s, which only a durable
//!   commit creates.
//! - [`Dispatcher`]: claims jobs, reserves, sends and settles items; one per node, without a
//!   leader.
//! - [`ScopedCampaigns`]: operations on the campaigns of one scope: pause, cancel, settle, list.

mod audience;
mod audience_sweep;
mod audit;
mod campaign_error;
mod clock;
mod corrupt_rows;
mod decoded_page;
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
mod redrive;
mod reservation;
mod resolution;
mod retry;
mod row_mapping;
mod run_completion;
mod scope_columns;
mod scoped_campaigns;
mod suppressions;
mod unsendable_runs;

pub use audience::{AudienceWriter, PART_ITEMS_MAX, StoredAudience};
pub use campaign_error::CampaignError;
pub use delivery::{
    AdmissionGate, CampaignDelivery, DeliveryError, DeliveryResolver, Provider,
    ProviderCapabilities, SendAdmission, UnrestrictedGate,
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
pub use scoped_campaigns::{RunActivity, ScopedCampaigns};
