//! Checks of scans in every index order of every table, compared with the suite's own filter and
//! sort.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
use onward_base::SharedText;

use super::prelude::*;
use crate::conformance::fixtures::{queued_job_row, queued_task_row};
use crate::conformance::store_dump;
use crate::tables::{JobRow, TaskRow};
use crate::{IndexSchema, RowChange, StoreLimits, tables};

/// Number of rows that each table is filled with.
const ROW_COUNT: u64 = 40;
/// Maximum number of prefixes of the order that are tried.
const PREFIXES_MAX: usize = 12;

type ScanCheck = for<'a> fn(&'a CheckContext<'a>, ScanOrder) -> BoxFuture<'a, CheckResult>;

const SCAN_CHECKS: [(&str, ScanCheck); 5] = [
    ("are_scanned_in_order_up_to_the_limit", |world, order| {
        Box::pin(expect_in_order(world, order))
    }),
    ("are_filtered_by_equal_values", |world, order| {
        Box::pin(expect_equal_filter(world, order))
    }),
    ("end_at_the_upper_bound", |world, order| {
        Box::pin(expect_upper_bound(world, order))
    }),
    ("are_scanned_in_descending_order", |world, order| {
        Box::pin(expect_reversed(world, order))
    }),
    ("are_paged_without_gaps_or_duplicates", |world, order| {
        Box::pin(expect_paged(world, order))
    }),
];

super::checks!(fn written_checks, Scans:
    a_scan_of_an_empty_table_is_empty,
    a_scan_is_capped_by_the_policy,
    the_default_scan_returns_1000_rows,
    a_scan_returns_due_rows_before_later_rows,
    a_page_after_a_deleted_row_continues_behind_it,
    text_is_ordered_by_its_bytes,
    a_scan_returns_the_latest_version,
    a_count_covers_more_than_a_page_and_stops_at_the_limit,
);

pub(super) fn checks() -> Vec<ConformanceCheck> {
    let mut checks = written_checks();
    for order in tables::ALL_TABLES
        .into_iter()
        .flat_map(ScanOrder::orders_of_table)
    {
        checks.extend(SCAN_CHECKS.map(|(name, question)| {
            let name = format!(
                "{}_by_{}_{name}",
                order.table.name,
                order.order_columns().join("_and_")
            );
            ConformanceCheck::new(Topic::Scans, name, move |world| question(world, order))
        }));
    }
    checks
}

/// An order in which a table can be scanned.
#[derive(Clone, Copy)]
struct ScanOrder {
    table: &'static TableSchema,
    index: Option<&'static IndexSchema>,
}

impl ScanOrder {
    /// Returns every order of a table.
    fn orders_of_table(table: &'static TableSchema) -> impl Iterator<Item = Self> {
        let indexes = table.indexes.iter().map(Some);
        std::iter::once(None)
            .chain(indexes)
            .map(move |index| Self { table, index })
    }

    fn order_columns(self) -> Vec<&'static str> {
        self.table.scan_order(self.index)
    }

    const fn to_scan(self) -> TableScan {
        TableScan::over_table(self.table, self.index)
    }

    /// Returns the values of a row in the columns of the order.
    fn order_values(self, stored: &StoredRow) -> Vec<ColumnValue> {
        self.table.select_values(&self.order_columns(), &stored.row)
    }
}

/// Fills the table and returns its rows in this order.
async fn fill_table(
    world: &CheckContext<'_>,
    order: ScanOrder,
) -> Result<Vec<StoredRow>, ConformanceFailure> {
    let table = order.table;
    let mut commit = Commit::new();
    commit.changes = (1..=ROW_COUNT)
        .map(|number| RowChange::Insert {
            table,
            row: fixtures::numbered_row(table, number),
        })
        .collect();
    world.commit(commit).await?;
    let mut rows = store_dump::read_all_rows(world.store(), table).await?;
    expect_same("the number of rows", rows.len() as u64, ROW_COUNT)?;
    rows.sort_by_key(|stored| order.order_values(stored));
    Ok(rows)
}

/// Expects the scan to return exactly the matching rows of `rows`.
async fn expect_scan_result(
    world: &CheckContext<'_>,
    rows: &[StoredRow],
    order: ScanOrder,
    scan: TableScan,
) -> CheckResult {
    let fits = |stored: &&StoredRow| {
        let place = order.order_values(stored);
        let (head, tail) = place.split_at(scan.equal.len());
        head == scan.equal
            && scan
                .until
                .as_ref()
                .is_none_or(|until| tail.first() <= Some(until))
            && scan.after.as_ref().is_none_or(|after| {
                if scan.is_reversed {
                    place < *after
                } else {
                    place > *after
                }
            })
    };
    let mut expected: Vec<StoredRow> = rows.iter().filter(fits).cloned().collect();
    if scan.is_reversed {
        expected.reverse();
    }
    expected.truncate(scan.limit);
    expect_same(
        &format!("the rows of {scan:?}"),
        world.scan_rows(scan).await?,
        expected,
    )
}

/// Returns the first `length` order values of some of the rows, without duplicates.
fn order_prefixes(rows: &[StoredRow], order: ScanOrder, length: usize) -> Vec<Vec<ColumnValue>> {
    let of = |stored: &StoredRow| order.order_values(stored)[..length].to_vec();
    let all: BTreeSet<Vec<ColumnValue>> = rows.iter().map(of).collect();
    let every = all.len().div_ceil(PREFIXES_MAX).max(1);
    all.into_iter().step_by(every).collect()
}

/// Returns a value of the type of this column that no row has.
fn absent_value(order: ScanOrder, place: usize) -> ColumnValue {
    let column = order
        .table
        .column_position(order.order_columns()[place])
        .map(|place| order.table.columns[place].column_type);
    fixtures::distinct_value(column.unwrap_or(crate::ColumnType::Int), 250)
}

async fn expect_in_order(world: &CheckContext<'_>, order: ScanOrder) -> CheckResult {
    let rows = fill_table(world, order).await?;
    for limit in [0, 1, 2, 39, 40, 41, usize::MAX] {
        expect_scan_result(world, &rows, order, order.to_scan().with_limit(limit)).await?;
    }
    Ok(())
}

async fn expect_equal_filter(world: &CheckContext<'_>, order: ScanOrder) -> CheckResult {
    let rows = fill_table(world, order).await?;
    for length in 1..=order.order_columns().len() {
        for equal in order_prefixes(&rows, order, length) {
            expect_scan_result(
                world,
                &rows,
                order,
                TableScan {
                    equal: equal.clone(),
                    ..order.to_scan()
                },
            )
            .await?;
            expect_scan_result(
                world,
                &rows,
                order,
                TableScan {
                    equal,
                    ..order.to_scan()
                }
                .with_limit(2),
            )
            .await?;
        }
    }
    let equal = vec![absent_value(order, 0)];
    expect_scan_result(
        world,
        &rows,
        order,
        TableScan {
            equal,
            ..order.to_scan()
        },
    )
    .await
}

async fn expect_upper_bound(world: &CheckContext<'_>, order: ScanOrder) -> CheckResult {
    let rows = fill_table(world, order).await?;
    for length in 0..order.order_columns().len() {
        for mut equal in order_prefixes(&rows, order, length + 1) {
            let until = equal.pop();
            expect_scan_result(
                world,
                &rows,
                order,
                TableScan {
                    equal: equal.clone(),
                    until,
                    ..order.to_scan()
                },
            )
            .await?;
            let until = Some(absent_value(order, length));
            expect_scan_result(
                world,
                &rows,
                order,
                TableScan {
                    equal,
                    until,
                    ..order.to_scan()
                },
            )
            .await?;
        }
    }
    Ok(())
}

async fn expect_paged(world: &CheckContext<'_>, order: ScanOrder) -> CheckResult {
    let rows = fill_table(world, order).await?;
    for limit in [1, 7, 40] {
        let (mut all, mut after) = (Vec::new(), None);
        while all.len() <= rows.len() {
            let page = world
                .scan_rows(
                    TableScan {
                        after,
                        ..order.to_scan()
                    }
                    .with_limit(limit),
                )
                .await?;
            let Some(last) = page.last() else { break };
            after = Some(order.order_values(last));
            all.extend(page);
        }
        expect_same("the pages together", all, rows.clone())?;
    }
    for stored in rows.iter().step_by(9) {
        let (place, middle) = (order.order_values(stored), order.order_values(&rows[20]));
        let (equal, until) = (middle[..1].to_vec(), middle.get(1).cloned());
        expect_scan_result(
            world,
            &rows,
            order,
            TableScan {
                after: Some(place.clone()),
                ..order.to_scan()
            },
        )
        .await?;
        expect_scan_result(
            world,
            &rows,
            order,
            TableScan {
                equal,
                until,
                after: Some(place),
                ..order.to_scan()
            },
        )
        .await?;
    }
    Ok(())
}

async fn expect_reversed(world: &CheckContext<'_>, order: ScanOrder) -> CheckResult {
    let rows = fill_table(world, order).await?;
    for limit in [0, 1, 39, usize::MAX] {
        expect_scan_result(
            world,
            &rows,
            order,
            order.to_scan().reversed().with_limit(limit),
        )
        .await?;
    }
    for stored in rows.iter().step_by(9) {
        let (place, middle) = (order.order_values(stored), order.order_values(&rows[20]));
        let (equal, until) = (middle[..1].to_vec(), middle.get(1).cloned());
        expect_scan_result(
            world,
            &rows,
            order,
            TableScan {
                after: Some(place.clone()),
                ..order.to_scan().reversed()
            }
            .with_limit(7),
        )
        .await?;
        expect_scan_result(
            world,
            &rows,
            order,
            TableScan {
                equal,
                until,
                after: Some(place),
                ..order.to_scan().reversed()
            },
        )
        .await?;
    }
    Ok(())
}

async fn a_scan_of_an_empty_table_is_empty(world: &CheckContext<'_>) -> CheckResult {
    for order in tables::ALL_TABLES
        .into_iter()
        .flat_map(ScanOrder::orders_of_table)
    {
        expect_same(
            order.table.name,
            world.scan_rows(order.to_scan()).await?,
            Vec::new(),
        )?;
    }
    Ok(())
}

async fn a_scan_is_capped_by_the_policy(world: &CheckContext<'_>) -> CheckResult {
    let limits = StoreLimits {
        page_max: 3,
        ..StoreLimits::default()
    };
    let world = world
        .open_another(StorePolicy {
            limits,
            ..StorePolicy::default()
        })
        .await?;
    world
        .commit((1..=5).fold(Commit::new(), |commit, promise| {
            commit.insert(&queued_task_row(1, promise))
        }))
        .await?;
    for limit in [4, 1_000, usize::MAX] {
        expect_same(
            "the number of rows",
            world
                .scan_rows(TableScan::all_rows::<TaskRow>().with_limit(limit))
                .await?
                .len(),
            3,
        )?;
    }
    Ok(())
}

async fn the_default_scan_returns_1000_rows(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit((1..=1_001).fold(Commit::new(), |commit, promise| {
            commit.insert(&queued_task_row(1, promise))
        }))
        .await?;
    expect_same(
        "the number of rows",
        world
            .scan_rows(TableScan::all_rows::<TaskRow>())
            .await?
            .len(),
        1_000,
    )?;
    let rest = TableScan::all_rows::<TaskRow>().starting_after(&queued_task_row(1, 1_000));
    expect_same("the rest", world.scan_rows(rest).await?.len(), 1)
}

/// Selects the queued tasks of a function, in the order in which they were queued.
fn tasks_of_function(function: &str) -> TableScan {
    let task = queued_task_row(1, 1);
    TableScan::by_index::<TaskRow>(TaskRow::BY_FUNCTION)
        .where_equal(&task.tenant_id)
        .where_equal(&task.project_id)
        .where_equal(&task.environment_id)
        .where_equal(&SharedText::from(function))
        .where_equal(&task.state)
}

async fn a_scan_returns_due_rows_before_later_rows(world: &CheckContext<'_>) -> CheckResult {
    let due = |promise: u32, ms: u64| TaskRow {
        queued_at: timestamp_after_ms(ms),
        ..queued_task_row(1, promise)
    };
    let tasks = [due(1, 30), due(2, 10), due(3, 20), due(4, 40)];
    world
        .commit(
            tasks
                .iter()
                .fold(Commit::new(), |commit, task| commit.insert(task)),
        )
        .await?;
    let scan = tasks_of_function("charge").where_at_most(&timestamp_after_ms(30));
    let found: Vec<u32> = world
        .list_records(scan)
        .await?
        .into_iter()
        .map(|(task, _): (TaskRow, u64)| task.promise)
        .collect();
    expect_same("the promises", found, vec![2, 3, 1])
}

async fn a_page_after_a_deleted_row_continues_behind_it(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(["a", "b", "c"].iter().fold(Commit::new(), |commit, name| {
            commit.insert(&queued_job_row(name))
        }))
        .await?;
    world
        .commit(Commit::new().delete(&queued_job_row("b"), 1))
        .await?;
    let rest: Vec<(JobRow, u64)> = world
        .list_records(TableScan::all_rows::<JobRow>().starting_after(&queued_job_row("b")))
        .await?;
    expect_same("the next page", rest, vec![(queued_job_row("c"), 1)])
}

async fn text_is_ordered_by_its_bytes(world: &CheckContext<'_>) -> CheckResult {
    let names = [
        "", "\t", " ", "!", "10", "9", "A", "B", "Z", "_", "a", "aa", "b", "z", "~", "é", "中",
        "\u{fffd}", "😀",
    ];
    let commit = names.iter().rev().fold(Commit::new(), |commit, name| {
        commit.insert(&queued_job_row(name))
    });
    world.commit(commit).await?;
    let found: Vec<String> = world
        .list_records(TableScan::all_rows::<JobRow>())
        .await?
        .into_iter()
        .map(|(job, _): (JobRow, u64)| job.id.to_string())
        .collect();
    expect_same(
        "the names in order",
        found,
        names.map(str::to_owned).to_vec(),
    )
}

async fn a_scan_returns_the_latest_version(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().insert(&queued_job_row("j")))
        .await?;
    let changed = JobRow {
        run_after: timestamp_after_ms(50),
        ..queued_job_row("j")
    };
    world.commit(Commit::new().update(&changed, 1)).await?;
    let early: Vec<(JobRow, u64)> = world
        .list_records(
            TableScan::by_index::<JobRow>(JobRow::BY_STATUS)
                .where_equal(&queued_job_row("j").status)
                .where_at_most(&timestamp_after_ms(49)),
        )
        .await?;
    expect_same("the row at its old position", early, Vec::new())?;
    let late: Vec<(JobRow, u64)> = world
        .list_records(
            TableScan::by_index::<JobRow>(JobRow::BY_STATUS)
                .where_equal(&queued_job_row("j").status),
        )
        .await?;
    expect_same("the row at its new position", late, vec![(changed, 2)])
}

async fn a_count_covers_more_than_a_page_and_stops_at_the_limit(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_same(
        "the number of rows of an empty table",
        world.count_rows(TableScan::all_rows::<TaskRow>()).await?,
        0,
    )?;
    let tasks = (1..=1_500).map(|promise| TaskRow {
        queued_at: timestamp_after_ms(promise.into()),
        ..queued_task_row(1, promise)
    });
    world
        .commit(tasks.fold(Commit::new(), |commit, task| commit.insert(&task)))
        .await?;
    expect_same(
        "the count beyond a page",
        world
            .count_rows(TableScan::all_rows::<TaskRow>().with_limit(100_000))
            .await?,
        1_500,
    )?;
    expect_same(
        "the count up to the limit",
        world
            .count_rows(TableScan::all_rows::<TaskRow>().with_limit(700))
            .await?,
        700,
    )?;
    let due = tasks_of_function("charge")
        .where_at_most(&timestamp_after_ms(30))
        .with_limit(100_000);
    expect_same(
        "the number of due rows",
        world.count_rows(due.clone()).await?,
        30,
    )?;
    let after = TaskRow {
        queued_at: timestamp_after_ms(10),
        ..queued_task_row(1, 10)
    };
    expect_same(
        "the number of rows after a key",
        world.count_rows(due.starting_after(&after)).await?,
        20,
    )?;
    let others = tasks_of_function("refund");
    expect_same(
        "the number of rows of another function",
        world.count_rows(others).await?,
        0,
    )
}
