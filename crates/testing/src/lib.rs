//! Test support for the other crates: temporary Postgres servers, TCP proxies that can cut
//! connections to them, disk faults, power cuts, a mail server and generated run events.
//!
//! A Postgres server is a separate cluster in a temporary folder, on a free port of the loopback
//! interface. It is removed with all of its data when the test ends, however it ends.
//!
//! ```no_run
//! # use onward_testing::{ClusterDurability, PostgresCluster};
//! let cluster = PostgresCluster::shared_cluster(ClusterDurability::Unsynced)?;
//! let url = cluster.create_database()?;
//! assert!(url.starts_with("postgres://onward@127.0.0.1:"));
//! # Ok::<(), onward_testing::Error>(())
//! ```

mod campaign_documents;
mod cluster;
mod command;
mod disk_fault;
mod error;
mod event_generator;
mod installation;
mod mail_server;
mod power_cut;
mod preload_library;
mod proxy;
mod reaper;

pub use campaign_documents::{
    CAMPAIGN_DOCUMENT_MIGRATIONS, CampaignDocumentMigration, INSERT_ITEMS_OF_SCHEMA_1,
};
pub use cluster::{ClusterDurability, PostgresCluster};
pub use disk_fault::DiskFault;
pub use error::Error;
pub use event_generator::RunEventGenerator;
pub use mail_server::TestMailServer;
pub use power_cut::PowerCutDisk;
pub use proxy::TcpProxy;
