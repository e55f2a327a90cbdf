//! What the tests of other crates share: throw-away Postgres servers, wires to them that can be cut, servers of mail, and run
//! events by the million.
//!
//! A server is a cluster of its own in a temporary folder, on a free port of the loopback interface, gone with everything
//! in it when the test ends, however it ends.
//!
//! ```no_run
//! let cluster = onward_testing::Cluster::shared()?;
//! let url = cluster.database()?;
//! assert!(url.starts_with("postgres://onward@127.0.0.1:"));
//! # Ok::<(), onward_testing::Error>(())
//! ```

mod cluster;
mod command;
mod disk;
mod error;
mod events;
mod installation;
mod mail;
mod undertaker;
mod wire;

pub use cluster::{Cluster, Durability};
pub use disk::Fault;
pub use error::Error;
pub use events::Events;
pub use mail::Mail;
pub use wire::Wire;
