//! The tables that rows live in, besides the three that are special: journals, run events and heads of runs.
//!
//! A table is declared here once and created by a migration of each adapter; a test compares the two.

mod component;
mod dispatch;
mod execution;
mod node;
mod projection;
mod shard;
mod task;
mod token;

pub use component::{Component, Function};
pub use dispatch::{AudiencePart, AuditEntry, CampaignRun, Job, OutboxItem, Suppression};
pub use execution::{Execution, Message, Timer};
pub use node::Node;
pub use projection::{Alert, Snapshot};
pub use shard::ShardLease;
pub use task::{Task, WorkerFunction};
pub use token::Token;

use crate::{Record as _, Table};

/// Every table.
pub const ALL: [&Table; 18] = [
    ShardLease::TABLE,
    Node::TABLE,
    Component::TABLE,
    Function::TABLE,
    Execution::TABLE,
    Timer::TABLE,
    Message::TABLE,
    Snapshot::TABLE,
    Alert::TABLE,
    CampaignRun::TABLE,
    Job::TABLE,
    OutboxItem::TABLE,
    AuditEntry::TABLE,
    AudiencePart::TABLE,
    Suppression::TABLE,
    Token::TABLE,
    Task::TABLE,
    WorkerFunction::TABLE,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ALL;

    #[test]
    fn what_orders_or_identifies_rows_always_holds_something() {
        for table in ALL {
            let ordered = table.indexes.iter().flat_map(|index| index.columns).copied();
            let key = table.key_columns().iter().map(|column| column.name);
            for name in ordered.chain(key) {
                let column = table.columns[table.position(name).unwrap()];
                assert!(!column.nullable, "{}.{name}", table.name);
            }
        }
    }

    #[test]
    fn declarations_name_columns_that_exist_and_names_that_differ() {
        for table in ALL {
            let names: BTreeSet<&str> = table.columns.iter().map(|column| column.name).collect();
            assert_eq!(names.len(), table.columns.len(), "{}", table.name);
            assert!(!names.contains("version"), "every table has that one anyway");
            assert!(table.unique.iter().copied().flatten().all(|name| names.contains(name)), "{}", table.name);
            let indexes: BTreeSet<&str> = table.indexes.iter().map(|index| index.name).collect();
            assert_eq!(indexes.len(), table.indexes.len(), "{}", table.name);
        }
        let tables: BTreeSet<&str> = ALL.iter().map(|table| table.name).collect();
        assert_eq!(tables.len(), ALL.len());
    }

    #[test]
    fn a_number_that_the_store_assigns_is_the_whole_key() {
        for table in ALL.iter().filter(|table| table.is_serial()) {
            assert_eq!(table.key, 1, "{}", table.name);
        }
    }
}
