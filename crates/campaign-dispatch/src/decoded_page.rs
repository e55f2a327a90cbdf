//! Reads pages of rows and decodes each row on its own, so that one corrupt row does not hide the
//! others.

use onward_base::SharedText;
use onward_store::{ColumnValue, Error, Store, StoredRow, TableRecord, TableScan};

/// A page of a scan: the records that could be decoded, and the rows that could not.
pub(crate) struct DecodedPage<R> {
    pub(crate) records: Vec<(R, u64)>,
    pub(crate) corrupt: Vec<CorruptRow>,
    /// The scan of the next page; `None` if this is the last one.
    pub(crate) next: Option<TableScan>,
}

/// A row that cannot be decoded, for example because its status is unknown.
pub(crate) struct CorruptRow {
    /// The first column of its key.
    pub(crate) id: SharedText,
    pub(crate) error: Error,
}

impl<R: TableRecord> DecodedPage<R> {
    /// Reads the page that `scan` selects. Fails only if the store cannot be read.
    pub(crate) async fn read(store: &dyn Store, scan: TableScan) -> Result<Self, Error> {
        let rows = store.scan_rows(scan.clone()).await?;
        let is_full = rows.len() == scan.limit;
        let (mut records, mut corrupt) = (Vec::new(), Vec::new());
        for stored in &rows {
            match R::from_row(&stored.row) {
                Ok(record) => records.push((record, stored.version)),
                Err(error) => corrupt.push(CorruptRow {
                    id: row_id(stored),
                    error: Error::corrupt(error),
                }),
            }
        }
        let next = rows
            .last()
            .filter(|_| is_full)
            .map(|last| scan_after_row(scan, last));
        Ok(Self {
            records,
            corrupt,
            next,
        })
    }
}

fn row_id(stored: &StoredRow) -> SharedText {
    match stored.row.0.first() {
        Some(ColumnValue::Text(id)) => id.clone(),
        Some(other) => other.to_string().into(),
        None => "".into(),
    }
}

fn scan_after_row(mut scan: TableScan, last: &StoredRow) -> TableScan {
    let order = scan.table.scan_order(scan.index);
    scan.after = Some(scan.table.select_values(&order, &last.row));
    scan
}
