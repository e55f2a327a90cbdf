//! Guests that import WASI.

use onward_base::Timestamp;
use onward_execution::{Guest, GuestLogLevel, GuestRequest, GuestResponse, GuestTurn};
use onward_wasm::WorkflowLimits;

use crate::{failed, guests, load, own, payload};

fn flow(body: &str) -> Box<dyn Guest> {
    let component = load(&guests::parse(
        &include_str!("wasi.wat").replace(";;BODY", body),
    ));
    component.new_workflow(
        "tenant",
        "flow",
        &payload("1"),
        own(),
        WorkflowLimits::default(),
    )
}

#[test]
fn lines_on_stderr_are_logged_and_quoted_by_a_trap() {
    let body = "(call $write (call $get-stderr) (i32.const 300) (i32.const 18) (i32.const 400)) (unreachable)";
    let mut guest = flow(body);
    let line = GuestRequest::Log {
        level: GuestLogLevel::Error,
        message: "a line".into(),
    };
    assert_eq!(guest.resume_guest(None), GuestTurn::Requested(line));
    assert_eq!(
        failed(guest.resume_guest(Some(GuestResponse::Done))).to_string(),
        "trap: unreachable code was reached: a line"
    );
}

#[test]
fn the_clock_and_randomness_are_recorded() {
    // Seconds and randomness are one digit each.
    let body = r#"
        (call $now (i32.const 512))
        (i32.store8 (i32.const 600) (i32.wrap_i64 (i64.load (i32.const 512))))
        (i32.store8 (i32.const 601) (i32.wrap_i64 (call $random)))
        (i32.store (i32.const 2052) (i32.const 600))
        (i32.store (i32.const 2056) (i32.const 2))
        (i32.const 2048)"#;
    let mut guest = flow(body);
    assert_eq!(
        guest.resume_guest(None),
        GuestTurn::Requested(GuestRequest::ReadClock)
    );
    let at = Timestamp::from_micros(49_000_000).unwrap();
    assert_eq!(
        guest.resume_guest(Some(GuestResponse::Time(at))),
        GuestTurn::Requested(GuestRequest::Random { length: 8 })
    );
    let bytes = [0, 0, 0, 0, 0, 0, 0, b'7'];
    assert_eq!(
        guest.resume_guest(Some(GuestResponse::Random(bytes.into()))),
        GuestTurn::Completed(Ok(payload("17")))
    );
}

#[test]
fn there_are_no_arguments() {
    let body = r#"
        (call $arguments (i32.const 500))
        (i32.store8 (i32.const 600) (i32.add (i32.load (i32.const 504)) (i32.const 48)))
        (i32.store (i32.const 2052) (i32.const 600))
        (i32.store (i32.const 2056) (i32.const 1))
        (i32.const 2048)"#;
    assert_eq!(
        flow(body).resume_guest(None),
        GuestTurn::Completed(Ok(payload("0")))
    );
}

#[test]
fn a_call_of_a_missing_import_stops_the_guest() {
    let error = failed(flow("(call $made-up) (unreachable)").resume_guest(None));
    assert_eq!(
        error.to_string(),
        "trap: it called `wasi:cli/environment#made-up`, which does not exist"
    );
}
