//! Tests of connection failures: outcomes that are unknown, and requests that never arrived.

use serde_json::json;

use super::{kind, provider, send};

/// Starts a service that reads a request and then hangs or closes the connection; returns its URL.
async fn rude(hangs: bool) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut heard = [0; 4_096];
                let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut heard).await;
                if hangs {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn nobody_knows_what_became_of_a_request_that_was_sent_and_not_answered() {
    let answer = send(&provider(&rude(false).await, &json!({}))).await;
    assert_eq!(kind(&answer), "unknown", "{answer:?}");
    let answer = send(&provider(&rude(true).await, &json!({ "timeout_ms": 300 }))).await;
    assert_eq!(kind(&answer), "unknown", "{answer:?}");
    assert!(format!("{answer:?}").contains("in time"), "{answer:?}");
}

#[tokio::test]
async fn a_service_that_cannot_be_connected_to_has_taken_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let answer = send(&provider(&url, &json!({}))).await;
    assert_eq!(kind(&answer), "later", "{answer:?}");
    let host = url.trim_start_matches("http://");
    assert!(
        format!("{answer:?}").contains(&format!("could not connect to {host}: ")),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_service_that_never_shakes_hands_has_taken_nothing() {
    let url = rude(true).await.replace("http://", "https://");
    let answer = send(&provider(&url, &json!({ "timeout_ms": 600 }))).await;
    assert_eq!(kind(&answer), "later", "{answer:?}");
    let url = rude(false).await.replace("http://", "https://");
    let answer = send(&provider(&url, &json!({}))).await;
    assert_eq!(kind(&answer), "later", "{answer:?}");
}
