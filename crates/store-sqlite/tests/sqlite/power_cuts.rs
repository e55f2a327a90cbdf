//! Power cuts: an acknowledged event is stored, and what is stored is undamaged, whatever part of
//! the writes since the last sync is lost.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use onward_runs::{RunEventId, RunId};
use onward_store::{RunEventQuery, RunStateStore as _, Store};
use onward_store_sqlite::{Options, SqliteStore};
use onward_testing::{PowerCutDisk, RunEventGenerator};
use tempfile::TempDir;

const FOLDER: &str = "ONWARD_POWER_FOLDER";
const LEDGER: &str = "ONWARD_POWER_LEDGER";
const ROUND: &str = "ONWARD_POWER_ROUND";
const SYNCHRONOUS: &str = "ONWARD_POWER_SYNCHRONOUS";

/// Number of power cuts; `ONWARD_POWER_CUTS` overrides it, and `ONWARD_FIRST_SEED` selects others.
const CUTS: u64 = 5_000;

/// Cuts before a new store is created, so that cuts while a store is created happen as well.
const CUTS_PER_STORE: u64 = 25;

/// Last step of a process at which its power is cut. Creating a store takes more than a hundred.
const LAST_STEP: u64 = 260;

/// Events appended at the same time, so that commits share a transaction.
const CONCURRENT_APPENDS: usize = 3;

/// Appends between closing and opening the store, which copies the write-ahead log into the file.
const APPENDS_PER_OPENING: usize = 5;

/// Openings of a process whose power is not cut.
const OPENINGS: u64 = 40;

/// A power cut of the series: its step, and the seed of what is lost.
fn nth_cut(nth: u64) -> (u64, u64) {
    let mixed = nth.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (1 + (mixed >> 32) % LAST_STEP, nth)
}

/// Runs an ignored test of this file in a process of its own.
fn child_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = format!("power_cuts::{name}");
    command.args(["--exact", &name, "--ignored", "--nocapture"]);
    command
}

fn environment_path(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(name).unwrap())
}

/// Returns whether the power was cut. A process that ends otherwise must succeed.
fn was_cut(output: &Output) -> bool {
    let was_killed = output.status.code().is_none();
    assert!(
        was_killed || output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    was_killed
}

#[test]
fn no_acknowledged_event_is_lost_in_a_power_cut() {
    let number = |name: &str| std::env::var(name).map(|number| number.parse().unwrap());
    let cuts = number("ONWARD_POWER_CUTS").unwrap_or(CUTS);
    let first_seed = number("ONWARD_FIRST_SEED").unwrap_or(0);
    let (mut reached, mut acknowledged) = (0, 0);
    let mut cut = 0;
    while cut < cuts {
        let disk = PowerCutDisk::new();
        let outside = TempDir::new().unwrap();
        let ledger = outside.path().join("ledger");
        for _ in 0..CUTS_PER_STORE {
            let mut child = child_test("append_until_the_power_is_cut");
            child
                .env(FOLDER, disk.path())
                .env(LEDGER, &ledger)
                .env(ROUND, cut.to_string());
            let (step, seed) = nth_cut(first_seed + cut);
            disk.cut_at(step, seed, &mut child);
            reached += u64::from(was_cut(&child.output().unwrap()));
            cut += 1;
        }
        verify_ledger(&disk.path(), &ledger);
        acknowledged += read_ledger(&ledger)
            .values()
            .map(BTreeMap::len)
            .sum::<usize>();
    }
    println!("{reached} power cuts, {acknowledged} acknowledged events, 0 lost");
    assert!(
        reached > cuts * 9 / 10,
        "only {reached} of {cuts} steps were reached"
    );
    let expected = usize::try_from(cuts).unwrap() * 3;
    assert!(acknowledged > expected, "only {acknowledged} events");
}

/// The child process: verifies what earlier ones acknowledged, then appends until its power is cut.
#[test]
#[ignore = "started by the test above"]
fn append_until_the_power_is_cut() {
    let (folder, ledger) = (environment_path(FOLDER), environment_path(LEDGER));
    let round = std::env::var(ROUND).unwrap();
    verify_ledger(&folder, &ledger);
    for opening in 0..OPENINGS {
        let store = open_store(&folder);
        std::thread::scope(|scope| {
            for lane in 0..CONCURRENT_APPENDS {
                let name = format!("power-{round}-{opening}-{lane}");
                let (store, ledger) = (Arc::clone(&store), &ledger);
                scope.spawn(move || append_and_record(&*store, &name, ledger));
            }
        });
    }
}

fn open_store(folder: &Path) -> Arc<dyn Store> {
    let path = folder.join("store.db");
    Arc::new(SqliteStore::open(&path, Options::default()).unwrap())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(future)
}

/// Appends the events of a new run, and records each in the ledger once it is acknowledged. The
/// ledger is not on the disk that loses power.
fn append_and_record(store: &dyn Store, name: &str, ledger: &Path) {
    let mut ledger = OpenOptions::new()
        .create(true)
        .append(true)
        .open(ledger)
        .unwrap();
    for event in RunEventGenerator::new(name).next_events(APPENDS_PER_OPENING) {
        let (run, id) = (event.run_id.clone(), event.event_id);
        let result = block_on(store.append_event(event)).unwrap();
        let line = format!("{run} {id} {}\n", result.result.run_seq.as_u64());
        ledger.write_all(line.as_bytes()).unwrap();
    }
}

/// The acknowledged events of each run, with their sequence.
fn read_ledger(ledger: &Path) -> BTreeMap<RunId, BTreeMap<RunEventId, u64>> {
    let text = fs::read_to_string(ledger).unwrap_or_default();
    let mut runs: BTreeMap<RunId, BTreeMap<RunEventId, u64>> = BTreeMap::new();
    for line in text.lines() {
        let [run, id, seq]: [&str; 3] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let events = runs.entry(run.parse().unwrap()).or_default();
        events.insert(id.parse().unwrap(), seq.parse().unwrap());
    }
    runs
}

fn verify_ledger(folder: &Path, ledger: &Path) {
    let store = open_store(folder);
    for (run, acknowledged) in read_ledger(ledger) {
        let stored = block_on(store.fetch_events(&run, RunEventQuery::default())).unwrap();
        let stored: BTreeMap<RunEventId, u64> = stored
            .iter()
            .map(|record| (record.event.event_id, record.run_seq.as_u64()))
            .collect();
        let sequences: Vec<u64> = (1..).take(stored.len()).collect();
        let mut found: Vec<u64> = stored.values().copied().collect();
        found.sort_unstable();
        assert_eq!(found, sequences, "the sequences of {run} are contiguous");
        for (id, seq) in acknowledged {
            assert_eq!(
                stored.get(&id),
                Some(&seq),
                "acknowledged event {id} of {run}"
            );
        }
    }
    let findings = block_on(store.check_integrity()).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn a_database_that_does_not_sync_each_commit_loses_acknowledged_rows() {
    assert_eq!(lost_rows("FULL"), 0);
    let lost = lost_rows("NORMAL");
    assert!(lost > 0, "the power cut must lose what was not synced");
}

/// Returns how many acknowledged rows were lost in 40 power cuts of a database in WAL mode.
fn lost_rows(synchronous: &str) -> u64 {
    (0..40)
        .map(|cut| {
            let disk = PowerCutDisk::new();
            let outside = TempDir::new().unwrap();
            let ledger = outside.path().join("ledger");
            let mut child = child_test("insert_until_the_power_is_cut");
            child
                .env(FOLDER, disk.path())
                .env(LEDGER, &ledger)
                .env(SYNCHRONOUS, synchronous);
            disk.cut_at(30 + cut, cut, &mut child);
            assert!(was_cut(&child.output().unwrap()));
            let acknowledged = fs::read_to_string(&ledger).map_or(0, |rows| rows.lines().count());
            let database = rusqlite::Connection::open(disk.path().join("rows.db")).unwrap();
            let stored: i64 = database
                .query_row("SELECT count(*) FROM rows", [], |row| row.get(0))
                .unwrap_or(0);
            u64::try_from(acknowledged)
                .unwrap()
                .saturating_sub(stored.unsigned_abs())
        })
        .sum()
}

/// The child process: inserts rows into a database of its own, without the store.
#[test]
#[ignore = "started by the test above"]
fn insert_until_the_power_is_cut() {
    let path = environment_path(FOLDER).join("rows.db");
    let database = rusqlite::Connection::open(path).unwrap();
    database
        .query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
        .unwrap();
    let synchronous = std::env::var(SYNCHRONOUS).unwrap();
    database
        .pragma_update(None, "synchronous", synchronous)
        .unwrap();
    database
        .execute_batch("CREATE TABLE rows (id INTEGER PRIMARY KEY, value BLOB NOT NULL)")
        .unwrap();
    let mut ledger = fs::File::create(environment_path(LEDGER)).unwrap();
    loop {
        database
            .execute("INSERT INTO rows (value) VALUES (zeroblob(100))", [])
            .unwrap();
        ledger.write_all(b"row\n").unwrap();
    }
}
