//! A folder in place of a provider, for development: every message is a file.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::SharedText;
use onward_campaign_core::{LookupOutcome, SendOutcome};
use onward_campaign_dispatch::{Provider, ProviderCapabilities, Reservation};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;

use crate::outgoing_item::{OutgoingItem, invalid_message, sanitize_text};
use crate::provider_spec::{DispatchPolicySpec, ProviderDefaults};
use crate::rate_limits::RateLimits;

/// Maximum length of an idempotency key.
const KEY_CHARS_MAX: usize = 128;

/// Configuration of a folder that messages are written to: each is one file, `<key>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderSpec {
    /// Path of the folder, required. It is created if it does not exist.
    pub path: PathBuf,
    /// Timeout of writing one file, in milliseconds. default: 10000.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// Rate limits of the messages written. default: unlimited.
    #[serde(default)]
    pub limits: RateLimits,
    /// Dispatch policy of jobs that use this provider.
    #[serde(default)]
    pub terms: DispatchPolicySpec,
}

fn default_timeout_ms() -> u64 {
    10_000
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

    pub(crate) fn build_provider(&self, name: &str) -> Result<FolderProvider, String> {
        if self.path.as_os_str().is_empty() {
            return Err("the path of the folder is empty".to_owned());
        }
        let refuse = |cause| format!("the folder {} cannot be made: {cause}", self.path.display());
        std::fs::create_dir_all(&self.path).map_err(refuse)?;
        Ok(FolderProvider {
            name: name.to_owned(),
            path: self.path.clone(),
        })
    }
}

/// Writes each message to a file in the folder.
#[derive(Debug)]
pub(crate) struct FolderProvider {
    name: String,
    path: PathBuf,
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
        let mut answers = Vec::new();
        for reservation in batch {
            answers.push((
                reservation.item_id().clone(),
                self.write_message(&OutgoingItem::from_reservation(&reservation))
                    .await,
            ));
        }
        answers
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

    async fn write_message(&self, parcel: &OutgoingItem<'_>) -> SendOutcome {
        let Some(file) = self.message_path(parcel.key) else {
            return invalid_message("the key is not made of hexadecimal digits");
        };
        let (folder, text, name) = (
            self.path.clone(),
            message_json(parcel),
            file_name(parcel.key),
        );
        match tokio::task::spawn_blocking(move || write_durably(&folder, &file, &text)).await {
            Ok(Ok(())) => SendOutcome::Accepted(Some(name)),
            Ok(Err(answer)) => answer,
            Err(_) => SendOutcome::Unknown("whoever wrote the file panicked".into()),
        }
    }
}

fn file_name(key: &str) -> SharedText {
    format!("{key}.json").into()
}

fn message_json(parcel: &OutgoingItem<'_>) -> String {
    let part = |(name, text): &(String, String)| (name.clone(), Value::from(text.as_str()));
    let parts: Map<String, Value> = parcel.message.parts.iter().map(part).collect();
    let content = json!({
        "key": parcel.key, "item": parcel.item, "to": parcel.to, "recipient": parcel.recipient, "message": parts,
    });
    format!("{content:#}\n")
}

/// Creates the file completely and durably. An existing file counts as success.
fn write_durably(folder: &Path, file: &Path, text: &str) -> Result<(), SendOutcome> {
    let later = |cause: std::io::Error| {
        SendOutcome::Deferred(sanitize_text(&format!(
            "the file cannot be written: {cause}"
        )))
    };
    if !file.try_exists().map_err(later)? {
        let mut draft = NamedTempFile::new_in(folder).map_err(later)?;
        draft.write_all(text.as_bytes()).map_err(later)?;
        draft.as_file().sync_all().map_err(later)?;
        match draft.persist_noclobber(file) {
            Ok(_) => {}
            Err(refused) if refused.error.kind() == ErrorKind::AlreadyExists => {}
            Err(refused) => return Err(later(refused.error)),
        }
    }
    let unknown = |cause: std::io::Error| {
        SendOutcome::Unknown(sanitize_text(&format!(
            "the folder cannot be synced: {cause}"
        )))
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

    fn parcel<'a>(key: &'a str, message: &'a RenderedMessage) -> OutgoingItem<'a> {
        OutgoingItem {
            item: "j.0",
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
            folder
                .write_message(&parcel("ab12", &message("first")))
                .await,
            accepted
        );
        assert_eq!(
            folder
                .write_message(&parcel("ab12", &message("second")))
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
                    folder.write_message(&parcel(key, &message("out"))).await,
                    SendOutcome::InvalidMessage(_)
                ),
                "{key}"
            );
            assert_eq!(folder.lookup_status(key).await, LookupOutcome::NotFound);
        }
    }

    #[tokio::test]
    async fn a_folder_that_is_gone_has_taken_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(&dir.path().join("sent"));
        std::fs::remove_dir(dir.path().join("sent")).unwrap();
        assert!(matches!(
            folder
                .write_message(&parcel("ab12", &message("lost")))
                .await,
            SendOutcome::Deferred(_)
        ));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let spec = |path: &std::path::Path| -> FolderSpec {
            serde_json::from_value(serde_json::json!({ "path": path })).unwrap()
        };
        assert!(
            spec(&file.path().join("in"))
                .build_provider("dev")
                .unwrap_err()
                .contains("cannot be made")
        );
        assert!(
            spec(std::path::Path::new(""))
                .build_provider("dev")
                .unwrap_err()
                .contains("empty")
        );
    }
}
