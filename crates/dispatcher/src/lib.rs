//! Campaigns that cannot send twice: what `onward-dispatch` decides, done with a store and a provider.
//!
//! - [`Gathering`]: an audience, part by part; a [`Deployment`] then makes the run and its jobs in one commit.
//! - [`Provider`]: who really sends. It is called with [`Reservation`]s, which only a commit can make.
//! - [`Dispatcher`]: takes jobs, reserves, calls, settles; on as many nodes as there are.
//! - [`Campaigns`]: what people can ask, and want of a campaign run: to pause, to cancel, to settle what is in doubt.
//! - [`load`]: what dispatchers are measured with.

mod audience;
mod audit;
mod campaigns;
mod clock;
mod deploy;
mod dispatcher;
mod doctor;
mod entropy;
mod finish;
mod lists;
pub mod load;
mod measure;
mod outlet;
mod reached;
mod reserve;
mod retry;
mod rows;
mod shut;
mod suppressions;
mod sweep;
mod turns;
mod verdict;
mod work;

pub use audience::{Audience, Gathering, PART_ITEMS_MAX, Recipient};
pub use campaigns::{Campaigns, Pace, Refused, Scope};
pub use deploy::{Deployed, Deployment};
pub use dispatcher::{Dispatcher, Options};
pub use doctor::{Ailment, Flaw, Looked, examine};
pub use entropy::Entropy;
pub use lists::{JobFilter, JobPlace, Place};
pub use outlet::{Admission, Compose, Gate, Message, Nature, Open, Outlet, Outlets, Provider};
pub use reached::Reached;
pub use reserve::Reservation;
pub use rows::standing;
pub use verdict::{Settled, Verdict};
