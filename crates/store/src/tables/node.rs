//! Which processes work on the store.

use onward_base::{SharedText, Timestamp};

use crate::define_table;

define_table! {
    /// A process that runs executions. It says so again and again; whoever has not for a while is gone.
    "nodes", key 1;
    pub struct NodeRow {
        /// Another one each time a process starts.
        pub node_id: SharedText = "node_id",
        /// What people call it.
        pub name: SharedText = "name",
        /// Where it listens, if it does.
        pub address: Option<SharedText> = "address",
        /// Since when it works.
        pub started_at: Timestamp = "started_at",
        /// Until when it is taken to be there.
        pub seen_until: Timestamp = "seen_until",
    }
}
