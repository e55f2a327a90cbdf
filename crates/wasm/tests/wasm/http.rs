//! Requests to servers on this machine.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use onward_wasm::{
    ComponentEgress, GuestHttpClient, HostPattern, HostResolver, HostRule, HttpConfig, HttpError,
    HttpRequest, TaskCall, TaskLimits,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::task::Fixed;
use crate::{guests, load, own, payload};

/// A server that answers every request with `response`; `{request}` in it is the request, as a JSON
/// text.
async fn serve(response: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..length])
                    .escape_default()
                    .to_string();
                let _ = stream
                    .write_all(response.replace("{request}", &request).as_bytes())
                    .await;
            });
        }
    });
    address
}

const ECHO: &str = "HTTP/1.1 200 OK\r\nx-a: b\r\nconnection: close\r\n\r\n\"{request}\"";

/// A rule that allows public addresses only.
fn public_rule(pattern: &str) -> HostRule {
    HostRule {
        pattern: pattern.parse().unwrap(),
        private_networks: false,
    }
}

/// A rule that allows private addresses too.
fn private_rule(pattern: &str) -> HostRule {
    HostRule {
        private_networks: true,
        ..public_rule(pattern)
    }
}

fn config(hosts: Vec<HostRule>) -> HttpConfig {
    HttpConfig {
        host_rules: hosts,
        response_bytes_max: 1_000,
        timeout: Duration::from_secs(5),
        ..HttpConfig::default()
    }
}

fn local() -> GuestHttpClient {
    GuestHttpClient::new(config(vec![private_rule("127.0.0.1:*")])).unwrap()
}

fn get(url: impl Into<String>) -> HttpRequest {
    HttpRequest {
        method: "GET".to_owned(),
        url: url.into(),
        headers: vec![("x-mine".to_owned(), "yes".to_owned())],
        body: Bytes::new(),
        timeout: None,
        idempotency_key: Some("root.7".into()),
    }
}

/// Resolves every name to this address, and to a public one too if it is IPv6. Counts its calls.
struct Pointing(IpAddr, AtomicUsize);

impl HostResolver for Pointing {
    fn resolve_host(
        &self,
        _: String,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let address = self.0;
        let public = IpAddr::from([1, 1, 1, 1]);
        Box::pin(async move {
            Ok(if address.is_ipv6() {
                vec![public, address]
            } else {
                vec![address]
            })
        })
    }
}

#[tokio::test]
async fn a_request_goes_to_an_allowed_host() {
    let address = serve(ECHO).await;
    let response = local()
        .send(get(format!("http://{address}/path?query")))
        .await
        .unwrap();
    assert_eq!(response.status, 200);
    assert!(
        response
            .headers
            .contains(&("x-a".to_owned(), "b".to_owned()))
    );
    let body = String::from_utf8(response.body.into()).unwrap();
    for part in [
        "GET /path?query HTTP/1.1",
        "x-mine: yes",
        "idempotency-key: root.7",
        &format!("host: {address}"),
    ] {
        assert!(body.contains(part), "{body}");
    }
}

#[tokio::test]
async fn a_host_must_be_allowed_by_both_lists() {
    let address = serve(ECHO).await;
    let url = format!("http://{address}/");
    let egress = |hosts: &[&str]| {
        let hosts: Vec<HostPattern> = hosts.iter().map(|host| host.parse().unwrap()).collect();
        ComponentEgress {
            http: local(),
            hosts: hosts.into(),
        }
    };
    assert!(egress(&["127.0.0.1:*"]).send(get(&url)).await.is_ok());
    for hosts in [&[][..], &["127.0.0.1"], &["*.example.com", "localhost:*"]] {
        let error = egress(hosts).send(get(&url)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("requests to `{address}` are not allowed by the component's configuration")
        );
    }
    let error = egress(&["*:*"])
        .send(get("http://example.com/"))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "requests to `example.com:80` are not allowed by the server's configuration"
    );
    assert_eq!(error.into_execution_error().kind.as_str(), "http_denied");
}

#[tokio::test]
async fn a_private_address_is_refused_unless_the_server_allows_it() {
    let address = serve(ECHO).await;
    let http = GuestHttpClient::new(config(vec![public_rule("*:*")])).unwrap();
    for host in [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "127.1",
        "2130706433",
        "0.0.0.0",
    ] {
        let error = http
            .send(get(format!("http://{host}:{}/", address.port())))
            .await
            .unwrap_err();
        assert!(
            matches!(error, HttpError::AddressDenied { .. }),
            "{host}: {error}"
        );
    }
}

#[tokio::test]
async fn a_metadata_service_is_always_refused() {
    let http = GuestHttpClient::new(config(vec![private_rule("*:*")])).unwrap();
    for host in [
        "169.254.169.254",
        "[fd00:ec2::254]",
        "[::ffff:169.254.169.254]",
    ] {
        let error = http.send(get(format!("http://{host}/"))).await.unwrap_err();
        assert!(
            matches!(error, HttpError::AddressDenied { reason, .. } if reason == "a metadata service of a cloud"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn the_resolved_address_of_a_name_is_checked() {
    let address = serve(ECHO).await;
    let url = format!("http://api.example.com:{}/", address.port());
    let pointing = || Arc::new(Pointing(address.ip(), AtomicUsize::new(0)));
    let resolver = pointing();
    let outside = GuestHttpClient::with_resolver(
        config(vec![public_rule("*.example.com:*")]),
        resolver.clone(),
    )
    .unwrap();
    let error = outside.send(get(&url)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "requests to `api.example.com` are not allowed: its address is not public"
    );
    let inside = GuestHttpClient::with_resolver(
        config(vec![private_rule("*.example.com:*")]),
        resolver.clone(),
    )
    .unwrap();
    assert_eq!(inside.send(get(&url)).await.unwrap().status, 200);
    assert_eq!(
        resolver.1.load(Ordering::SeqCst),
        2,
        "once each: what was judged is what is used"
    );
}

#[tokio::test]
async fn one_forbidden_address_is_enough_to_refuse_a_host() {
    let resolver = Arc::new(Pointing("::1".parse().unwrap(), AtomicUsize::new(0)));
    let http = GuestHttpClient::with_resolver(config(vec![public_rule("*")]), resolver).unwrap();
    let error = http.send(get("http://api.example.com/")).await.unwrap_err();
    assert!(matches!(error, HttpError::AddressDenied { .. }), "{error}");
}

#[tokio::test]
async fn a_redirect_is_a_response() {
    let address = serve(
        "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    let response = local()
        .send(get(format!("http://{address}/")))
        .await
        .unwrap();
    assert_eq!(response.status, 302);
}

#[tokio::test]
async fn a_large_response_is_refused() {
    let endless =
        Box::leak(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(1_001)).into_boxed_str());
    let address = serve(endless).await;
    let error = local()
        .send(get(format!("http://{address}/")))
        .await
        .unwrap_err();
    assert_eq!(
        error,
        HttpError::TooLarge {
            what: "response",
            max: 1_000
        }
    );
    assert_eq!(error.into_execution_error().kind.as_str(), "too_large");
}

#[tokio::test]
async fn a_large_request_is_not_sent() {
    let request = HttpRequest {
        body: Bytes::from(vec![0; 2 << 20]),
        ..get("http://127.0.0.1:1/")
    };
    assert_eq!(
        local().send(request).await.unwrap_err(),
        HttpError::TooLarge {
            what: "request",
            max: 1 << 20
        }
    );
}

#[tokio::test]
async fn a_request_without_a_response_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let request = HttpRequest {
        timeout: Some(Duration::from_millis(50)),
        ..get(url)
    };
    assert_eq!(
        local().send(request).await.unwrap_err(),
        HttpError::Timeout { ms: 50 }
    );
}

#[tokio::test]
async fn a_network_failure_is_retryable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for scheme in ["http", "https"] {
        let error = local()
            .send(get(format!("{scheme}://{address}/")))
            .await
            .unwrap_err()
            .into_execution_error();
        assert_eq!(
            (error.kind.as_str(), error.retryable),
            ("http_failed", true),
            "{error}"
        );
    }
}

#[tokio::test]
async fn an_https_request_requires_tls() {
    let address = serve(ECHO).await;
    let error = local()
        .send(get(format!("https://{address}/")))
        .await
        .unwrap_err();
    assert!(matches!(error, HttpError::Unreachable(_)), "{error}");
}

/// Requests the URL that is its input, with this number of headers at 2200. A failure ends it.
fn send(headers: u32) -> String {
    format!(
        "(i32.store (i32.const 2100) (i32.const 0x544547))
        (call $http (i32.const 2100) (i32.const 3)
            (i32.add (local.get $input) (i32.const 1)) (i32.sub (local.get $input-length) (i32.const 2))
            (i32.const 2200) (i32.const {headers})
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i64.const 0)
            (i32.const 2048))
        (if (i32.load8_u (i32.const 2048)) (then (return (i32.const 2048))))"
    )
}

/// Requests the URL that is its input and returns the body of the response.
fn fetch() -> String {
    send(0) + "(call $ok (i32.load (i32.const 2064)) (i32.load (i32.const 2068)))"
}

fn call() -> TaskCall {
    TaskCall {
        owner: "tenant".into(),
        context: own(),
        limits: TaskLimits::default(),
        http: ComponentEgress {
            http: local(),
            hosts: ["127.0.0.1:*".parse().unwrap()].into(),
        },
        services: Arc::new(Fixed::default()),
    }
}

#[tokio::test]
async fn a_task_sends_requests_with_its_idempotency_key() {
    let address = serve(ECHO).await;
    let component = load(&guests::with_call(&fetch()));
    let body = component
        .run_task("job", &payload(&format!("\"http://{address}/\"")), call())
        .await
        .unwrap();
    assert!(
        body.as_str().contains("idempotency-key: root.1\\r"),
        "{body:?}"
    );
    let error = component
        .run_task("job", &payload("\"http://example.com/\""), call())
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind.as_str(), error.retryable),
        ("http_denied", false)
    );
}

/// A server that answers with `null` and keeps the idempotency keys that it saw.
async fn listen() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, keys) = (
        listener.local_addr().unwrap(),
        Arc::new(Mutex::new(Vec::new())),
    );
    let seen = Arc::clone(&keys);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).await.unwrap();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let its = request
                .lines()
                .filter_map(|line| line.strip_prefix("idempotency-key: "));
            seen.lock().unwrap().extend(its.map(str::to_owned));
            let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 4\r\n\r\nnull";
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address, keys)
}

/// Writes a text to memory.
fn text(at: usize, text: &str) -> String {
    let byte = |(place, byte)| format!("(i32.store8 (i32.const {place}) (i32.const {byte}))");
    (at..).zip(text.bytes()).map(byte).collect()
}

#[tokio::test]
async fn each_request_of_a_task_has_its_own_key_and_attempts_repeat_the_keys() {
    let (address, keys) = listen().await;
    // One header, at 2200: its name at 2300, its value at 2320.
    let words = [(2200, 2300), (2204, 15), (2208, 2320), (2212, 4)];
    let words = words.map(|(at, word)| format!("(i32.store (i32.const {at}) (i32.const {word}))"));
    let header = words.concat() + &text(2300, "idempotency-key") + &text(2320, "mine");
    let body = header + &send(0) + &send(0) + &send(1) + &fetch();
    let component = load(&guests::with_call(&body));
    for _attempt in 0..2 {
        component
            .run_task("job", &payload(&format!("\"http://{address}/\"")), call())
            .await
            .unwrap();
        assert_eq!(
            std::mem::take(&mut *keys.lock().unwrap()),
            ["root.1", "root.1/2", "mine", "root.1/4"]
        );
    }
}
