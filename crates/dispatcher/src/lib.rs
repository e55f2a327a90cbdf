//! Campaigns that cannot send twice: what `onward-dispatch` decides, done with a store and a provider.
//!
//! - [`Deploying`]: a campaign, its audience part by part, and then the run and its jobs in one commit.
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
mod entropy;
mod finish;
pub mod load;
mod outlet;
mod reserve;
mod rows;
mod verdict;
mod work;

pub use audience::Recipient;
pub use campaigns::{Campaigns, Refused, Scope};
pub use deploy::{Deployed, Deploying, Deployment};
pub use dispatcher::{Dispatcher, Options};
pub use entropy::Entropy;
pub use outlet::{Admission, Compose, Gate, Message, Nature, Open, Outlet, Outlets, Provider};
pub use reserve::Reservation;
pub use rows::standing;
pub use verdict::Verdict;
