//! Query parameters of the store's reads, and the types that they return.

use std::sync::Arc;

use onward_base::{EnvironmentId, ProjectId, TenantId, Timestamp};
use onward_runs::{RunEventWrite, RunId, RunSeq};

use crate::{ColumnValue, IndexSchema, RunEventReader, TableRecord, TableSchema};

/// Selects a page of the events of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunEventQuery {
    /// Returns only events after this sequence number (exclusive).
    pub after: RunSeq,
    /// Maximum number of events to return; default: 1000.
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
    /// Selects the first 1000 events after `after`.
    pub fn starting_after(after: RunSeq) -> Self {
        Self {
            after,
            ..Self::default()
        }
    }
}

/// Summary of a run that the store keeps beside its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunHead {
    /// The run that this head describes.
    pub run_id: RunId,
    /// The tenant that owns the run.
    pub tenant_id: TenantId,
    /// The project of the run.
    pub project_id: ProjectId,
    /// The environment of the run.
    pub environment_id: EnvironmentId,
    /// Sequence number of the last event.
    pub last_seq: RunSeq,
    /// When the last event was stored.
    pub last_persisted_at: Timestamp,
    /// Watermark of the projector: the last event that it has processed.
    pub projected_seq: RunSeq,
    /// Watermark of the event bus: the last event that it has processed.
    pub delivered_seq: RunSeq,
}

impl RunHead {
    /// Whether the event has the same tenant, project and environment as the run.
    pub fn has_scope_of(&self, event: &RunEventWrite) -> bool {
        self.tenant_id == event.tenant_id
            && self.project_id == event.project_id
            && self.environment_id == event.environment_id
    }

    /// Returns the last event that `reader` has processed.
    pub const fn reader_position(&self, reader: RunEventReader) -> RunSeq {
        match reader {
            RunEventReader::Projector => self.projected_seq,
            RunEventReader::EventBus => self.delivered_seq,
        }
    }

    /// Returns this head with the position of `reader` set to `to`.
    #[must_use]
    pub fn with_reader_at(mut self, reader: RunEventReader, to: RunSeq) -> Self {
        match reader {
            RunEventReader::Projector => self.projected_seq = to,
            RunEventReader::EventBus => self.delivered_seq = to,
        }
        self
    }
}

/// Journal events in the unit in which one append stored them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalChunk {
    /// Sequence number of the first event.
    pub first: u64,
    /// Number of events in the chunk.
    pub count: u32,
    /// The encoded events, which the store does not interpret.
    pub records: Arc<[u8]>,
}

/// Selects rows of a table and the order in which they are returned.
#[derive(Debug, Clone)]
pub struct TableScan {
    /// The table to scan.
    pub table: &'static TableSchema,
    /// The index that defines the order; `None` means the order of the key.
    pub index: Option<&'static IndexSchema>,
    /// Required values of the leading columns of the order.
    pub equal: Vec<ColumnValue>,
    /// Upper bound (inclusive) for the column after `equal`.
    pub until: Option<ColumnValue>,
    /// Returns only rows after this position (exclusive), given as the values of all columns of the
    /// order.
    pub after: Option<Vec<ColumnValue>>,
    /// Whether to scan in descending order.
    pub is_reversed: bool,
    /// Maximum number of rows to return; default: 1000.
    pub limit: usize,
}

impl TableScan {
    /// Selects the first 1000 rows of a table in the order of its key.
    pub const fn all_rows<R: TableRecord>() -> Self {
        Self::over_table(R::TABLE, None)
    }

    /// Selects the first 1000 rows of a table in the order of an index.
    pub const fn by_index<R: TableRecord>(index: &'static IndexSchema) -> Self {
        Self::over_table(R::TABLE, Some(index))
    }

    /// Selects the first 1000 rows of a table in the order of `index`, or of the key if it is
    /// `None`.
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

    /// Reverses the direction of the scan. In descending order, `after` selects the rows before the
    /// given one.
    #[must_use]
    pub const fn reversed(mut self) -> Self {
        self.is_reversed = !self.is_reversed;
        self
    }

    /// Selects only rows with this value in the next column of the order.
    #[must_use]
    pub fn where_equal(mut self, value: &impl crate::ColumnCodec) -> Self {
        self.equal.push(value.to_value());
        self
    }

    /// Selects only rows with at most this value in the next column of the order.
    #[must_use]
    pub fn where_at_most(mut self, value: &impl crate::ColumnCodec) -> Self {
        self.until = Some(value.to_value());
        self
    }

    /// Selects only rows after this record, to read the next page.
    #[must_use]
    pub fn starting_after(mut self, record: &impl TableRecord) -> Self {
        let order = self.table.scan_order(self.index);
        self.after = Some(self.table.select_values(&order, &record.to_row()));
        self
    }

    /// Sets the maximum number of rows to return.
    #[must_use]
    pub const fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}
