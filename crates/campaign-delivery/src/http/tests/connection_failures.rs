//! Tests of connection failures: outcomes that are unknown, and requests that never arrived.

use serde_json::json;

use super::{outcome_name, provider, send};

/// What a service does after it has read a request, in place of a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MissingResponse {
    Disconnect,
    Hang,
}

/// Starts a service that never responds, and returns its URL.
async fn unresponsive_service(behavior: MissingResponse) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut buffer = [0; 4_096];
                let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut buffer).await;
                if behavior == MissingResponse::Hang {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn a_request_without_a_response_has_an_unknown_outcome() {
    let outcome = send(&provider(
        &unresponsive_service(MissingResponse::Disconnect).await,
        &json!({}),
    ))
    .await;
    assert_eq!(outcome_name(&outcome), "unknown", "{outcome:?}");
    let outcome = send(&provider(
        &unresponsive_service(MissingResponse::Hang).await,
        &json!({ "timeout_ms": 300 }),
    ))
    .await;
    assert_eq!(outcome_name(&outcome), "unknown", "{outcome:?}");
    assert!(
        format!("{outcome:?}").contains("did not respond before the timeout"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn an_unreachable_service_has_accepted_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let outcome = send(&provider(&url, &json!({}))).await;
    assert_eq!(outcome_name(&outcome), "unreachable", "{outcome:?}");
    let host = url.trim_start_matches("http://");
    assert!(
        format!("{outcome:?}").contains(&format!("cannot connect to {host}: ")),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_service_that_fails_the_tls_handshake_has_accepted_nothing() {
    let url = unresponsive_service(MissingResponse::Hang)
        .await
        .replace("http://", "https://");
    let outcome = send(&provider(&url, &json!({ "timeout_ms": 600 }))).await;
    assert_eq!(outcome_name(&outcome), "unreachable", "{outcome:?}");
    let url = unresponsive_service(MissingResponse::Disconnect)
        .await
        .replace("http://", "https://");
    let outcome = send(&provider(&url, &json!({}))).await;
    assert_eq!(outcome_name(&outcome), "unreachable", "{outcome:?}");
}
