//! Numbers that a store assigns may have gaps, and two stores may leave different ones. Seen through a lens, the n-th
//! number of a table is n.

use std::collections::BTreeMap;

use crate::{ColumnValue, RowKey, StoredRow, TableRow, TableScan, TableSchema};

/// What stands for a number that was not assigned: it must not meet one that is.
const UNASSIGNED_OFFSET: i64 = 1 << 40;

/// Which numbers one store has assigned.
#[derive(Debug, Default)]
pub(super) struct SerialNormalizer {
    assigned: BTreeMap<&'static str, Vec<i64>>,
}

impl SerialNormalizer {
    /// The largest number that is known to be assigned in a table.
    pub(super) fn last_serial(&self, table: &'static TableSchema) -> i64 {
        self.assigned
            .get(table.name)
            .and_then(|all| all.last())
            .copied()
            .unwrap_or(i64::MIN)
    }

    /// Takes note of rows that are new.
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

    /// The number that the store assigned as its n-th.
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

    /// Which number, counted from 1, this one is.
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

    /// A key for the store.
    pub(super) fn denormalize_key(&self, table: &'static TableSchema, RowKey(values): &mut RowKey) {
        if table.has_serial_key() {
            values
                .iter_mut()
                .take(1)
                .for_each(|value| self.ordinal_to_serial(table, value));
        }
    }

    /// A key from the store.
    pub(super) fn normalize_key(&self, table: &'static TableSchema, RowKey(values): &mut RowKey) {
        if table.has_serial_key() {
            values
                .iter_mut()
                .take(1)
                .for_each(|value| self.serial_to_ordinal(table, value));
        }
    }

    /// A row for the store.
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

    /// A row from the store.
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

    /// A scan for the store.
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
