//! Random sequences. A model store is played along with them, so that most operations fit what is stored by then.

use onward_journal::Timestamp;
use onward_runs::RunId;

use super::{MODEL, Operation, Player};
use crate::conformance::{Draw, sample};
use crate::{Page, Purge, Reader, Scan, Shard, Store, Stored, Table, Value, tables};

/// Names that snapshots have as well, and one that begins like another.
pub(super) const RUNS: [&str; 4] = ["B1", "B11", "é2", "Z4"];
pub(super) const EXECUTIONS: [u8; 4] = [1, 2, 3, 4];
pub(super) const SHARDS: [Shard; 3] = [Shard(0), Shard(1), Shard(u32::MAX)];
const NODES: [&str; 2] = ["node", "'; DROP TABLE shards; --"];
const LIMITS: [usize; 6] = [0, 1, 2, 5, 100, usize::MAX];

/// The sequence of `length` operations that `seed` makes.
pub async fn generate(seed: u64, length: usize) -> Vec<Operation> {
    let Ok(model) = Player::open(&MODEL).await else { return Vec::new() };
    let mut generator = Generator { draw: Draw::new(seed), model };
    let mut operations = Vec::with_capacity(length);
    while operations.len() < length {
        let operation = generator.operation().await;
        generator.model.play(&operation).await;
        operations.push(operation);
    }
    operations
}

/// Chance, and the model it looks at.
pub(super) struct Generator {
    pub(super) draw: Draw,
    model: Player,
}

impl Generator {
    pub(super) fn store(&self) -> &(dyn Store + 'static) {
        self.model.store()
    }

    /// Rows of a table, as operations see them.
    pub(super) async fn rows(&mut self, table: &'static Table) -> Vec<Stored> {
        self.model.rows(table).await
    }

    async fn operation(&mut self) -> Operation {
        match self.draw.below(100) {
            0..60 => Operation::Commit(self.commit().await),
            60..85 => self.read().await,
            85..92 => self.lease(),
            92..96 => Operation::SetClock(self.instant()),
            _ => Operation::Purge(self.purge()),
        }
    }

    pub(super) fn run(&mut self) -> RunId {
        let name = *self.draw.pick(&RUNS);
        sample::id(name)
    }

    fn limit(&mut self) -> usize {
        *self.draw.pick(&LIMITS)
    }

    async fn read(&mut self) -> Operation {
        match self.draw.below(13) {
            0..2 => self.read_row().await,
            2..5 => Operation::Rows(self.scan().await),
            5 => Operation::Pages(self.scan().await),
            6 => Operation::Journal {
                execution: sample::execution(*self.draw.pick(&EXECUTIONS)),
                from: *self.draw.pick(&[0, 1, 2, 3, 5, 1_000_000, u64::MAX]),
                limit: self.limit(),
            },
            7 => {
                let after = sample::seq(*self.draw.pick(&[0, 1, 2, 5, 9, u64::MAX]));
                let limit = self.limit();
                Operation::RunEvents(self.run(), Page { after, limit })
            }
            8 => Operation::Run(self.run()),
            9 => Operation::Runs {
                behind: *self.draw.pick(&[None, Some(Reader::Projector), Some(Reader::EventBus)]),
                after: self.draw.percent(40).then(|| self.run()),
                limit: self.limit(),
            },
            10 => Operation::Project(self.run()),
            11 => Operation::Snapshot(self.run()),
            _ => Operation::Now,
        }
    }

    async fn read_row(&mut self) -> Operation {
        let table = *self.draw.pick(&tables::ALL);
        let known = self.known(table).await.filter(|_| self.draw.percent(70));
        let row = known.map_or_else(|| sample::row(table, 1 + self.draw.below(7)), |stored| stored.row);
        let mut key = table.key_of(&row);
        if key.0[0] == Value::Null {
            key.0[0] = Value::Int(1 + self.draw.below(7).cast_signed());
        }
        Operation::Row(table, key)
    }

    /// A scan by any order, narrowed by the values of a row that is there.
    async fn scan(&mut self) -> Scan {
        let mut table = *self.draw.pick(&tables::ALL);
        if self.known(table).await.is_none() {
            table = *self.draw.pick(&tables::ALL);
        }
        let orders: Vec<_> = std::iter::once(None).chain(table.indexes.iter().map(Some)).collect();
        let index = *self.draw.pick(&orders);
        let limit = self.limit();
        let mut scan = Scan { is_reversed: self.draw.percent(25), ..Scan::of(table, index) }.limit(limit);
        let order = table.order_of(index);
        if let Some(stored) = self.known(table).await {
            let place = table.pick(&order, &stored.row);
            let length = usize::try_from(self.draw.below(order.len() as u64)).unwrap_or(0);
            scan.equal = place[..length].to_vec();
            scan.until = self.draw.percent(40).then(|| place[length].clone());
        }
        if let Some(stored) = self.known(table).await.filter(|_| self.draw.percent(40)) {
            scan.after = Some(table.pick(&order, &stored.row));
        }
        scan
    }

    fn lease(&mut self) -> Operation {
        let lease_ms = *self.draw.pick(&[0, 1, 50, 1_000, u64::MAX]);
        let nth = usize::try_from(self.draw.below(self.model.leases() as u64 + 1)).unwrap_or(0);
        match self.draw.below(4) {
            0..2 => {
                let (shard, node) = (*self.draw.pick(&SHARDS), *self.draw.pick(&NODES));
                Operation::Claim { shard, node, lease_ms }
            }
            2 => Operation::Renew { nth, lease_ms },
            _ => Operation::Release { nth },
        }
    }

    fn instant(&mut self) -> Timestamp {
        match self.draw.below(20) {
            0 => Timestamp::MIN,
            1 => Timestamp::MAX,
            _ => sample::at(self.draw.below(5_000)),
        }
    }

    fn purge(&mut self) -> Purge {
        if self.draw.percent(50) {
            Purge::Run(self.run())
        } else {
            Purge::Execution(sample::execution(*self.draw.pick(&EXECUTIONS)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_seed_makes_the_same_sequence_every_time() {
        let (one, other) = (generate(7, 60).await, generate(7, 60).await);
        assert_eq!(format!("{one:?}"), format!("{other:?}"));
        assert_ne!(format!("{one:?}"), format!("{:?}", generate(8, 60).await));
    }
}
