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
mod check;
mod compose;
mod document;
mod error;
mod part;
mod provider;
mod quiet;
mod repeats;
mod sample;
mod schedule;
mod zone;

pub use campaign::{Audience, BadRows, Campaign, Format, Retries};
pub use check::{Checker, Facts, Prerequisite, check};
pub use compose::{Composer, Unfit};
pub use error::Error;
pub use provider::ProviderRef;
pub use quiet::Quiet;
pub use repeats::Repeated;
pub use sample::Sample;
pub use schedule::Schedule;
