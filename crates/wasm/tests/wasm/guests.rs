//! Guests as WAT text: two functions, the workflow `flow` and the task `job`, with one body.

/// Two functions without schemas, as `describe` returns them.
const DESCRIBED: &str = r#"
    (data (i32.const 16) "\20\00\00\00\02\00\00\00")
    (data (i32.const 32) "\c8\00\00\00\04\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00")
    (data (i32.const 56) "\cc\00\00\00\03\00\00\00\01\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00")
    (data (i32.const 200) "flowjob")"#;

/// A component whose `call` has this body. Parameters: `$f`, `$f-length`, `$input`,
/// `$input-length`. There is `$ok` to return a text; the host's answers and results can be at 2048,
/// where a failure of one is a failure of the other; texts can be at 300.
pub(crate) fn with_call(body: &str) -> Vec<u8> {
    component(body, DESCRIBED)
}

/// A component whose list of functions is at 16.
pub(crate) fn with_functions(described: &str) -> Vec<u8> {
    component("(i32.const 2048)", described)
}

fn component(body: &str, described: &str) -> Vec<u8> {
    let text = include_str!("guest.wat")
        .replace(";;BODY", body)
        .replace(";;DESCRIBED", described);
    parse(&text)
}

/// A component from its whole text.
pub(crate) fn parse(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

/// Sets a timer, waits for it, and returns what it ends with.
pub(crate) const TIMER: &str = r#"
    (call $timer (i64.const 5) (i32.const 2048))
    (if (i32.eqz (i32.load8_u (i32.const 2048)))
        (then (call $await-one (i32.load (i32.const 2052)) (i32.const 2048))))
    (i32.const 2048)"#;

/// Returns its input.
pub(crate) const ECHO: &str = "(call $ok (local.get $input) (local.get $input-length))";

/// Never returns.
pub(crate) const LOOP: &str = "(loop (br 0)) (unreachable)";

/// Grows its memory until that is refused, then traps.
pub(crate) const BOMB: &str = r#"
    (loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
    (unreachable)"#;
