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
mod disk_fault;
mod error;
mod event_generator;
mod installation;
mod mail_server;
mod proxy;
mod reaper;

pub use cluster::{ClusterDurability, PostgresCluster};
pub use disk_fault::DiskFault;
pub use error::Error;
pub use event_generator::RunEventGenerator;
pub use mail_server::TestMailServer;
pub use proxy::TcpProxy;
