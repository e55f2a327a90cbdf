//! A folder in place of a provider, for development: every message is a file.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::SharedText;
use onward_campaign_core::{LookupOutcome, SendOutcome};
use onward_campaign_dispatch::{Provider, ProviderCapabilities, Reservation};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;
use thiserror::Error;

use crate::outgoing_item::{OutgoingItem, sanitize_text};
use crate::provider_spec::{DispatchPolicySpec, ProviderDefaults};
use crate::rate_limits::RateLimits;

/// Maximum length of an idempotency key.
const KEY_CHARS_MAX: usize = 128;

/// Configuration of a folder that messages are written to: each is one file, `<key>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderSpec {
    /// Path of the folder, required. The first message creates it if it does not exist; checks of a
    /// campaign do not touch the file system.
    pub path: PathBuf,
    /// Timeout of writing one file, in milliseconds. default: 10000.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// Rate limits of the messages written. default: unlimited.
    #[serde(default)]
    pub rate_limits: RateLimits,
    /// Dispatch policy of jobs that use this provider.
    #[serde(default)]
    pub policy: DispatchPolicySpec,
}

fn default_timeout_ms() -> u64 {
    10_000
}

/// The reason why a folder cannot be used as a provider.
#[derive(Debug, Error)]
pub enum FolderError {
    /// The path is empty.
    #[error("`folder.path` is empty: specify the path of a folder")]
    EmptyPath,
}

impl FolderSpec {
    pub(crate) fn provider_defaults(&self) -> ProviderDefaults {
        ProviderDefaults {
            window: 50,
            is_idempotent: true,
            lookup_after_ms: Some(0),
            timeout: Duration::from_millis(self.timeout_ms),
        }
    }

    pub(crate) fn build_provider(&self, name: &str) -> Result<FolderProvider, FolderError> {
        if self.path.as_os_str().is_empty() {
            return Err(FolderError::EmptyPath);
        }
        Ok(FolderProvider {
            name: name.to_owned(),
            path: self.path.clone(),
            has_created_folder: Arc::default(),
        })
    }
}

/// Writes each message to a file in the folder.
#[derive(Debug)]
pub(crate) struct FolderProvider {
    name: String,
    path: PathBuf,
    /// Whether a message was written, so that a folder that was deleted since is not created again.
    has_created_folder: Arc<AtomicBool>,
}

#[async_trait]
impl Provider for FolderProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities {
            max_batch: 1,
            idempotent: true,
            status_lookup: true,
        }
    }

    async fn deliver_batch(&self, batch: Vec<Reservation>) -> Vec<(SharedText, SendOutcome)> {
        let mut outcomes = Vec::new();
        for reservation in batch {
            outcomes.push((
                reservation.item_id().clone(),
                self.write_message(&OutgoingItem::from_reservation(&reservation))
                    .await,
            ));
        }
        outcomes
    }

    async fn lookup_status(&self, key: &str) -> LookupOutcome {
        let Some(file) = self.message_path(key) else {
            return LookupOutcome::NotFound;
        };
        match tokio::task::spawn_blocking(move || file.try_exists()).await {
            Ok(Ok(true)) => LookupOutcome::Accepted(Some(file_name(key))),
            Ok(Ok(false)) => LookupOutcome::NotFound,
            Ok(Err(_)) | Err(_) => LookupOutcome::Unknown,
        }
    }
}

impl FolderProvider {
    /// Returns the path of the file for a key, or `None` for an invalid key. The path cannot lead
    /// out of the folder.
    fn message_path(&self, key: &str) -> Option<PathBuf> {
        let is_key = (1..=KEY_CHARS_MAX).contains(&key.len())
            && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_key.then(|| self.path.join(&*file_name(key)))
    }

    async fn write_message(&self, item: &OutgoingItem<'_>) -> SendOutcome {
        let Some(file) = self.message_path(item.key) else {
            return SendOutcome::InvalidMessage(
                "the idempotency key must consist of hexadecimal digits".into(),
            );
        };
        let (folder, text, name) = (self.path.clone(), message_json(item), file_name(item.key));
        let has_created_folder = Arc::clone(&self.has_created_folder);
        let write = move || {
            if !has_created_folder.load(Ordering::Relaxed) {
                create_private_folder(&folder)?;
                has_created_folder.store(true, Ordering::Relaxed);
            }
            write_durably(&folder, &file, &text)
        };
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(())) => SendOutcome::Accepted(Some(name)),
            Ok(Err(outcome)) => outcome,
            Err(_) => SendOutcome::Unknown("the task that writes the file panicked".into()),
        }
    }
}

fn file_name(key: &str) -> SharedText {
    format!("{key}.json").into()
}

fn message_json(item: &OutgoingItem<'_>) -> String {
    let part = |(name, text): &(String, String)| (name.clone(), Value::from(text.as_str()));
    let parts: Map<String, Value> = item.message.parts.iter().map(part).collect();
    let content = json!({
        "key": item.key, "item": item.item_id, "to": item.to, "recipient": item.recipient, "message": parts,
    });
    format!("{content:#}\n")
}

/// Creates the folder, with access for this user only, unless it exists.
fn create_private_folder(folder: &Path) -> Result<(), SendOutcome> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|cause| {
        SendOutcome::Deferred(sanitize_text(&format!("cannot create the folder: {cause}")))
    })
}

/// Creates the file completely and durably. An existing file counts as success.
fn write_durably(folder: &Path, file: &Path, text: &str) -> Result<(), SendOutcome> {
    let deferred = |cause: std::io::Error| {
        SendOutcome::Deferred(sanitize_text(&format!("cannot write the file: {cause}")))
    };
    if !file.try_exists().map_err(deferred)? {
        let mut draft = NamedTempFile::new_in(folder).map_err(deferred)?;
        draft.write_all(text.as_bytes()).map_err(deferred)?;
        draft.as_file().sync_all().map_err(deferred)?;
        match draft.persist_noclobber(file) {
            Ok(_) => {}
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(deferred(error.error)),
        }
    }
    let unknown = |cause: std::io::Error| {
        SendOutcome::Unknown(sanitize_text(&format!("cannot sync the folder: {cause}")))
    };
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(unknown)
}

#[cfg(test)]
mod tests {
    use onward_campaign_core::RenderedMessage;
    use onward_campaign_core::{LookupOutcome, SendOutcome};
    use onward_campaign_dispatch::Provider as _;

    use super::{FolderProvider, FolderSpec};
    use crate::outgoing_item::OutgoingItem;

    fn folder(path: &std::path::Path) -> FolderProvider {
        let spec = serde_json::json!({ "path": path });
        serde_json::from_value::<FolderSpec>(spec)
            .unwrap()
            .build_provider("dev")
            .unwrap()
    }

    fn message(text: &str) -> RenderedMessage {
        RenderedMessage {
            parts: vec![("text".to_owned(), text.to_owned())],
        }
    }

    fn item<'a>(key: &'a str, message: &'a RenderedMessage) -> OutgoingItem<'a> {
        OutgoingItem {
            item_id: "j.0",
            key,
            to: "ada@example.org",
            recipient: "ada",
            message,
        }
    }

    #[tokio::test]
    async fn a_message_is_one_file_and_a_repeated_key_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(&dir.path().join("sent"));
        let accepted = SendOutcome::Accepted(Some("ab12.json".into()));
        assert_eq!(folder.lookup_status("ab12").await, LookupOutcome::NotFound);
        assert_eq!(
            folder.write_message(&item("ab12", &message("first"))).await,
            accepted
        );
        assert_eq!(
            folder
                .write_message(&item("ab12", &message("second")))
                .await,
            accepted
        );
        assert_eq!(
            folder.lookup_status("ab12").await,
            LookupOutcome::Accepted(Some("ab12.json".into()))
        );
        let written = std::fs::read_to_string(dir.path().join("sent/ab12.json")).unwrap();
        let written: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(written["message"]["text"], "first");
        assert_eq!(written["to"], "ada@example.org");
        assert_eq!(
            std::fs::read_dir(dir.path().join("sent")).unwrap().count(),
            1
        );
    }

    #[tokio::test]
    async fn a_key_cannot_lead_out_of_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(&dir.path().join("sent"));
        for key in [
            "",
            "..",
            "../ab",
            "ab/cd",
            "ab.json",
            "xyz",
            &"a".repeat(129),
        ] {
            assert!(
                matches!(
                    folder.write_message(&item(key, &message("out"))).await,
                    SendOutcome::InvalidMessage(_)
                ),
                "{key}"
            );
            assert_eq!(folder.lookup_status(key).await, LookupOutcome::NotFound);
        }
    }

    #[tokio::test]
    async fn a_deleted_folder_has_accepted_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(&dir.path().join("sent"));
        let first = folder.write_message(&item("ab11", &message("first"))).await;
        assert!(matches!(first, SendOutcome::Accepted(_)));
        std::fs::remove_dir_all(dir.path().join("sent")).unwrap();
        assert!(matches!(
            folder
                .write_message(&item("ab12", &message("undelivered")))
                .await,
            SendOutcome::Deferred(_)
        ));
    }

    #[test]
    fn building_a_provider_does_not_touch_the_file_system() {
        let dir = tempfile::tempdir().unwrap();
        folder(&dir.path().join("a/b"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let empty: FolderSpec = serde_json::from_value(serde_json::json!({ "path": "" })).unwrap();
        assert!(
            empty
                .build_provider("dev")
                .unwrap_err()
                .to_string()
                .contains("`folder.path` is empty")
        );
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_created_defers_its_messages() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let folder = folder(&file.path().join("in"));
        let outcome = folder.write_message(&item("ab12", &message("late"))).await;
        assert!(
            matches!(&outcome, SendOutcome::Deferred(why) if why.contains("cannot create the folder")),
            "{outcome:?}"
        );
    }
}
