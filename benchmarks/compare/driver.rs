//! The load driver, the same for every engine: one connection per concurrent invocation, each sends
//! the next request as soon as it has the response to the last one.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};

use onward_benchmarks::load::{LoadLimit, LoadResult};
use onward_benchmarks::statistics::BenchLatencies;
use onward_benchmarks::stopwatch::BenchStopwatch;

use crate::http::{BenchHttpRequest, HttpConnection};
use crate::workload::ComparedWorkload;

/// The measurements of one connection.
#[derive(Default)]
struct ConnectionShare {
    latencies: Vec<Duration>,
    result: Option<String>,
}

/// Sends `request` repeatedly. A wrong or missing response is an error: failures are not counted as
/// load.
pub(crate) fn run_load(
    workload: &ComparedWorkload,
    request: &BenchHttpRequest,
    until: LoadLimit,
) -> Result<LoadResult<String>> {
    let opened: Result<Vec<HttpConnection>> = (0..workload.concurrency)
        .map(|_| HttpConnection::open(request))
        .collect();
    let connections = opened?;
    let ready = Barrier::new(connections.len() + 1);
    let (elapsed, shares) = thread::scope(|scope| {
        let take_part = |connection| invoke(connection, workload, request, until, &ready);
        let threads: Vec<_> = connections
            .into_iter()
            .map(|connection| scope.spawn(move || take_part(connection)))
            .collect();
        ready.wait();
        let watch = BenchStopwatch::start_now();
        let shares: Vec<Result<ConnectionShare>> = threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .map_err(|_| anyhow!("the thread of a connection panicked"))?
            })
            .collect();
        (watch.elapsed(), shares)
    });
    let (mut latencies, mut result) = (Vec::new(), None);
    for share in shares {
        let share = share?;
        latencies.extend(share.latencies);
        result = share.result.or(result);
    }
    Ok(LoadResult {
        elapsed,
        latencies: BenchLatencies::new(latencies),
        result,
    })
}

fn invoke(
    mut connection: HttpConnection,
    workload: &ComparedWorkload,
    request: &BenchHttpRequest,
    until: LoadLimit,
    ready: &Barrier,
) -> Result<ConnectionShare> {
    let mut share = ConnectionShare::default();
    ready.wait();
    let watch = BenchStopwatch::start_now();
    while !until.is_reached(watch.elapsed(), share.latencies.len()) {
        let sent = BenchStopwatch::start_now();
        let body = connection.send(request)?;
        share.latencies.push(sent.elapsed());
        let result = request.result_in(body)?;
        workload.work.check(&result)?;
        share.result = Some(result);
    }
    Ok(share)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    use onward_benchmarks::load::LoadLimit;

    use super::run_load;
    use crate::http::BenchHttpRequest;
    use crate::workload::{ComparedWork, ComparedWorkload};

    /// Accepts `connections` connections and responds to every request with `body`.
    fn server(connections: usize, body: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().take(connections) {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                        // The body of a request has no line break, so it comes with the first line
                        // of the next one.
                        if line.unwrap().is_empty() {
                            write!(
                                stream,
                                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                                body.len()
                            )
                            .unwrap();
                        }
                    }
                });
            }
        });
        address
    }

    #[test]
    fn every_connection_sends_its_share() {
        let workload = ComparedWorkload {
            work: ComparedWork::Chain,
            concurrency: 4,
        };
        let request = BenchHttpRequest::post(server(4, "10"), "/chain", &workload.work.input());
        let load = run_load(&workload, &request, LoadLimit::Completed(3)).unwrap();
        assert_eq!(load.latencies.sample_count(), 12);
        assert!(load.latencies.p50_ms() > Some(0.0));
        assert_eq!(load.result.as_deref(), Some("10"));
    }

    #[test]
    fn a_wrong_response_is_an_error() {
        let workload = ComparedWorkload {
            work: ComparedWork::Chain,
            concurrency: 1,
        };
        let request = BenchHttpRequest::post(server(1, "7"), "/chain", &workload.work.input());
        assert_eq!(
            run_load(&workload, &request, LoadLimit::Completed(1))
                .err()
                .unwrap()
                .to_string(),
            "wrong result of chain: 7"
        );
    }
}
