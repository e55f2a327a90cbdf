//! A folder in place of a provider, for development: every message is a file.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use onward_dispatch::{Answer, Found};
use onward_dispatcher::{Nature, Provider, Reservation};
use onward_journal::Text;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;

use crate::limits::Limits;
use crate::parcel::{Parcel, unfit, words};
use crate::spec::{Defaults, TermsSpec};

/// A key is at most so long.
const KEY_CHARS_MAX: usize = 128;

/// A folder to write messages into: each is one file, `<key>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FolderSpec {
    /// Where it is. It is made if it is not there.
    pub path: PathBuf,
    /// How long writing a file may take.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// How many may be written in which time.
    #[serde(default)]
    pub limits: Limits,
    /// How it is gone about.
    #[serde(default)]
    pub terms: TermsSpec,
}

fn timeout_ms() -> u64 {
    10_000
}

impl FolderSpec {
    pub(crate) fn defaults(&self) -> Defaults {
        Defaults {
            window: 50,
            repeats: true,
            looks_after_ms: Some(0),
            patience: Duration::from_millis(self.timeout_ms),
        }
    }

    pub(crate) fn build(&self, name: &str) -> Result<Folder, String> {
        if self.path.as_os_str().is_empty() {
            return Err("the path of the folder is empty".to_owned());
        }
        let refuse = |cause| format!("the folder {} cannot be made: {cause}", self.path.display());
        std::fs::create_dir_all(&self.path).map_err(refuse)?;
        Ok(Folder { name: name.to_owned(), path: self.path.clone() })
    }
}

/// Writes messages into a folder.
#[derive(Debug)]
pub(crate) struct Folder {
    name: String,
    path: PathBuf,
}

#[async_trait]
impl Provider for Folder {
    fn name(&self) -> &str {
        &self.name
    }

    fn nature(&self) -> Nature {
        Nature { batch_max: 1, takes_keys_once: true, can_look: true }
    }

    async fn deliver(&self, batch: Vec<Reservation>) -> Vec<(Text, Answer)> {
        let mut answers = Vec::new();
        for reservation in batch {
            answers.push((reservation.item().clone(), self.put(&Parcel::of(&reservation)).await));
        }
        answers
    }

    async fn look(&self, key: &str) -> Found {
        let Some(file) = self.file(key) else { return Found::Nothing };
        match tokio::task::spawn_blocking(move || file.try_exists()).await {
            Ok(Ok(true)) => Found::Accepted(Some(file_name(key))),
            Ok(Ok(false)) => Found::Nothing,
            Ok(Err(_)) | Err(_) => Found::Unsure,
        }
    }
}

impl Folder {
    /// The file of a key, which cannot lead out of the folder.
    fn file(&self, key: &str) -> Option<PathBuf> {
        let is_key = (1..=KEY_CHARS_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_key.then(|| self.path.join(&*file_name(key)))
    }

    async fn put(&self, parcel: &Parcel<'_>) -> Answer {
        let Some(file) = self.file(parcel.key) else {
            return unfit("the key is not made of hexadecimal digits");
        };
        let (folder, text, name) = (self.path.clone(), content(parcel), file_name(parcel.key));
        match tokio::task::spawn_blocking(move || write(&folder, &file, &text)).await {
            Ok(Ok(())) => Answer::Accepted(Some(name)),
            Ok(Err(answer)) => answer,
            Err(_) => Answer::Unknown("whoever wrote the file panicked".into()),
        }
    }
}

fn file_name(key: &str) -> Text {
    format!("{key}.json").into()
}

fn content(parcel: &Parcel<'_>) -> String {
    let part = |(name, text): &(String, String)| (name.clone(), Value::from(text.as_str()));
    let parts: Map<String, Value> = parcel.message.parts.iter().map(part).collect();
    let content = json!({
        "key": parcel.key, "item": parcel.item, "to": parcel.to, "recipient": parcel.recipient, "message": parts,
    });
    format!("{content:#}\n")
}

/// Makes the file, whole and durable. One that is there already is as good.
fn write(folder: &Path, file: &Path, text: &str) -> Result<(), Answer> {
    let later = |cause: std::io::Error| Answer::Later(words(&format!("the file cannot be written: {cause}")));
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
    let unknown = |cause: std::io::Error| Answer::Unknown(words(&format!("the folder cannot be synced: {cause}")));
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(unknown)
}

#[cfg(test)]
mod tests {
    use onward_dispatch::{Answer, Found};
    use onward_dispatcher::{Message, Provider as _};

    use super::{Folder, FolderSpec};
    use crate::parcel::Parcel;

    fn folder(path: &std::path::Path) -> Folder {
        let spec = serde_json::json!({ "path": path });
        serde_json::from_value::<FolderSpec>(spec).unwrap().build("dev").unwrap()
    }

    fn message(text: &str) -> Message {
        Message { parts: vec![("text".to_owned(), text.to_owned())] }
    }

    fn parcel<'a>(key: &'a str, message: &'a Message) -> Parcel<'a> {
        Parcel { item: "j.0", key, to: "ada@example.org", recipient: "ada", message }
    }

    #[tokio::test]
    async fn a_message_is_one_file_and_a_repeated_key_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(&dir.path().join("sent"));
        let accepted = Answer::Accepted(Some("ab12.json".into()));
        assert_eq!(folder.look("ab12").await, Found::Nothing);
        assert_eq!(folder.put(&parcel("ab12", &message("first"))).await, accepted);
        assert_eq!(folder.put(&parcel("ab12", &message("second"))).await, accepted);
        assert_eq!(folder.look("ab12").await, Found::Accepted(Some("ab12.json".into())));
        let written = std::fs::read_to_string(dir.path().join("sent/ab12.json")).unwrap();
        let written: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(written["message"]["text"], "first");
        assert_eq!(written["to"], "ada@example.org");
        assert_eq!(std::fs::read_dir(dir.path().join("sent")).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_key_cannot_lead_out_of_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(&dir.path().join("sent"));
        for key in ["", "..", "../ab", "ab/cd", "ab.json", "xyz", &"a".repeat(129)] {
            assert!(matches!(folder.put(&parcel(key, &message("out"))).await, Answer::Unfit(_)), "{key}");
            assert_eq!(folder.look(key).await, Found::Nothing);
        }
    }

    #[tokio::test]
    async fn a_folder_that_is_gone_has_taken_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(&dir.path().join("sent"));
        std::fs::remove_dir(dir.path().join("sent")).unwrap();
        assert!(matches!(folder.put(&parcel("ab12", &message("lost"))).await, Answer::Later(_)));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let spec = |path: &std::path::Path| -> FolderSpec {
            serde_json::from_value(serde_json::json!({ "path": path })).unwrap()
        };
        assert!(spec(&file.path().join("in")).build("dev").unwrap_err().contains("cannot be made"));
        assert!(spec(std::path::Path::new("")).build("dev").unwrap_err().contains("empty"));
    }
}
