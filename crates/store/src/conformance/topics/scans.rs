//! Rows in the order of every index of every table, compared with a filter and a sort of our own.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;

use super::prelude::*;
use crate::conformance::dump;
use crate::conformance::sample::{job, timer};
use crate::tables::{Job, Timer};
use crate::{Change, Index, Limits, tables};

/// How many rows a table is filled with.
const ROWS: u64 = 40;
/// How many prefixes of the order are tried.
const PREFIXES_MAX: usize = 12;

type Question = for<'a> fn(&'a World<'a>, Order) -> BoxFuture<'a, Verdict>;

const QUESTIONS: [(&str, Question); 5] = [
    ("come_in_order_and_end_at_the_limit", |world, order| Box::pin(in_order(world, order))),
    ("are_narrowed_by_equal_values", |world, order| Box::pin(equal(world, order))),
    ("end_at_until", |world, order| Box::pin(until(world, order))),
    ("come_in_reverse", |world, order| Box::pin(reversed(world, order))),
    ("are_paged_without_loss_or_repetition", |world, order| Box::pin(paged(world, order))),
];

super::checks!(fn written, Scans:
    a_scan_of_an_empty_table_is_empty,
    a_scan_is_cut_at_the_policy,
    the_usual_scan_gives_a_thousand_rows,
    what_is_due_is_found_before_what_is_not,
    a_page_after_a_row_that_is_gone_goes_on_behind_it,
    text_is_ordered_by_its_bytes,
    a_scan_shows_the_latest_version,
    rows_are_counted_up_to_the_limit_and_beyond_a_page,
);

pub(super) fn checks() -> Vec<Check> {
    let mut checks = written();
    for order in tables::ALL.into_iter().flat_map(Order::of) {
        checks.extend(QUESTIONS.map(|(name, question)| {
            let name = format!("{}_by_{}_{name}", order.table.name, order.columns().join("_and_"));
            Check::new(Topic::Scans, name, move |world| question(world, order))
        }));
    }
    checks
}

/// An order in which a table can be scanned.
#[derive(Clone, Copy)]
struct Order {
    table: &'static Table,
    index: Option<&'static Index>,
}

impl Order {
    /// Every order of a table.
    fn of(table: &'static Table) -> impl Iterator<Item = Self> {
        let indexes = table.indexes.iter().map(Some);
        std::iter::once(None).chain(indexes).map(move |index| Self { table, index })
    }

    fn columns(self) -> Vec<&'static str> {
        self.table.order_of(self.index)
    }

    const fn scan(self) -> Scan {
        Scan::of(self.table, self.index)
    }

    /// A row's values in the columns of the order.
    fn place(self, stored: &Stored) -> Vec<Value> {
        self.table.pick(&self.columns(), &stored.row)
    }
}

/// Fills the table, and returns its rows in this order.
async fn filled(world: &World<'_>, order: Order) -> Result<Vec<Stored>, Failure> {
    let table = order.table;
    let mut commit = Commit::new();
    commit.changes = (1..=ROWS).map(|number| Change::Insert { table, row: sample::row(table, number) }).collect();
    world.commit(commit).await?;
    let mut rows = dump::rows(world.store(), table).await?;
    same("how many rows there are", rows.len() as u64, ROWS)?;
    rows.sort_by_key(|stored| order.place(stored));
    Ok(rows)
}

/// The scan gives those of `rows` that it asks for.
async fn gives(world: &World<'_>, rows: &[Stored], order: Order, scan: Scan) -> Verdict {
    let fits = |stored: &&Stored| {
        let place = order.place(stored);
        let (head, tail) = place.split_at(scan.equal.len());
        head == scan.equal
            && scan.until.as_ref().is_none_or(|until| tail.first() <= Some(until))
            && scan.after.as_ref().is_none_or(|after| if scan.is_reversed { place < *after } else { place > *after })
    };
    let mut expected: Vec<Stored> = rows.iter().filter(fits).cloned().collect();
    if scan.is_reversed {
        expected.reverse();
    }
    expected.truncate(scan.limit);
    same(&format!("the rows of {scan:?}"), world.rows(scan).await?, expected)
}

/// The first `length` values of the places of some rows, and one that no row has.
fn prefixes(rows: &[Stored], order: Order, length: usize) -> Vec<Vec<Value>> {
    let of = |stored: &Stored| order.place(stored)[..length].to_vec();
    let all: BTreeSet<Vec<Value>> = rows.iter().map(of).collect();
    let every = all.len().div_ceil(PREFIXES_MAX).max(1);
    all.into_iter().step_by(every).collect()
}

/// A value that no row has, of the type of this column.
fn absent(order: Order, place: usize) -> Value {
    let column = order.table.position(order.columns()[place]).map(|place| order.table.columns[place].of);
    sample::distinct(column.unwrap_or(crate::Type::Int), 250)
}

async fn in_order(world: &World<'_>, order: Order) -> Verdict {
    let rows = filled(world, order).await?;
    for limit in [0, 1, 2, 39, 40, 41, usize::MAX] {
        gives(world, &rows, order, order.scan().limit(limit)).await?;
    }
    Ok(())
}

async fn equal(world: &World<'_>, order: Order) -> Verdict {
    let rows = filled(world, order).await?;
    for length in 1..=order.columns().len() {
        for equal in prefixes(&rows, order, length) {
            gives(world, &rows, order, Scan { equal: equal.clone(), ..order.scan() }).await?;
            gives(world, &rows, order, Scan { equal, ..order.scan() }.limit(2)).await?;
        }
    }
    let equal = vec![absent(order, 0)];
    gives(world, &rows, order, Scan { equal, ..order.scan() }).await
}

async fn until(world: &World<'_>, order: Order) -> Verdict {
    let rows = filled(world, order).await?;
    for length in 0..order.columns().len() {
        for mut equal in prefixes(&rows, order, length + 1) {
            let until = equal.pop();
            gives(world, &rows, order, Scan { equal: equal.clone(), until, ..order.scan() }).await?;
            let until = Some(absent(order, length));
            gives(world, &rows, order, Scan { equal, until, ..order.scan() }).await?;
        }
    }
    Ok(())
}

async fn paged(world: &World<'_>, order: Order) -> Verdict {
    let rows = filled(world, order).await?;
    for limit in [1, 7, 40] {
        let (mut all, mut after) = (Vec::new(), None);
        while all.len() <= rows.len() {
            let page = world.rows(Scan { after, ..order.scan() }.limit(limit)).await?;
            let Some(last) = page.last() else { break };
            after = Some(order.place(last));
            all.extend(page);
        }
        same("the pages together", all, rows.clone())?;
    }
    for stored in rows.iter().step_by(9) {
        let (place, middle) = (order.place(stored), order.place(&rows[20]));
        let (equal, until) = (middle[..1].to_vec(), middle.get(1).cloned());
        gives(world, &rows, order, Scan { after: Some(place.clone()), ..order.scan() }).await?;
        gives(world, &rows, order, Scan { equal, until, after: Some(place), ..order.scan() }).await?;
    }
    Ok(())
}

async fn reversed(world: &World<'_>, order: Order) -> Verdict {
    let rows = filled(world, order).await?;
    for limit in [0, 1, 39, usize::MAX] {
        gives(world, &rows, order, order.scan().reversed().limit(limit)).await?;
    }
    for stored in rows.iter().step_by(9) {
        let (place, middle) = (order.place(stored), order.place(&rows[20]));
        let (equal, until) = (middle[..1].to_vec(), middle.get(1).cloned());
        gives(world, &rows, order, Scan { after: Some(place.clone()), ..order.scan().reversed() }.limit(7)).await?;
        gives(world, &rows, order, Scan { equal, until, after: Some(place), ..order.scan().reversed() }).await?;
    }
    Ok(())
}

async fn a_scan_of_an_empty_table_is_empty(world: &World<'_>) -> Verdict {
    for order in tables::ALL.into_iter().flat_map(Order::of) {
        same(order.table.name, world.rows(order.scan()).await?, Vec::new())?;
    }
    Ok(())
}

async fn a_scan_is_cut_at_the_policy(world: &World<'_>) -> Verdict {
    let limits = Limits { page_max: 3, ..Limits::default() };
    let world = world.fresh(Policy { limits, ..Policy::default() }).await?;
    world.commit((1..=5).fold(Commit::new(), |commit, promise| commit.insert(&timer(1, promise)))).await?;
    for limit in [4, 1_000, usize::MAX] {
        same("how many rows", world.rows(Scan::all::<Timer>().limit(limit)).await?.len(), 3)?;
    }
    Ok(())
}

async fn the_usual_scan_gives_a_thousand_rows(world: &World<'_>) -> Verdict {
    world.commit((1..=1_001).fold(Commit::new(), |commit, promise| commit.insert(&timer(1, promise)))).await?;
    same("how many rows", world.rows(Scan::all::<Timer>()).await?.len(), 1_000)?;
    let rest = Scan::all::<Timer>().after(&timer(1, 1_000));
    same("and then", world.rows(rest).await?.len(), 1)
}

async fn what_is_due_is_found_before_what_is_not(world: &World<'_>) -> Verdict {
    let due = |promise: u32, ms: u64| Timer { fire_at: at(ms), ..timer(1, promise) };
    let timers = [due(1, 30), due(2, 10), due(3, 20), due(4, 40)];
    world.commit(timers.iter().fold(Commit::new(), |commit, timer| commit.insert(timer))).await?;
    let scan = Scan::by::<Timer>(Timer::BY_DUE).equal(&crate::Shard(1)).until(&at(30));
    let found: Vec<u32> = world.list(scan).await?.into_iter().map(|(timer, _): (Timer, u64)| timer.promise).collect();
    same("the promises", found, vec![2, 3, 1])
}

async fn a_page_after_a_row_that_is_gone_goes_on_behind_it(world: &World<'_>) -> Verdict {
    world.commit(["a", "b", "c"].iter().fold(Commit::new(), |commit, name| commit.insert(&job(name)))).await?;
    world.commit(Commit::new().delete(&job("b"), 1)).await?;
    let rest: Vec<(Job, u64)> = world.list(Scan::all::<Job>().after(&job("b"))).await?;
    same("what follows", rest, vec![(job("c"), 1)])
}

async fn text_is_ordered_by_its_bytes(world: &World<'_>) -> Verdict {
    let names =
        ["", "\t", " ", "!", "10", "9", "A", "B", "Z", "_", "a", "aa", "b", "z", "~", "é", "中", "\u{fffd}", "😀"];
    let commit = names.iter().rev().fold(Commit::new(), |commit, name| commit.insert(&job(name)));
    world.commit(commit).await?;
    let found: Vec<String> =
        world.list(Scan::all::<Job>()).await?.into_iter().map(|(job, _): (Job, u64)| job.id.to_string()).collect();
    same("the names", found, names.map(str::to_owned).to_vec())
}

async fn a_scan_shows_the_latest_version(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().insert(&job("j"))).await?;
    let changed = Job { run_after: at(50), ..job("j") };
    world.commit(Commit::new().update(&changed, 1)).await?;
    let early: Vec<(Job, u64)> =
        world.list(Scan::by::<Job>(Job::BY_STATUS).equal(&job("j").status).until(&at(49))).await?;
    same("at its old place", early, Vec::new())?;
    let late: Vec<(Job, u64)> = world.list(Scan::by::<Job>(Job::BY_STATUS).equal(&job("j").status)).await?;
    same("at its new place", late, vec![(changed, 2)])
}

async fn rows_are_counted_up_to_the_limit_and_beyond_a_page(world: &World<'_>) -> Verdict {
    same("of nothing", world.count(Scan::all::<Timer>()).await?, 0)?;
    let timers = (1..=1_500).map(|promise| Timer { fire_at: at(promise.into()), ..timer(1, promise) });
    world.commit(timers.fold(Commit::new(), |commit, timer| commit.insert(&timer))).await?;
    same("beyond a page", world.count(Scan::all::<Timer>().limit(100_000)).await?, 1_500)?;
    same("up to the limit", world.count(Scan::all::<Timer>().limit(700)).await?, 700)?;
    let due = Scan::by::<Timer>(Timer::BY_DUE).equal(&crate::Shard(1)).until(&at(30)).limit(100_000);
    same("of those that are due", world.count(due.clone()).await?, 30)?;
    let after = Timer { fire_at: at(10), ..timer(1, 10) };
    same("of those after one", world.count(due.after(&after)).await?, 20)?;
    let elsewhere = Scan::by::<Timer>(Timer::BY_DUE).equal(&crate::Shard(2));
    same("of another shard", world.count(elsewhere).await?, 0)
}
