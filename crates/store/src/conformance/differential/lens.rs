//! Numbers that a store assigns may have gaps, and two stores may leave different ones. Seen through a lens, the n-th
//! number of a table is n.

use std::collections::BTreeMap;

use crate::{Key, Row, Scan, Stored, Table, Value};

/// What stands for a number that was not assigned: it must not meet one that is.
const NOT_ASSIGNED: i64 = 1 << 40;

/// Which numbers one store has assigned.
#[derive(Debug, Default)]
pub(super) struct Lens {
    assigned: BTreeMap<&'static str, Vec<i64>>,
}

impl Lens {
    /// The largest number that is known to be assigned in a table.
    pub(super) fn last(&self, table: &'static Table) -> i64 {
        self.assigned.get(table.name).and_then(|all| all.last()).copied().unwrap_or(i64::MIN)
    }

    /// Takes note of rows that are new.
    pub(super) fn learn(&mut self, table: &'static Table, rows: &[Stored]) {
        let number = |stored: &Stored| if let Value::Int(number) = stored.row.0[0] { Some(number) } else { None };
        self.assigned.entry(table.name).or_default().extend(rows.iter().filter_map(number));
    }

    fn assigned(&self, table: &'static Table) -> &[i64] {
        self.assigned.get(table.name).map_or(&[], Vec::as_slice)
    }

    /// The number that the store assigned as its n-th.
    fn number(&self, table: &'static Table, value: &mut Value) {
        let Value::Int(nth) = value else { return };
        let place = usize::try_from(*nth - 1).ok();
        let known = place.and_then(|place| self.assigned(table).get(place)).copied();
        *value = Value::Int(known.unwrap_or(if *nth > 0 { *nth + NOT_ASSIGNED } else { *nth }));
    }

    /// Which number, counted from 1, this one is.
    fn nth(&self, table: &'static Table, value: &mut Value) {
        let Value::Int(number) = value else { return };
        let place = self.assigned(table).iter().position(|known| known == number);
        let nth = place.and_then(|place| i64::try_from(place + 1).ok());
        *value = Value::Int(nth.unwrap_or(if *number > NOT_ASSIGNED { *number - NOT_ASSIGNED } else { *number }));
    }

    /// A key for the store.
    pub(super) fn key_for_store(&self, table: &'static Table, Key(values): &mut Key) {
        if table.is_serial() {
            values.iter_mut().take(1).for_each(|value| self.number(table, value));
        }
    }

    /// A key from the store.
    pub(super) fn key_seen(&self, table: &'static Table, Key(values): &mut Key) {
        if table.is_serial() {
            values.iter_mut().take(1).for_each(|value| self.nth(table, value));
        }
    }

    /// A row for the store.
    pub(super) fn row_for_store(&self, table: &'static Table, Row(values): &mut Row) {
        if table.is_serial() {
            values.iter_mut().take(1).for_each(|value| self.number(table, value));
        }
    }

    /// A row from the store.
    pub(super) fn row_seen(&self, table: &'static Table, Stored { row: Row(values), .. }: &mut Stored) {
        if table.is_serial() {
            values.iter_mut().take(1).for_each(|value| self.nth(table, value));
        }
    }

    /// A scan for the store.
    pub(super) fn scan_for_store(&self, scan: &mut Scan) {
        let table = scan.table;
        if !table.is_serial() {
            return;
        }
        let order = table.order_of(scan.index);
        let Some(place) = order.iter().position(|column| *column == table.columns[0].name) else { return };
        if scan.until.is_some() && scan.equal.len() == place {
            scan.until.iter_mut().for_each(|value| self.number(table, value));
        }
        let lists = [Some(&mut scan.equal), scan.after.as_mut()];
        let values = lists.into_iter().flatten().filter_map(|list| list.get_mut(place));
        values.for_each(|value| self.number(table, value));
    }
}
