//! Table of the nodes: the processes that run executions on the store.

use onward_base::{SharedText, Timestamp};

use crate::define_table;

define_table! {
    /// A process that runs executions. It heartbeats by extending `seen_until`; a node whose
    /// heartbeat has expired is considered dead.
    "nodes", key 1;
    pub struct NodeRow {
        /// Id of the node; new each time a process starts.
        pub node_id: SharedText = "node_id",
        /// Display name of the node.
        pub name: SharedText = "name",
        /// Address that the node listens on; `None` if it does not listen.
        pub address: Option<SharedText> = "address",
        /// When the node started.
        pub started_at: Timestamp = "started_at",
        /// When the last heartbeat expires; until then the node is considered alive.
        pub seen_until: Timestamp = "seen_until",
    }
}
