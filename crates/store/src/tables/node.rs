//! Which processes work on the store.

use onward_journal::{Text, Timestamp};

use crate::record;

record! {
    /// A process that runs executions. It says so again and again; whoever has not for a while is gone.
    "nodes", key 1;
    pub struct Node {
        /// Another one each time a process starts.
        pub node_id: Text = "node_id",
        /// What people call it.
        pub name: Text = "name",
        /// Where it listens, if it does.
        pub address: Option<Text> = "address",
        /// Since when it works.
        pub started_at: Timestamp = "started_at",
        /// Until when it is taken to be there.
        pub seen_until: Timestamp = "seen_until",
    }
}
