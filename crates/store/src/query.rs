//! What is asked of a store, and the shapes of its answers.

use std::sync::Arc;

use onward_base::{EnvironmentId, ProjectId, TenantId, Timestamp};
use onward_runs::{RunEventWrite, RunId, RunSeq};

use crate::{ColumnValue, IndexSchema, RunEventReader, TableRecord, TableSchema};

/// Which events of a run are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunEventQuery {
    /// Only events after this one.
    pub after: RunSeq,
    /// At most so many.
    pub limit: usize,
}

impl Default for RunEventQuery {
    fn default() -> Self {
        Self {
            after: RunSeq::ZERO,
            limit: 1_000,
        }
    }
}

impl RunEventQuery {
    /// The first thousand events after `after`.
    pub fn starting_after(after: RunSeq) -> Self {
        Self {
            after,
            ..Self::default()
        }
    }
}

/// What the store knows of a run without looking at its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunHead {
    /// The run.
    pub run_id: RunId,
    /// Whose it is.
    pub tenant_id: TenantId,
    /// In which project.
    pub project_id: ProjectId,
    /// In which environment.
    pub environment_id: EnvironmentId,
    /// The last event.
    pub last_seq: RunSeq,
    /// When it was stored.
    pub last_persisted_at: Timestamp,
    /// How far the projector has come.
    pub projected_seq: RunSeq,
    /// How far the event bus has come.
    pub delivered_seq: RunSeq,
}

impl RunHead {
    /// Whether an event says that it belongs where the run does.
    pub fn has_scope_of(&self, event: &RunEventWrite) -> bool {
        self.tenant_id == event.tenant_id
            && self.project_id == event.project_id
            && self.environment_id == event.environment_id
    }

    /// How far `reader` has come.
    pub const fn reader_position(&self, reader: RunEventReader) -> RunSeq {
        match reader {
            RunEventReader::Projector => self.projected_seq,
            RunEventReader::EventBus => self.delivered_seq,
        }
    }

    /// The same head with `reader` at `to`.
    #[must_use]
    pub fn with_reader_at(mut self, reader: RunEventReader, to: RunSeq) -> Self {
        match reader {
            RunEventReader::Projector => self.projected_seq = to,
            RunEventReader::EventBus => self.delivered_seq = to,
        }
        self
    }
}

/// Events of a journal as one append stored them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalChunk {
    /// The sequence of the first event.
    pub first: u64,
    /// How many events.
    pub count: u32,
    /// The encoded events.
    pub records: Arc<[u8]>,
}

/// Which rows of a table are wanted, and in which order.
#[derive(Debug, Clone)]
pub struct TableScan {
    /// The table.
    pub table: &'static TableSchema,
    /// The order; that of the key when absent.
    pub index: Option<&'static IndexSchema>,
    /// The values of the first columns of the order.
    pub equal: Vec<ColumnValue>,
    /// The largest value of the column after those.
    pub until: Option<ColumnValue>,
    /// Only rows after the one with these values in all columns of the order.
    pub after: Option<Vec<ColumnValue>>,
    /// Whether the last come first.
    pub is_reversed: bool,
    /// At most so many.
    pub limit: usize,
}

impl TableScan {
    /// The first thousand rows of a table in the order of its key.
    pub const fn all_rows<R: TableRecord>() -> Self {
        Self::over_table(R::TABLE, None)
    }

    /// The first thousand rows of a table in the order of an index.
    pub const fn by_index<R: TableRecord>(index: &'static IndexSchema) -> Self {
        Self::over_table(R::TABLE, Some(index))
    }

    /// The first thousand rows of a table in an order.
    pub(crate) const fn over_table(
        table: &'static TableSchema,
        index: Option<&'static IndexSchema>,
    ) -> Self {
        Self {
            table,
            index,
            equal: Vec::new(),
            until: None,
            after: None,
            is_reversed: false,
            limit: 1_000,
        }
    }

    /// The other way round: the last first, and `after` means before.
    #[must_use]
    pub const fn reversed(mut self) -> Self {
        self.is_reversed = !self.is_reversed;
        self
    }

    /// Only rows with this value in the next column of the order.
    #[must_use]
    pub fn where_equal(mut self, value: &impl crate::ColumnCodec) -> Self {
        self.equal.push(value.to_value());
        self
    }

    /// Only rows with at most this value in the next column of the order.
    #[must_use]
    pub fn where_at_most(mut self, value: &impl crate::ColumnCodec) -> Self {
        self.until = Some(value.to_value());
        self
    }

    /// Only rows after this one: the next page.
    #[must_use]
    pub fn starting_after(mut self, record: &impl TableRecord) -> Self {
        let order = self.table.scan_order(self.index);
        self.after = Some(self.table.select_values(&order, &record.to_row()));
        self
    }

    /// At most so many rows.
    #[must_use]
    pub const fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}
