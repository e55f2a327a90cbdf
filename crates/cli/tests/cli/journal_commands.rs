//! `onward journal check`: output and exit codes.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use crate::{onward, run_with_input, text};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/journals")
        .join(name)
}

/// Checks a journal from standard input.
fn check(args: &[&str], journal: &[u8]) -> Output {
    run_with_input(
        onward(&[&["journal", "check", "-"], args].concat()),
        journal,
    )
}

const STARTED: &str = r#"{"sequence":0,"timestamp":"2026-03-01T12:00:00Z","event":"ExecutionStarted","component_digest":"sha256:0707070707070707070707070707070707070707070707070707070707070707","input":null}"#;

#[test]
fn the_examples_are_valid_and_printed_as_tables() {
    for (name, rows, state) in [
        ("order.jsonl", 25, "Completed"),
        ("signal-buffered.jsonl", 9, "Completed"),
        ("signal-blocking.jsonl", 11, "Completed"),
        ("signal-timeout.jsonl", 10, "Completed"),
        ("cancelled-with-refund.jsonl", 15, "Cancelled"),
    ] {
        let output = onward(&["journal", "check", example(name).to_str().unwrap()])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}");
        let table: Vec<&str> = text(&output.stdout).lines().collect();
        assert_eq!(table.len(), rows + 2);
        assert!(table[0].starts_with("seq  event") && table[0].ends_with("state"));
        assert!(table[rows + 1].ends_with(state));
        assert!(
            !text(&output.stdout).contains('\x1b'),
            "no colours without a terminal"
        );
        assert_eq!(
            text(&output.stderr),
            format!("valid: {rows} events, {state}\n")
        );
    }
}

#[test]
fn json_prints_one_object_in_the_public_form() {
    let output = onward(&[
        "journal",
        "check",
        "--json",
        example("order.jsonl").to_str().unwrap(),
    ])
    .output()
    .unwrap();
    assert_eq!(
        text(&output.stdout),
        "{\"ok\":true,\"events\":25,\"state\":\"Completed\"}\n"
    );
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
}

#[test]
fn a_violation_names_rule_and_event_and_exits_with_1() {
    let fired = r#"{"sequence":1,"timestamp":"2026-03-01T12:00:01Z","event":"TimerFired","promise_id":"root.0"}"#;
    let journal = format!("{STARTED}\n\n{fired}\n");
    let output = check(&["--json"], journal.as_bytes());
    assert_eq!(
        text(&output.stdout),
        "{\"ok\":false,\"violation\":\"CF-1\",\"sequence\":1,\"message\":\"TimerFired: no timer root.0 was scheduled\"}\n"
    );
    assert_eq!(output.status.code(), Some(1));
    let output = check(&[], journal.as_bytes());
    assert!(text(&output.stdout).ends_with("✗ CF-1\n"));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("CF-1 (timer_fired_requires_scheduled)") && stderr.contains("line 3"),
        "{stderr}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn an_empty_journal_is_a_violation() {
    for empty in ["", "\n \n"] {
        let output = check(&["--json"], empty.as_bytes());
        assert!(
            text(&output.stdout).starts_with("{\"ok\":false,\"violation\":\"S-2\",\"sequence\":0,")
        );
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn unreadable_input_is_reported_with_its_line_and_exits_with_2() {
    let journal = format!("{STARTED}\n{{\"sequence\":1}}\n");
    let output = check(&[], journal.as_bytes());
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "unreadable: line 2: field `timestamp` is missing: expected an RFC 3339 instant such as \"2026-03-01T12:00:00Z\"\n"
    );
    let output = check(&["--json"], b"\xff\n");
    assert!(text(&output.stdout).starts_with("{\"ok\":false,\"line\":1,\"message\":\"not UTF-8"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_missing_file_is_named() {
    let output = onward(&["journal", "check", "no/such/journal"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("error: cannot open no/such/journal: "));
}

#[test]
fn json_reports_an_unreadable_file() {
    let folder = example("");
    for (path, reason) in [
        ("no/such/journal", "cannot open no/such/journal"),
        (folder.to_str().unwrap(), "cannot read "),
    ] {
        let output = onward(&["journal", "check", "--json", path])
            .output()
            .unwrap();
        let printed = text(&output.stdout);
        assert!(
            printed.starts_with(&format!("{{\"ok\":false,\"message\":\"{reason}")),
            "{printed}"
        );
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), ""));
    }
}

#[test]
fn a_byte_order_mark_is_skipped() {
    assert_eq!(
        check(&["-q"], format!("\u{feff}{STARTED}\n").as_bytes())
            .status
            .code(),
        Some(0)
    );
}

#[test]
fn a_failed_write_to_standard_error_does_not_crash() {
    for (path, code) in [
        ("order.jsonl", 0),
        ("broken/refunded-twice.jsonl", 1),
        ("no-such-journal", 2),
    ] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let mut command = onward(&[
            "journal",
            "check",
            "--quiet",
            example(path).to_str().unwrap(),
        ]);
        assert_eq!(
            command.stderr(full).status().unwrap().code(),
            Some(code),
            "{path}"
        );
    }
}

#[test]
fn a_second_refund_is_a_violation() {
    let path = example("broken/refunded-twice.jsonl");
    let output = onward(&["journal", "check", "--json", path.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(
        text(&output.stdout).starts_with("{\"ok\":false,\"violation\":\"SE-4\",\"sequence\":13,")
    );
}

#[test]
fn an_overlong_line_is_rejected_without_buffering_it() {
    let output = check(&["--quiet"], &vec![b'1'; (16 << 20) + 2]);
    assert_eq!(
        text(&output.stderr),
        "unreadable: line 1: longer than 16 MiB\n"
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn quiet_prints_only_the_result() {
    let output = check(&["-q"], STARTED.as_bytes());
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("", "valid: 1 events, Running\n")
    );
}

#[test]
fn a_closed_pipe_is_not_a_crash() {
    let mut journal = format!("{STARTED}\n");
    for sequence in 1..20_000 {
        journal += &format!(
            "{{\"sequence\":{sequence},\"timestamp\":\"2026-03-01T12:00:00Z\",\"event\":\"SignalDelivered\",\
             \"signal_name\":\"go\",\"payload\":1,\"delivery_id\":{sequence}}}\n"
        );
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), journal).unwrap();
    let mut command = onward(&["journal", "check", file.path().to_str().unwrap()]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (text(&output.stderr), output.status.code()),
        ("", Some(141))
    );
}

#[test]
fn control_characters_of_a_journal_do_not_reach_the_terminal() {
    let hostile = STARTED.replace("\"input\":null", r#""input":"\u001b[2J""#);
    let cancel = "{\"sequence\":1,\"timestamp\":\"2026-03-01T12:00:00Z\",\"event\":\"CancelRequested\",\"reason\":\"\\u001b[2J\"}";
    let output = check(&[], format!("{hostile}\n{cancel}\n").as_bytes());
    assert!(
        !text(&output.stdout).contains('\x1b'),
        "{}",
        text(&output.stdout)
    );
    assert_eq!(output.status.code(), Some(0));

    // Forced colours ensure that escape sequences are not stripped on the way to the terminal.
    let line = "{\"sequence\":0,\"timestamp\":\"2026-03-01T12:00:00Z\",\"event\":\"TimerFired\",\"promise_id\":\"\\u001b]0;title\\u0007\"}";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), line).unwrap();
    let mut command = onward(&["journal", "check", file.path().to_str().unwrap()]);
    let output = command.env("CLICOLOR_FORCE", "1").output().unwrap();
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("is not an id") && !stderr.contains("\x1b]") && !stderr.contains('\x07'),
        "{stderr}"
    );
}

#[test]
fn clicolor_force_enables_colours() {
    let mut command = onward(&["journal", "check", example("order.jsonl").to_str().unwrap()]);
    let output = command.env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(text(&output.stdout).contains("\x1b[33mBlocked\x1b[0m"));
}

#[test]
fn help_explains_the_exit_codes() {
    let output = onward(&["journal", "check", "--help"]).output().unwrap();
    let help = text(&output.stdout);
    assert!(
        help.contains("0 the journal is valid, 1 it breaks a rule, 2 it cannot be read"),
        "{help}"
    );
}
