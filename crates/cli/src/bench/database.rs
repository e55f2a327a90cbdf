//! Where stores are made to be measured: SQLite files or schemas of a Postgres database, new for each workload and gone after
//! it. And the yardstick beside them: what the same database does with plain one-row commits.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use onward_store_postgres::baseline::PostgresBaseline as PostgresYardstick;
use onward_store_postgres::scratch_schema::ScratchSchema;
use onward_store_sqlite::baseline::SqliteBaseline as SqliteYardstick;
use tokio::time::Instant;

use super::machine::MachineInfo;

/// Commits of the yardstick before it is measured, at most: a log that still grows takes longer to sync.
const WARM_UP_COMMITS: usize = 2_000;

/// The same as time.
const WARM_UP: Duration = Duration::from_secs(1);

/// Where stores are made.
pub(super) enum BenchDatabase {
    Sqlite(PathBuf),
    /// The database, and the schemas in it that were made and not removed yet.
    Postgres(String, Mutex<Vec<ScratchSchema>>),
}

/// What stands beside all figures of a place.
pub(super) struct BenchEnvironment {
    pub(super) store: &'static str,
    pub(super) durability: String,
    pub(super) machine: MachineInfo,
}

impl BenchDatabase {
    /// What the URLs say; a file in the current folder unless told.
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
            _ => bail!(
                "this cannot be measured: expected sqlite:PATH or postgres://USER@HOST/DATABASE"
            ),
        }
    }

    /// What the database says of itself.
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

    /// A new store, with its yardstick.
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
                    .context("a schema cannot be made")?;
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

    /// Removes what was made and is not in use any more. Files are gone with their stores.
    pub(super) async fn drop_schemas(&self) -> anyhow::Result<()> {
        let Self::Postgres(_, made) = self else {
            return Ok(());
        };
        let all = std::mem::take(&mut *made.lock().unwrap_or_else(PoisonError::into_inner));
        for scratch in all {
            scratch
                .drop_schema()
                .await
                .context("a schema that was made for this could not be removed")?;
        }
        Ok(())
    }
}

/// A number that this process has not used.
fn next_serial() -> u64 {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// A path without a folder is in the current one.
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

/// Databases that are removed when this is dropped.
struct TemporaryDatabaseFiles(Vec<PathBuf>);

impl Drop for TemporaryDatabaseFiles {
    fn drop(&mut self) {
        for path in self
            .0
            .iter()
            .flat_map(|path| onward_store_sqlite::store_files(path))
        {
            // Not every one is there, and nothing can be done about one that stays.
            drop(std::fs::remove_file(path));
        }
    }
}

enum BenchYardstick {
    /// Away while it measures on a thread of its own.
    Sqlite(Option<SqliteYardstick>),
    Postgres(PostgresYardstick),
}

/// A store that was made to be measured.
pub(super) struct BenchStore {
    pub(super) url: String,
    /// Closed before its files are removed.
    yardstick: BenchYardstick,
    files: Option<TemporaryDatabaseFiles>,
}

impl BenchStore {
    /// One-row commits a second, one after the other.
    pub(super) async fn measure_commit_rate(&mut self, time: Duration) -> anyhow::Result<f64> {
        match &mut self.yardstick {
            BenchYardstick::Sqlite(away) => {
                let yardstick = away.take().context("the yardstick is in use")?;
                let measuring = tokio::task::spawn_blocking(move || {
                    commit_rows(&yardstick, WARM_UP.min(time), WARM_UP_COMMITS)?;
                    let rate = commit_rows(&yardstick, time, usize::MAX)?;
                    anyhow::Ok((yardstick, rate))
                });
                let (yardstick, rate) = measuring.await??;
                *away = Some(yardstick);
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

    /// Bytes that the database itself has written, where it is a process of its own.
    pub(super) async fn log_bytes(&self) -> anyhow::Result<Option<u64>> {
        match &self.yardstick {
            BenchYardstick::Sqlite(_) => Ok(None),
            BenchYardstick::Postgres(yardstick) => Ok(Some(yardstick.wal_bytes().await?)),
        }
    }

    /// Bytes on disk, while nobody works on it.
    pub(super) async fn disk_bytes(&self) -> anyhow::Result<u64> {
        // Whoever closes it last leaves everything in one file.
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

/// Commits one row after the other for so long, or so many; and how many that is a second.
fn commit_rows(yardstick: &SqliteYardstick, time: Duration, most: usize) -> anyhow::Result<f64> {
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < time && count < most {
        yardstick.commit_row()?;
        count += 1;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}
