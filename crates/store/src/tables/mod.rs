//! All row tables. Journals, run events and run heads are stored separately and are not declared
//! here.
//!
//! Each table is declared here once and created by a migration of each adapter; a test compares the
//! two.

mod campaign;
mod component;
mod execution;
mod node;
mod projection;
mod shard;
mod task;
mod token;

pub use campaign::{
    AudiencePartRow, AuditEntryRow, CampaignRunRow, JobRow, OutboxItemRow, SuppressionRow,
};
pub use component::{ComponentRow, DeployedFunctionKind, FunctionRow};
pub use execution::{ExecutionRow, InboxMessageKind, InboxMessageRow};
pub use node::NodeRow;
pub use projection::{AlertCode, AlertRow, AlertSeverity, RunSnapshotRow, SnapshotCondition};
pub use shard::ShardLeaseRow;
pub use task::{TaskRow, WorkerFunctionRow, WorkerTaskState};
pub use token::TokenRow;

use crate::{TableRecord as _, TableSchema};

/// The schemas of all row tables.
pub const ALL_TABLES: [&TableSchema; 17] = [
    ShardLeaseRow::TABLE,
    NodeRow::TABLE,
    ComponentRow::TABLE,
    FunctionRow::TABLE,
    ExecutionRow::TABLE,
    InboxMessageRow::TABLE,
    RunSnapshotRow::TABLE,
    AlertRow::TABLE,
    CampaignRunRow::TABLE,
    JobRow::TABLE,
    OutboxItemRow::TABLE,
    AuditEntryRow::TABLE,
    AudiencePartRow::TABLE,
    SuppressionRow::TABLE,
    TokenRow::TABLE,
    TaskRow::TABLE,
    WorkerFunctionRow::TABLE,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ALL_TABLES;

    #[test]
    fn key_and_index_columns_are_not_nullable() {
        for table in ALL_TABLES {
            let ordered = table
                .indexes
                .iter()
                .flat_map(|index| index.columns)
                .copied();
            let key = table.key_columns().iter().map(|column| column.name);
            for name in ordered.chain(key) {
                let column = table.columns[table.column_position(name).unwrap()];
                assert!(!column.nullable, "{}.{name}", table.name);
            }
        }
    }

    #[test]
    fn declarations_name_existing_columns_and_unique_names() {
        for table in ALL_TABLES {
            let names: BTreeSet<&str> = table.columns.iter().map(|column| column.name).collect();
            assert_eq!(names.len(), table.columns.len(), "{}", table.name);
            assert!(
                !names.contains("version"),
                "every table has a version column by default"
            );
            assert!(
                table
                    .unique
                    .iter()
                    .copied()
                    .flatten()
                    .all(|name| names.contains(name)),
                "{}",
                table.name
            );
            let indexes: BTreeSet<&str> = table.indexes.iter().map(|index| index.name).collect();
            assert_eq!(indexes.len(), table.indexes.len(), "{}", table.name);
        }
        let tables: BTreeSet<&str> = ALL_TABLES.iter().map(|table| table.name).collect();
        assert_eq!(tables.len(), ALL_TABLES.len());
    }

    #[test]
    fn a_serial_column_is_the_whole_key() {
        for table in ALL_TABLES.iter().filter(|table| table.has_serial_key()) {
            assert_eq!(table.key_length, 1, "{}", table.name);
        }
    }
}
