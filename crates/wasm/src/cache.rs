//! On-disk cache of compiled components. Compiling takes up to several seconds, and every component
//! is loaded again after each start.
//!
//! Cached machine code is executed without further checks, so a file is used only if its checksum
//! matches, and if no other user can write to it or to the folder. wasmtime has its own cache, but
//! it does not detect damaged files, and its API to load code from elsewhere is `unsafe`. Therefore
//! wasmtime's cache gets an empty folder, the stage: a cached file is copied there after its
//! checksum was verified, and newly compiled code is taken from there and sealed, that is, stored
//! with a checksum.

use std::fs::{self, DirBuilder};
use std::hash::{Hash, Hasher};
use std::io::{self, Error, ErrorKind, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component as PathPart, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use onward_base::hex;
use onward_journal::ComponentDigest;
use sha2::{Digest, Sha256};
use tempfile::{NamedTempFile, TempDir};
use wasmtime::component::Component;
use wasmtime::{CacheConfig, Engine, Result};

/// First line of a sealed file. A new file format must use a different line.
const MAGIC: &str = "onward compiled component 1";
const STAGE_PREFIX: &str = "stage-";
/// Mode of the folder: access for its owner only.
const FOLDER_MODE: u32 = 0o700;
/// A stage older than ours by more than this was left by a process that crashed.
const STALE_STAGE_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The cache folder of compiled components; `None` if the cache is disabled.
pub(crate) struct CompiledCache(Option<CacheFolder>);

struct CacheFolder {
    path: PathBuf,
    stage: TempDir,
    /// Id of the user of this process.
    user: u32,
    wasmtime: wasmtime::Cache,
    bytes_max: u64,
    /// Held while code is on its way through the stage, but never while a component is compiled.
    stage_lock: Mutex<()>,
}

impl CompiledCache {
    pub(crate) fn open(path: Option<&Path>, bytes_max: u64) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(path)?;
        let path = fs::canonicalize(path)?;
        let stage = tempfile::Builder::new()
            .prefix(STAGE_PREFIX)
            .permissions(fs::Permissions::from_mode(FOLDER_MODE))
            .tempdir_in(&path)?;
        // The owner of the stage is the user of this process.
        let user = stage.path().metadata()?.uid();
        let metadata = path.metadata()?;
        if is_foreign(&metadata, user) {
            return Err(wasmtime::Error::msg(format!(
                "the cache folder {} belongs to another user, or other users can write to it: \
                 remove it, run chmod 700 on it, or name another one in ONWARD_CACHE",
                path.display()
            )));
        }
        let mut config = CacheConfig::new();
        config.with_directory(stage.path());
        let wasmtime = wasmtime::Cache::new(config)?;
        let folder = CacheFolder {
            path,
            stage,
            user,
            wasmtime,
            bytes_max,
            stage_lock: Mutex::default(),
        };
        folder.clear_stale_stages()?;
        Ok(Self(Some(folder)))
    }

    /// Returns the wasmtime cache with which the engine must be configured; `None` if the cache is
    /// disabled.
    pub(crate) fn wasmtime_cache(&self) -> Option<wasmtime::Cache> {
        self.0.as_ref().map(|folder| folder.wasmtime.clone())
    }

    /// Compiles a component, or loads the cached code. Several threads may compile at the same
    /// time. If two end at the same moment, their code cannot be told apart on the stage and is not
    /// kept; the next start compiles it again.
    pub(crate) fn compile_component(
        &self,
        engine: &Engine,
        digest: ComponentDigest,
        bytes: &[u8],
    ) -> Result<Component> {
        let Some(folder) = &self.0 else {
            return Component::from_binary(engine, bytes);
        };
        let key = cache_key(engine, digest);
        let unsealed = {
            let _stage = folder.lock_stage();
            let unsealed = folder.unseal_to_stage(&key);
            if let Ok(name) = &unsealed {
                let hits = folder.wasmtime.cache_hits();
                let component = Component::from_binary(engine, bytes)?;
                let _ = fs::remove_file(folder.stage.path().join(name));
                if folder.wasmtime.cache_hits() > hits {
                    return Ok(component);
                }
            }
            unsealed
        };
        let component = Component::from_binary(engine, bytes)?;
        tracing::info!(%digest, reason = unsealed.err().map(tracing::field::display), "compiled a component");
        let _stage = folder.lock_stage();
        // If the file cannot be written, the next start compiles again; this load still succeeds.
        if let Err(error) = folder
            .seal_staged_code(&key)
            .and_then(|()| folder.evict_oldest())
        {
            tracing::warn!(%digest, %error, "cannot keep a compiled component");
        }
        folder.clear_stage();
        Ok(component)
    }
}

impl CacheFolder {
    fn lock_stage(&self) -> MutexGuard<'_, ()> {
        self.stage_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Verifies a sealed file and copies its code to the stage. Returns the name of the file there.
    fn unseal_to_stage(&self, key: &str) -> io::Result<String> {
        let mut sealed = fs::File::open(self.path.join(key))?;
        if is_foreign(&sealed.metadata()?, self.user) {
            return Err(Error::new(
                ErrorKind::PermissionDenied,
                "other users can write to the cached file",
            ));
        }
        let mut file = Vec::new();
        sealed.read_to_end(&mut file)?;
        let (name, code) =
            open_seal(key, &file).ok_or_else(|| Error::new(ErrorKind::InvalidData, "damaged"))?;
        let staged = self.stage.path().join(name);
        if let Some(folder) = staged.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(staged, code)?;
        Ok(name.to_owned())
    }

    /// Writes the code on the stage to a sealed file, atomically.
    fn seal_staged_code(&self, key: &str) -> io::Result<()> {
        let name = self.staged_file_name()?;
        let code = fs::read(self.stage.path().join(&name))?;
        // The temporary file must not be on the stage, because wasmtime removes unknown files
        // there.
        let file = NamedTempFile::new_in(&self.path)?;
        fs::write(file.path(), make_seal(key, &name, &code))?;
        file.persist(self.path.join(key))
            .map_err(|error| error.error)?;
        Ok(())
    }

    /// Path of the only code file on the stage, relative to the stage. Fails if there is not
    /// exactly one.
    fn staged_file_name(&self) -> io::Result<String> {
        let mut found = Vec::new();
        collect_files(self.stage.path(), &mut found)?;
        // Files with an extension are metadata of wasmtime.
        found.retain(|path| path.extension().is_none());
        let [path] = &found[..] else {
            return Err(Error::other(format!(
                "{} files in the staging folder",
                found.len()
            )));
        };
        let name = path
            .strip_prefix(self.stage.path())
            .ok()
            .and_then(Path::to_str);
        name.map(str::to_owned)
            .ok_or_else(|| Error::other("a file in the staging folder has no name"))
    }

    fn clear_stage(&self) {
        let Ok(entries) = fs::read_dir(self.stage.path()) else {
            return;
        };
        for entry in entries.flatten() {
            // wasmtime may write metadata at the same time, so errors are ignored. If code stays on
            // the stage, `staged_file_name` fails and nothing is sealed.
            let _ = fs::remove_dir_all(entry.path());
        }
    }

    fn clear_stale_stages(&self) -> io::Result<()> {
        let ours = fs::metadata(self.stage.path())?.modified()?;
        for entry in fs::read_dir(&self.path)?.flatten() {
            let is_stage = entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.starts_with(STAGE_PREFIX));
            let Some(metadata) = ignore_not_found(entry.metadata())? else {
                continue;
            };
            let age = metadata
                .modified()
                .ok()
                .and_then(|at| ours.duration_since(at).ok());
            if is_stage && age.is_some_and(|age| age > STALE_STAGE_AGE) {
                ignore_not_found(fs::remove_dir_all(entry.path()))?;
            }
        }
        Ok(())
    }

    /// Removes the oldest files until the folder is within its size limit.
    fn evict_oldest(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let Some(metadata) = ignore_not_found(entry.metadata())? else {
                continue;
            };
            if metadata.is_file() {
                files.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, freed, path) in files {
            if bytes <= self.bytes_max {
                break;
            }
            ignore_not_found(fs::remove_file(path))?;
            bytes -= freed;
        }
        Ok(())
    }
}

/// Whether a user other than `user` and the superuser can change a file or folder. A checksum does
/// not protect against them: a user who can write code can write its checksum too.
fn is_foreign(metadata: &fs::Metadata, user: u32) -> bool {
    let is_writable_by_others = metadata.mode() & 0o022 != 0;
    is_writable_by_others || !(metadata.uid() == user || metadata.uid() == 0)
}

/// Treats a missing file as success: other processes use the same folder and remove files
/// concurrently.
fn ignore_not_found<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn collect_files(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect_files(&entry.path(), found)?
        } else {
            found.push(entry.path())
        }
    }
    Ok(())
}

/// File name of a compiled component: the component's digest and a hash of the compiler, its
/// settings and the target processor.
fn cache_key(engine: &Engine, digest: ComponentDigest) -> String {
    let mut compiler = CompilerHasher(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut compiler);
    let compiler: [u8; 32] = compiler.0.finalize().into();
    format!(
        "{}-{}",
        hex::encode_hex(digest.as_bytes()),
        hex::encode_hex(&compiler[..8])
    )
}

struct CompilerHasher(Sha256);

impl Hasher for CompilerHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        digest
            .iter()
            .take(8)
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }
}

/// Checksum of a sealed file. It covers the key too, so a file under a wrong name is detected.
fn seal_checksum(key: &str, name: &str, code: &[u8]) -> String {
    let mut sum = Sha256::new();
    for part in [key.as_bytes(), name.as_bytes(), code] {
        sum.update((part.len() as u64).to_le_bytes());
        sum.update(part);
    }
    hex::encode_hex(&sum.finalize())
}

fn make_seal(key: &str, name: &str, code: &[u8]) -> Vec<u8> {
    let mut file = format!("{MAGIC}\n{}\n{name}\n", seal_checksum(key, name, code)).into_bytes();
    file.extend_from_slice(code);
    file
}

/// Returns the name and the code in a sealed file; `None` if the file is damaged, belongs to
/// another key, or has a name that leads outside of the stage.
fn open_seal<'a>(key: &str, file: &'a [u8]) -> Option<(&'a str, &'a [u8])> {
    let (magic, rest) = split_line(file)?;
    let (sum, rest) = split_line(rest)?;
    let (name, code) = split_line(rest)?;
    let stays_inside = Path::new(name)
        .components()
        .all(|part| matches!(part, PathPart::Normal(_)));
    (magic == MAGIC && stays_inside && sum == seal_checksum(key, name, code))
        .then_some((name, code))
}

fn split_line(file: &[u8]) -> Option<(&str, &[u8])> {
    let end = file.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = file.split_at(end);
    Some((std::str::from_utf8(line).ok()?, rest.get(1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAT: &str = "(component)";

    fn engine(cache: &CompiledCache) -> Engine {
        let mut config = wasmtime::Config::new();
        config.cache(cache.wasmtime_cache());
        Engine::new(&config).unwrap()
    }

    /// Opens the folder again, compiles, and returns whether a cached file was used.
    fn reuses(folder: &Path, text: &str) -> bool {
        let cache = CompiledCache::open(Some(folder), 1 << 20).unwrap();
        let bytes = wat::parse_str(text).unwrap();
        cache
            .compile_component(
                &engine(&cache),
                ComponentDigest::from_component(&bytes),
                &bytes,
            )
            .unwrap();
        cache.0.unwrap().wasmtime.cache_hits() == 1
    }

    fn sealed(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.is_file())
            .collect()
    }

    #[test]
    fn a_component_is_compiled_once() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!reuses(folder.path(), WAT));
        assert!(reuses(folder.path(), WAT));
        assert!(!reuses(folder.path(), "(component (core module))"));
        assert_eq!(sealed(folder.path()).len(), 2);
    }

    #[test]
    fn a_damaged_file_is_compiled_again() {
        let folder = tempfile::tempdir().unwrap();
        reuses(folder.path(), WAT);
        let path = sealed(folder.path()).pop().unwrap();
        let whole = fs::read(&path).unwrap();
        for place in (0..whole.len()).step_by(whole.len() / 50) {
            let mut damaged = whole.clone();
            damaged[place] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert!(!reuses(folder.path(), WAT), "a flipped bit at {place}");
            assert_eq!(fs::read(&path).unwrap(), whole, "written anew");
        }
        for length in [0, 10, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(!reuses(folder.path(), WAT), "{length} bytes");
        }
        assert!(reuses(folder.path(), WAT));
    }

    #[test]
    fn code_that_other_users_can_write_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let set_mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let path = folder.path().join("new/cache");
        reuses(&path, WAT);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        let file = sealed(&path).pop().unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        assert!(reuses(&path, WAT));
        for mode in [0o620, 0o602] {
            set_mode(&file, mode);
            assert!(!reuses(&path, WAT), "mode {mode:o}");
            assert!(reuses(&path, WAT), "it was replaced");
        }
        for mode in [0o720, 0o702, 0o777] {
            set_mode(&path, mode);
            let refused = CompiledCache::open(Some(&path), 1 << 20).err().unwrap();
            assert!(refused.to_string().contains("ONWARD_CACHE"), "{refused}");
        }
    }

    #[test]
    fn a_file_with_another_key_is_not_used() {
        let file = make_seal("key", "a/b", b"code");
        assert_eq!(open_seal("key", &file), Some(("a/b", &b"code"[..])));
        assert_eq!(open_seal("other", &file), None);
        assert_eq!(open_seal("key", &make_seal("key", "../b", b"code")), None);
        assert_eq!(open_seal("key", &make_seal("key", "/b", b"code")), None);
    }

    #[test]
    fn the_oldest_files_are_evicted_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CompiledCache::open(Some(folder.path()), 25).unwrap();
        for (name, seconds) in [("old", 1), ("new", 3), ("middle", 2)] {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_len(10).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
                .unwrap();
        }
        cache.0.unwrap().evict_oldest().unwrap();
        let mut left = sealed(folder.path());
        left.sort();
        assert_eq!(left, ["middle", "new"].map(|name| folder.path().join(name)));
    }
}
