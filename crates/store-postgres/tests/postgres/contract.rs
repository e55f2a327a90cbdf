//! The database itself enforces the execution contract of campaigns, for every client.

use crate::server::{connect, fresh};
use crate::statements as contract;

const NOW: &str = "now()";

#[tokio::test]
async fn invalid_rows_are_rejected_and_valid_rows_are_accepted() {
    let fixture = fresh().await;
    let raw = connect(&fixture.url).await;
    for row in contract::rows(NOW) {
        raw.batch_execute(&row).await.unwrap();
    }
    for (what, row) in contract::invalid_rows(NOW) {
        assert!(raw.batch_execute(&row).await.is_err(), "{what}: {row}");
    }
    for row in contract::valid_rows(NOW) {
        raw.batch_execute(&row).await.unwrap();
    }
}

#[tokio::test]
async fn the_documented_query_returns_the_trace_of_a_campaign() {
    let fixture = fresh().await;
    let raw = connect(&fixture.url).await;
    for row in contract::rows(NOW) {
        raw.batch_execute(&row).await.unwrap();
    }
    let traced = raw.query(contract::TRACE, &[]).await.unwrap();
    let text = |column: &str| -> Vec<String> { traced.iter().map(|row| row.get(column)).collect() };
    assert_eq!(
        (text("run_id"), text("job_status"), text("outbox_status")),
        (
            vec!["run".to_owned()],
            vec!["queued".to_owned()],
            vec!["sent".to_owned()],
        )
    );
}
