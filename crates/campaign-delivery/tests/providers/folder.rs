//! A campaign into a folder, as somebody has it who tries things out.

use serde_json::{Value, json};

use crate::world::{World, expect};

#[tokio::test]
async fn a_campaign_is_a_file_for_each_recipient() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(json!({ "folder": { "path": dir.path() } }));
    let items = world
        .send(&[("ada", "ada@example.org"), ("bob", "bob@example.org")])
        .await;
    assert_eq!(items, expect(&[("ada", "sent"), ("bob", "sent")]));
    for row in world.rows().await {
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
