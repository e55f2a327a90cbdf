//! Maps the serial numbers of a store to ordinals. Serial numbers may have gaps, and two stores may
//! leave different gaps; after normalization the n-th number of a table is n.

use std::collections::BTreeMap;

use crate::{ColumnValue, RowKey, StoredRow, TableRow, TableScan, TableSchema};

/// Offset for ordinals that have no assigned number, so that they never equal an assigned one.
const UNASSIGNED_OFFSET: i64 = 1 << 40;

/// The serial numbers that one store has assigned, by table.
#[derive(Debug, Default)]
pub(super) struct SerialNormalizer {
    assigned: BTreeMap<&'static str, Vec<i64>>,
}

impl SerialNormalizer {
    /// Returns the largest number known to be assigned in a table, or `i64::MIN` if there is none.
    pub(super) fn last_serial(&self, table: &'static TableSchema) -> i64 {
        self.assigned
            .get(table.name)
            .and_then(|all| all.last())
            .copied()
            .unwrap_or(i64::MIN)
    }

    /// Records the serial numbers of new rows.
    pub(super) fn record_serials(&mut self, table: &'static TableSchema, rows: &[StoredRow]) {
        let number = |stored: &StoredRow| {
            if let ColumnValue::Int(number) = stored.row.0[0] {
                Some(number)
            } else {
                None
            }
        };
        self.assigned
            .entry(table.name)
            .or_default()
            .extend(rows.iter().filter_map(number));
    }

    fn assigned_serials(&self, table: &'static TableSchema) -> &[i64] {
        self.assigned.get(table.name).map_or(&[], Vec::as_slice)
    }

    /// Replaces the ordinal n by the n-th number that the store assigned.
    fn ordinal_to_serial(&self, table: &'static TableSchema, value: &mut ColumnValue) {
        let ColumnValue::Int(nth) = value else { return };
        let place = usize::try_from(*nth - 1).ok();
        let known = place
            .and_then(|place| self.assigned_serials(table).get(place))
            .copied();
        *value = ColumnValue::Int(known.unwrap_or(if *nth > 0 {
            *nth + UNASSIGNED_OFFSET
        } else {
            *nth
        }));
    }

    /// Replaces a serial number by its ordinal, from 1.
    fn serial_to_ordinal(&self, table: &'static TableSchema, value: &mut ColumnValue) {
        let ColumnValue::Int(number) = value else {
            return;
        };
        let place = self
            .assigned_serials(table)
            .iter()
            .position(|known| known == number);
        let nth = place.and_then(|place| i64::try_from(place + 1).ok());
        *value = ColumnValue::Int(nth.unwrap_or(if *number > UNASSIGNED_OFFSET {
            *number - UNASSIGNED_OFFSET
        } else {
            *number
        }));
    }

    /// Converts a key with an ordinal to the key in the store.
    pub(super) fn denormalize_key(&self, table: &'static TableSchema, RowKey(values): &mut RowKey) {
        if table.has_serial_key() {
            values
                .iter_mut()
                .take(1)
                .for_each(|value| self.ordinal_to_serial(table, value));
        }
    }

    /// Converts a key in the store to a key with an ordinal.
    pub(super) fn normalize_key(&self, table: &'static TableSchema, RowKey(values): &mut RowKey) {
        if table.has_serial_key() {
            values
                .iter_mut()
                .take(1)
                .for_each(|value| self.serial_to_ordinal(table, value));
        }
    }

    /// Converts a row with an ordinal to the row in the store.
    pub(super) fn denormalize_row(
        &self,
        table: &'static TableSchema,
        TableRow(values): &mut TableRow,
    ) {
        if table.has_serial_key() {
            values
                .iter_mut()
                .take(1)
                .for_each(|value| self.ordinal_to_serial(table, value));
        }
    }

    /// Converts a row in the store to a row with an ordinal.
    pub(super) fn normalize_stored_row(
        &self,
        table: &'static TableSchema,
        StoredRow {
            row: TableRow(values),
            ..
        }: &mut StoredRow,
    ) {
        if table.has_serial_key() {
            values
                .iter_mut()
                .take(1)
                .for_each(|value| self.serial_to_ordinal(table, value));
        }
    }

    /// Converts the ordinals in a scan to the serial numbers of the store.
    pub(super) fn denormalize_scan(&self, scan: &mut TableScan) {
        let table = scan.table;
        if !table.has_serial_key() {
            return;
        }
        let order = table.scan_order(scan.index);
        let Some(place) = order
            .iter()
            .position(|column| *column == table.columns[0].name)
        else {
            return;
        };
        if scan.until.is_some() && scan.equal.len() == place {
            scan.until
                .iter_mut()
                .for_each(|value| self.ordinal_to_serial(table, value));
        }
        let lists = [Some(&mut scan.equal), scan.after.as_mut()];
        let values = lists
            .into_iter()
            .flatten()
            .filter_map(|list| list.get_mut(place));
        values.for_each(|value| self.ordinal_to_serial(table, value));
    }
}
