//! Who puts the load on: as many connections as invocations at a time, each with the next
//! invocation as soon as the last one is answered. The same for every side.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::clock::Stopwatch;
use crate::compare::http::{BenchHttpRequest, Connection};
use crate::compare::workload::Workload;

/// When a connection has done enough.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    Elapsed(Duration),
    Answered(usize),
}

/// What came of it.
pub(crate) struct Load {
    pub(crate) elapsed: Duration,
    /// How long each invocation took, the shortest first.
    pub(crate) latencies: Vec<Duration>,
    /// What one of the last invocations answered.
    pub(crate) answer: String,
}

/// What came of one connection.
#[derive(Default)]
struct Share {
    latencies: Vec<Duration>,
    answer: String,
}

impl Until {
    fn reached(self, watch: Stopwatch, answered: usize) -> bool {
        match self {
            Self::Elapsed(duration) => watch.elapsed() >= duration,
            Self::Answered(count) => answered >= count,
        }
    }
}

/// Invokes `request` over and over. An answer that is wrong, or none, is an error: there is no rate
/// of failures.
pub(crate) fn put_load_on(
    workload: &Workload,
    request: &BenchHttpRequest,
    until: Until,
) -> Result<Load> {
    let opened: Result<Vec<Connection>> = (0..workload.concurrency)
        .map(|_| Connection::open(request))
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
        let watch = Stopwatch::start();
        let shares: Vec<Result<Share>> = threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .map_err(|_| anyhow!("a connection panicked"))?
            })
            .collect();
        (watch.elapsed(), shares)
    });
    let mut load = Load {
        elapsed,
        latencies: Vec::new(),
        answer: String::new(),
    };
    for share in shares {
        let share = share?;
        load.latencies.extend(share.latencies);
        load.answer = share.answer;
    }
    load.latencies.sort_unstable();
    Ok(load)
}

fn invoke(
    mut connection: Connection,
    workload: &Workload,
    request: &BenchHttpRequest,
    until: Until,
    ready: &Barrier,
) -> Result<Share> {
    let mut share = Share::default();
    ready.wait();
    let watch = Stopwatch::start();
    while !until.reached(watch, share.latencies.len()) {
        let sent = Stopwatch::start();
        let answer = connection.send(request)?;
        share.latencies.push(sent.elapsed());
        share.answer = request.result_in(answer)?;
        workload.work.check(&share.answer)?;
    }
    Ok(share)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    use super::{Until, put_load_on};
    use crate::compare::http::BenchHttpRequest;
    use crate::compare::workload::{Work, Workload};

    /// Answers every request of `connections` connections with `body`, then is gone.
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
    fn every_connection_takes_its_part() {
        let workload = Workload {
            work: Work::Chain,
            concurrency: 4,
        };
        let request = BenchHttpRequest::post(server(4, "10"), "/chain", &workload.work.input());
        let load = put_load_on(&workload, &request, Until::Answered(3)).unwrap();
        assert_eq!(load.latencies.len(), 12);
        assert!(load.latencies.is_sorted());
        assert_eq!(load.answer, "10");
    }

    #[test]
    fn a_wrong_answer_ends_it() {
        let workload = Workload {
            work: Work::Chain,
            concurrency: 1,
        };
        let request = BenchHttpRequest::post(server(1, "7"), "/chain", &workload.work.input());
        assert_eq!(
            put_load_on(&workload, &request, Until::Answered(1))
                .err()
                .unwrap()
                .to_string(),
            "chain answered 7"
        );
    }
}
