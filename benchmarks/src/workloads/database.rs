//! Databases to measure: SQLite files, or schemas of a Postgres database, created for each workload
//! and removed after it. Also measures the baseline: the rate of plain one-row commits on the same
//! database.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use onward_store_postgres::baseline::PostgresBaseline as PostgresYardstick;
use onward_store_postgres::scratch_schema::ScratchSchema;
use onward_store_sqlite::baseline::SqliteBaseline as SqliteYardstick;
use tokio::time::Instant;

use crate::machine::MachineInfo;

/// Maximum number of baseline commits before the measurement: while the log file still grows, a
/// sync takes longer.
const WARM_UP_COMMITS: usize = 2_000;

/// Maximum duration of the baseline warm-up.
const WARM_UP: Duration = Duration::from_secs(1);

/// A database in which the benchmark creates its stores.
pub(super) enum BenchDatabase {
    Sqlite(PathBuf),
    /// The URL of the database, and the schemas that were created in it and not dropped yet.
    Postgres(String, Mutex<Vec<ScratchSchema>>),
}

/// Facts about a database and its machine that are printed with the figures.
pub(super) struct BenchEnvironment {
    pub(super) store: &'static str,
    pub(super) durability: String,
    pub(super) machine: MachineInfo,
}

impl BenchDatabase {
    /// Parses the `--store` URLs. Default: one SQLite file in the current folder.
    pub(super) fn parse_urls(urls: &[String]) -> anyhow::Result<Vec<Self>> {
        if urls.is_empty() {
            return Ok(vec![Self::Sqlite(
                format!("onward-bench-{}.db", std::process::id()).into(),
            )]);
        }
        urls.iter().map(|url| Self::parse_url(url)).collect()
    }

    fn parse_url(url: &str) -> anyhow::Result<Self> {
        match url.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => {
                Ok(Self::Sqlite(path.strip_prefix("//").unwrap_or(path).into()))
            }
            Some(("postgres" | "postgresql", _)) => {
                Ok(Self::Postgres(url.to_owned(), Mutex::default()))
            }
            _ => bail!("invalid --store: expected sqlite:PATH or postgres://USER@HOST/DATABASE"),
        }
    }

    /// Reads the durability settings of the database and the properties of this machine.
    pub(super) async fn read_environment(&self) -> anyhow::Result<BenchEnvironment> {
        let store = self.create_store().await?;
        let (name, folder) = match self {
            Self::Sqlite(path) => ("SQLite", Some(parent_folder(path))),
            Self::Postgres(..) => ("Postgres", None),
        };
        let durability = match &store.yardstick {
            BenchYardstick::Sqlite(it) => it
                .as_ref()
                .context("the yardstick is in use")?
                .durability_settings()?,
            BenchYardstick::Postgres(it) => it.durability_settings().await?,
        };
        drop(store);
        self.drop_schemas().await?;
        Ok(BenchEnvironment {
            store: name,
            durability,
            machine: MachineInfo::detect_machine(folder),
        })
    }

    /// Creates an empty store and its baseline. Fails if the SQLite file exists.
    pub(super) async fn create_store(&self) -> anyhow::Result<BenchStore> {
        match self {
            Self::Sqlite(path) => {
                if path.exists() {
                    bail!(
                        "{} is there already: a benchmark makes a store of its own",
                        path.display()
                    );
                }
                let files = TemporaryDatabaseFiles(vec![
                    path.clone(),
                    path_with_suffix(path, ".yardstick"),
                ]);
                let yardstick = SqliteYardstick::open(&files.0[1])?;
                let url = format!("sqlite:{}", path.display());
                Ok(BenchStore {
                    url,
                    yardstick: BenchYardstick::Sqlite(Some(yardstick)),
                    files: Some(files),
                })
            }
            Self::Postgres(database, made) => {
                let name = format!("onward_bench_{}_{}", std::process::id(), next_serial());
                let scratch = ScratchSchema::create(database, &name)
                    .await
                    .context("cannot create a schema")?;
                let url = scratch.store_url();
                made.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(scratch);
                let yardstick = BenchYardstick::Postgres(PostgresYardstick::open(&url).await?);
                Ok(BenchStore {
                    url,
                    yardstick,
                    files: None,
                })
            }
        }
    }

    /// Drops the Postgres schemas that were created so far. SQLite files are removed when their
    /// [`BenchStore`] is dropped.
    pub(super) async fn drop_schemas(&self) -> anyhow::Result<()> {
        let Self::Postgres(_, made) = self else {
            return Ok(());
        };
        let all = std::mem::take(&mut *made.lock().unwrap_or_else(PoisonError::into_inner));
        for scratch in all {
            scratch
                .drop_schema()
                .await
                .context("cannot drop a schema of the benchmark")?;
        }
        Ok(())
    }
}

/// Returns a number that is unique in this process.
fn next_serial() -> u64 {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Returns the folder of a path; `.` for a path without a folder.
fn parent_folder(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn path_with_suffix(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Database files that are deleted on drop.
struct TemporaryDatabaseFiles(Vec<PathBuf>);

impl Drop for TemporaryDatabaseFiles {
    fn drop(&mut self) {
        for path in self
            .0
            .iter()
            .flat_map(|path| onward_store_sqlite::store_files(path))
        {
            // Not all of these files exist, and a failed deletion cannot be handled here.
            drop(std::fs::remove_file(path));
        }
    }
}

enum BenchYardstick {
    /// `None` while the measurement runs on a blocking thread.
    Sqlite(Option<SqliteYardstick>),
    Postgres(PostgresYardstick),
}

/// A store that was created for a measurement. Its SQLite files are deleted on drop.
pub(super) struct BenchStore {
    pub(super) url: String,
    /// Declared before `files`, so that it is closed before they are deleted.
    yardstick: BenchYardstick,
    files: Option<TemporaryDatabaseFiles>,
}

impl BenchStore {
    /// Measures plain one-row commits per second, in sequence: the baseline.
    pub(super) async fn measure_commit_rate(&mut self, time: Duration) -> anyhow::Result<f64> {
        match &mut self.yardstick {
            BenchYardstick::Sqlite(idle) => {
                let yardstick = idle.take().context("the yardstick is in use")?;
                let measuring = tokio::task::spawn_blocking(move || {
                    commit_rows(&yardstick, WARM_UP.min(time), WARM_UP_COMMITS)?;
                    let rate = commit_rows(&yardstick, time, usize::MAX)?;
                    anyhow::Ok((yardstick, rate))
                });
                let (yardstick, rate) = measuring.await??;
                *idle = Some(yardstick);
                Ok(rate)
            }
            BenchYardstick::Postgres(yardstick) => {
                let (begun, mut count) = (Instant::now(), 0_u32);
                while begun.elapsed() < time {
                    yardstick.commit_row().await?;
                    count += 1;
                }
                Ok(f64::from(count) / begun.elapsed().as_secs_f64())
            }
        }
    }

    /// Bytes of WAL that the database server has written. `None` for SQLite, which writes in the
    /// process of its user.
    pub(super) async fn log_bytes(&self) -> anyhow::Result<Option<u64>> {
        match &self.yardstick {
            BenchYardstick::Sqlite(_) => Ok(None),
            BenchYardstick::Postgres(yardstick) => Ok(Some(yardstick.wal_bytes().await?)),
        }
    }

    /// Size of the store on disk in bytes. No other process may have the store open.
    pub(super) async fn disk_bytes(&self) -> anyhow::Result<u64> {
        // The last connection that closes merges the SQLite WAL into the database file.
        drop(
            onward_embed::store::open_store(&self.url, onward_store::StorePolicy::default())
                .await?,
        );
        if let BenchYardstick::Postgres(yardstick) = &self.yardstick {
            return Ok(yardstick.disk_bytes().await?);
        }
        let paths = self.files.iter().filter_map(|files| files.0.first());
        let sizes = paths
            .flat_map(|path| onward_store_sqlite::store_files(path))
            .filter_map(|path| std::fs::metadata(path).ok());
        Ok(sizes.map(|file| file.len()).sum())
    }
}

/// Commits one row at a time until `time` has passed or `most` rows are committed. Returns commits
/// per second.
fn commit_rows(yardstick: &SqliteYardstick, time: Duration, most: usize) -> anyhow::Result<f64> {
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < time && count < most {
        yardstick.commit_row()?;
        count += 1;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}
