//! A minimal HTTP/1.1 client with a persistent connection, sufficient for a load driver on the same
//! machine: every engine is measured with the same client, which costs next to nothing.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Response timeout, longer than any response should take: a server that hangs becomes an error.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(120);

/// A request that is encoded once and can be sent any number of times.
pub(crate) struct BenchHttpRequest {
    address: SocketAddr,
    path: String,
    bytes: Vec<u8>,
    /// The member of the response that has the result; none if the whole response is the result.
    result: Option<&'static str>,
}

impl BenchHttpRequest {
    pub(crate) fn post(address: SocketAddr, path: &str, body: &Value) -> Self {
        let body = body.to_string();
        let length = body.len();
        let text = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        Self {
            address,
            path: path.to_owned(),
            bytes: text.into_bytes(),
            result: None,
        }
    }

    /// Adds a bearer token.
    pub(crate) fn with_token(mut self, token: &str) -> Self {
        let end = self
            .bytes
            .windows(2)
            .position(|pair| pair == b"\r\n")
            .map_or(0, |end| end + 2);
        let header = format!("authorization: Bearer {token}\r\n");
        self.bytes.splice(end..end, header.into_bytes());
        self
    }

    /// Reads the result from this member of the response.
    pub(crate) fn with_result_member(self, member: &'static str) -> Self {
        Self {
            result: Some(member),
            ..self
        }
    }

    /// Returns the result that a response contains.
    pub(crate) fn result_in(&self, body: String) -> Result<String> {
        let Some(member) = self.result else {
            return Ok(body);
        };
        let response: Value = serde_json::from_str(&body).context("the response is not JSON")?;
        let result = response
            .get(member)
            .with_context(|| format!("the response has no member {member}: {body}"))?;
        Ok(result.to_string())
    }

    /// Sends the request over a new connection.
    pub(crate) fn send(&self) -> Result<String> {
        HttpConnection::open(self)?.send(self)
    }
}

/// One connection, for one request at a time.
pub(crate) struct HttpConnection(BufReader<TcpStream>);

impl HttpConnection {
    /// Connects to the address of `request`.
    pub(crate) fn open(request: &BenchHttpRequest) -> Result<Self> {
        let failed = || format!("cannot connect to {}", request.address);
        let stream = TcpStream::connect(request.address).with_context(failed)?;
        stream.set_nodelay(true).with_context(failed)?;
        stream
            .set_read_timeout(Some(RESPONSE_TIMEOUT))
            .with_context(failed)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends `request` and returns the body of the response. An error status is an error.
    pub(crate) fn send(&mut self, request: &BenchHttpRequest) -> Result<String> {
        let failed = || {
            format!(
                "no response from {} to POST {}",
                request.address, request.path
            )
        };
        self.0
            .get_mut()
            .write_all(&request.bytes)
            .with_context(failed)?;
        let (status, body) = read_response(&mut self.0).with_context(failed)?;
        if !(200..300).contains(&status) {
            bail!(
                "{} responded with status {status} to POST {}: {body}",
                request.address,
                request.path
            );
        }
        Ok(body)
    }
}

fn read_response(reader: &mut impl BufRead) -> Result<(u16, String)> {
    let mut line = String::new();
    ensure!(
        reader.read_line(&mut line)? > 0,
        "the connection was closed"
    );
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.with_context(|| format!("the response is not HTTP: {line:?}"))?;
    let length = read_headers(reader, &mut line)?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((
        status,
        String::from_utf8(body).context("the response is not UTF-8 text")?,
    ))
}

/// Reads the headers and returns the length of the body.
fn read_headers(reader: &mut impl BufRead, line: &mut String) -> Result<usize> {
    let mut length = None;
    loop {
        line.clear();
        ensure!(
            reader.read_line(line)? > 0,
            "the connection was closed within the headers"
        );
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(
                value
                    .trim()
                    .parse()
                    .context("content-length is not a number")?,
            );
        }
    }
    length.context("the response has no content-length")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use serde_json::json;

    use super::{BenchHttpRequest, read_response};

    #[test]
    fn a_token_is_sent_as_a_header() {
        let request =
            BenchHttpRequest::post(SocketAddr::from(([127, 0, 0, 1], 80)), "/a", &json!(1))
                .with_token("secret");
        let text = String::from_utf8(request.bytes).unwrap();
        assert!(
            text.starts_with("POST /a HTTP/1.1\r\nauthorization: Bearer secret\r\nhost: "),
            "{text}"
        );
        assert!(text.ends_with("\r\n\r\n1"), "{text}");
    }

    #[test]
    fn a_result_is_the_response_or_a_member_of_it() {
        let request =
            BenchHttpRequest::post(SocketAddr::from(([127, 0, 0, 1], 80)), "/a", &json!(1));
        assert_eq!(request.result_in("10".to_owned()).unwrap(), "10");
        let request = request.with_result_member("result");
        assert_eq!(
            request
                .result_in(r#"{"id":"a","result":{"done":10}}"#.to_owned())
                .unwrap(),
            r#"{"done":10}"#
        );
        assert!(request.result_in(r#"{"id":"a"}"#.to_owned()).is_err());
    }

    #[test]
    fn a_response_has_a_status_and_a_body_of_content_length() {
        let mut bytes = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\ndate: today\r\n\r\n10HTTP/1.1 404 Not Found\r\n\
                         content-length: 0\r\n\r\n"
            .as_bytes();
        assert_eq!(read_response(&mut bytes).unwrap(), (200, "10".to_owned()));
        assert_eq!(read_response(&mut bytes).unwrap(), (404, String::new()));
    }

    #[test]
    fn a_truncated_response_is_an_error() {
        for text in [
            "",
            "nonsense\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfour",
        ] {
            assert!(read_response(&mut text.as_bytes()).is_err(), "{text}");
        }
        assert!(read_response(&mut "HTTP/1.1 200 OK\r\n\r\n".as_bytes()).is_err());
    }
}
