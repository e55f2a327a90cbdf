//! The database itself keeps the execution contract of campaigns, whoever writes to it.

use crate::server::{connect, fresh};
use crate::statements as contract;

const NOW: &str = "now()";

#[tokio::test]
async fn what_breaks_the_contract_is_refused_and_what_keeps_it_is_not() {
    let fixture = fresh().await;
    let raw = connect(&fixture.url).await;
    for row in contract::rows(NOW) {
        raw.batch_execute(&row).await.unwrap();
    }
    for (what, row) in contract::broken(NOW) {
        assert!(raw.batch_execute(&row).await.is_err(), "{what}: {row}");
    }
    for row in contract::sound(NOW) {
        raw.batch_execute(&row).await.unwrap();
    }
}

#[tokio::test]
async fn the_trace_of_a_campaign_is_what_its_query_says() {
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
