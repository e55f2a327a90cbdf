//! Generates random sequences. Each operation also runs on a model store, so that most operations
//! refer to data that is stored by then.

use onward_base::Timestamp;
use onward_runs::RunId;

use super::{MODEL_FACTORY, OperationPlayer, StoreOperation};
use crate::conformance::{SeededRng, fixtures};
use crate::{
    ColumnValue, PurgeTarget, RunEventQuery, RunEventReader, ShardId, Store, StoredRow, TableScan,
    TableSchema, tables,
};

/// Run ids that snapshot rows also use; one is a prefix of another.
pub(super) const RUN_IDS: [&str; 4] = ["B1", "B11", "é2", "Z4"];
pub(super) const EXECUTION_NUMBERS: [u8; 4] = [1, 2, 3, 4];
pub(super) const SHARD_IDS: [ShardId; 3] = [ShardId(0), ShardId(1), ShardId(u32::MAX)];
const NODE_NAMES: [&str; 2] = ["node", "'; DROP TABLE shards; --"];
const PAGE_LIMITS: [usize; 6] = [0, 1, 2, 5, 100, usize::MAX];

/// Returns the sequence of `length` operations that `seed` determines.
pub async fn generate_operations(seed: u64, length: usize) -> Vec<StoreOperation> {
    let Ok(model) = OperationPlayer::open(&MODEL_FACTORY).await else {
        return Vec::new();
    };
    let mut generator = OperationGenerator {
        rng: SeededRng::new(seed),
        model,
    };
    let mut operations = Vec::with_capacity(length);
    while operations.len() < length {
        let operation = generator.random_operation().await;
        generator.model.play_operation(&operation).await;
        operations.push(operation);
    }
    operations
}

/// The random numbers and the model store that the generator draws from.
pub(super) struct OperationGenerator {
    pub(super) rng: SeededRng,
    model: OperationPlayer,
}

impl OperationGenerator {
    pub(super) fn store(&self) -> &(dyn Store + 'static) {
        self.model.store()
    }

    /// Returns the rows of a table in the model, with ordinals instead of serial numbers.
    pub(super) async fn read_rows(&mut self, table: &'static TableSchema) -> Vec<StoredRow> {
        self.model.read_rows(table).await
    }

    async fn random_operation(&mut self) -> StoreOperation {
        match self.rng.next_below(100) {
            0..60 => StoreOperation::Commit(self.random_commit().await),
            60..85 => self.random_read().await,
            85..92 => self.random_lease_operation(),
            92..96 => StoreOperation::SetClock(self.random_timestamp()),
            _ => StoreOperation::Purge(self.random_purge_target()),
        }
    }

    pub(super) fn random_run_id(&mut self) -> RunId {
        let name = *self.rng.pick_element(&RUN_IDS);
        fixtures::parse_id(name)
    }

    fn random_limit(&mut self) -> usize {
        *self.rng.pick_element(&PAGE_LIMITS)
    }

    async fn random_read(&mut self) -> StoreOperation {
        match self.rng.next_below(13) {
            0..2 => self.random_row_read().await,
            2..5 => StoreOperation::Rows(self.random_scan().await),
            5 => StoreOperation::Pages(self.random_scan().await),
            6 => StoreOperation::Journal {
                execution: fixtures::numbered_execution(*self.rng.pick_element(&EXECUTION_NUMBERS)),
                from: *self.rng.pick_element(&[0, 1, 2, 3, 5, 1_000_000, u64::MAX]),
                limit: self.random_limit(),
            },
            7 => {
                let after =
                    fixtures::run_sequence(*self.rng.pick_element(&[0, 1, 2, 5, 9, u64::MAX]));
                let limit = self.random_limit();
                StoreOperation::RunEvents(self.random_run_id(), RunEventQuery { after, limit })
            }
            8 => StoreOperation::Run(self.random_run_id()),
            9 => StoreOperation::Runs {
                behind: *self.rng.pick_element(&[
                    None,
                    Some(RunEventReader::Projector),
                    Some(RunEventReader::EventBus),
                ]),
                after: self.rng.roll_percent(40).then(|| self.random_run_id()),
                limit: self.random_limit(),
            },
            10 => StoreOperation::Project(self.random_run_id()),
            11 => StoreOperation::Snapshot(self.random_run_id()),
            _ => StoreOperation::Now,
        }
    }

    async fn random_row_read(&mut self) -> StoreOperation {
        let table = *self.rng.pick_element(&tables::ALL_TABLES);
        let known = self
            .pick_stored_row(table)
            .await
            .filter(|_| self.rng.roll_percent(70));
        let row = known.map_or_else(
            || fixtures::numbered_row(table, 1 + self.rng.next_below(7)),
            |stored| stored.row,
        );
        let mut key = table.key_of(&row);
        if key.0[0] == ColumnValue::Null {
            key.0[0] = ColumnValue::Int(1 + self.rng.next_below(7).cast_signed());
        }
        StoreOperation::Row(table, key)
    }

    /// Returns a scan in a random order, restricted by the values of an existing row.
    async fn random_scan(&mut self) -> TableScan {
        let mut table = *self.rng.pick_element(&tables::ALL_TABLES);
        if self.pick_stored_row(table).await.is_none() {
            table = *self.rng.pick_element(&tables::ALL_TABLES);
        }
        let orders: Vec<_> = std::iter::once(None)
            .chain(table.indexes.iter().map(Some))
            .collect();
        let index = *self.rng.pick_element(&orders);
        let limit = self.random_limit();
        let mut scan = TableScan {
            is_reversed: self.rng.roll_percent(25),
            ..TableScan::over_table(table, index)
        }
        .with_limit(limit);
        let order = table.scan_order(index);
        if let Some(stored) = self.pick_stored_row(table).await {
            let place = table.select_values(&order, &stored.row);
            let length = usize::try_from(self.rng.next_below(order.len() as u64)).unwrap_or(0);
            scan.equal = place[..length].to_vec();
            scan.until = self.rng.roll_percent(40).then(|| place[length].clone());
        }
        if let Some(stored) = self
            .pick_stored_row(table)
            .await
            .filter(|_| self.rng.roll_percent(40))
        {
            scan.after = Some(table.select_values(&order, &stored.row));
        }
        scan
    }

    fn random_lease_operation(&mut self) -> StoreOperation {
        let lease_ms = *self.rng.pick_element(&[0, 1, 50, 1_000, u64::MAX]);
        let nth = usize::try_from(self.rng.next_below(self.model.granted_leases() as u64 + 1))
            .unwrap_or(0);
        match self.rng.next_below(4) {
            0..2 => {
                let (shard, node) = (
                    *self.rng.pick_element(&SHARD_IDS),
                    *self.rng.pick_element(&NODE_NAMES),
                );
                StoreOperation::Claim {
                    shard,
                    node,
                    lease_ms,
                }
            }
            2 => StoreOperation::Renew { nth, lease_ms },
            _ => StoreOperation::Release { nth },
        }
    }

    fn random_timestamp(&mut self) -> Timestamp {
        match self.rng.next_below(20) {
            0 => Timestamp::MIN,
            1 => Timestamp::MAX,
            _ => fixtures::timestamp_after_ms(self.rng.next_below(5_000)),
        }
    }

    fn random_purge_target(&mut self) -> PurgeTarget {
        if self.rng.roll_percent(50) {
            PurgeTarget::Run(self.random_run_id())
        } else {
            PurgeTarget::Execution(fixtures::numbered_execution(
                *self.rng.pick_element(&EXECUTION_NUMBERS),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_seed_always_generates_the_same_sequence() {
        let (one, other) = (
            generate_operations(7, 60).await,
            generate_operations(7, 60).await,
        );
        assert_eq!(format!("{one:?}"), format!("{other:?}"));
        assert_ne!(
            format!("{one:?}"),
            format!("{:?}", generate_operations(8, 60).await)
        );
    }
}
