//! Those who really send: by SMTP, over HTTP, or into a folder.
//!
//! - [`ProviderSpec`]: how to reach a provider, as a document that holds no secret; [`ProviderSpec::build`] makes one of it.
//! - [`Secrets`]: where the secrets are that a document names.
//! - [`Limits`] and [`Throttle`]: how many may be reached in which time, altogether and in each domain.
//!
//! What matters most is what is said when something goes wrong. That nothing was sent is said only where it is known;
//! wherever the provider may have taken an item, the answer is that nobody knows.

mod folder;
mod http;
mod limits;
mod parcel;
mod secret;
mod smtp;
mod spec;
mod throttle;
mod wrong;

pub use folder::FolderSpec;
pub use http::{AnswersSpec, AuthSpec, BatchSpec, HttpSpec, LookSpec, StatusMatch};
pub use limits::{DomainLimits, Limits, Rates};
pub use secret::{Environment, SecretRef, Secrets};
pub use smtp::{SmtpSpec, Tls};
pub use spec::{ProviderSpec, TermsSpec};
pub use throttle::Throttle;
