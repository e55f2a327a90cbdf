//! A campaign through the folder provider, as in development.

use serde_json::{Value, json};

use crate::fixture::{ProviderFixture, statuses};

#[tokio::test]
async fn the_folder_has_one_file_per_recipient() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = ProviderFixture::new(json!({ "folder": { "path": dir.path() } }));
    let items = fixture
        .send(&[("ada", "ada@example.org"), ("bob", "bob@example.org")])
        .await;
    assert_eq!(items, statuses(&[("ada", "sent"), ("bob", "sent")]));
    for row in fixture.item_rows().await {
        let file = dir.path().join(format!("{}.json", row.idempotency_key));
        let content: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(content["to"], *row.recipient_address);
        assert_eq!(
            content["message"]["text"],
            format!("Hello {}", row.recipient_id)
        );
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}
