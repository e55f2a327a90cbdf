//! Records in storage: damage is detected, limits hold, and every released version stays readable.

use onward_base::Timestamp;
use onward_journal::codec::{
    FORMAT_VERSION, JournalCodecError, RECORD_AWAITED_MAX, decode_body, decode_record,
    encode_record,
};
use onward_journal::jsonl::{JournalLine, JournalLineReader};
use onward_journal::{AwaitKind, DeliveryGuarantee, Event, ExecutionId, JournalEvent};

use super::script::*;

const HEADER_BYTES: usize = 7;

fn sample() -> Vec<JournalEvent> {
    let wide: Vec<u32> = (1..200).collect();
    let mut events = vec![started(), created(0)];
    events.extend((1..200).map(scheduled));
    events.extend([
        awaiting(AwaitKind::Any, &wide),
        attempted(7, 1),
        completed(7, 70, 1),
        resumed(),
    ]);
    record(&events)
}

macro_rules! fixture {
    ($name:literal) => {
        (
            $name,
            include_bytes!(concat!("../fixtures/", $name, ".oj")),
            include_str!(concat!("../fixtures/", $name, ".jsonl")),
        )
    };
}

/// Every kind of event and every optional field, as written by version 1: first those it began
/// with, then those that were appended.
fn fixtures() -> Vec<(&'static str, &'static [u8], &'static str)> {
    vec![fixture!("v1/every-event"), fixture!("v1/later-fields")]
}

#[test]
fn records_of_every_released_version_are_read() {
    for (name, record, lines) in fixtures() {
        let mut reader = JournalLineReader::for_execution(own());
        let expected: Vec<JournalEvent> = lines
            .lines()
            .map(|line| reader.read_line(line).unwrap())
            .collect();
        assert_eq!(decode_record(own(), record).unwrap(), expected, "{name}");
        let written: String = expected
            .iter()
            .map(|event| format!("{}\n", JournalLine::new(event, own())))
            .collect();
        assert_eq!(written, lines, "{name}: the JSON form changed");
    }
}

#[test]
fn the_current_version_writes_its_fixtures_byte_for_byte() {
    let mut kinds = std::collections::BTreeSet::new();
    for (name, record, lines) in fixtures() {
        let mut reader = JournalLineReader::for_execution(own());
        let events: Vec<JournalEvent> = lines
            .lines()
            .map(|line| reader.read_line(line).unwrap())
            .collect();
        kinds.extend(events.iter().map(|event| event.event.kind()));
        let written = encode_record(own(), &events).unwrap();
        if record.is_empty() && std::env::var_os("UPDATE_EXPECT").is_some() {
            // A new fixture. One that exists is never rewritten: it is what an older Onward left
            // behind.
            let path = format!("{}/tests/fixtures/{name}.oj", env!("CARGO_MANIFEST_DIR"));
            std::fs::write(path, &written).unwrap();
            continue;
        }
        assert_eq!(written, record, "{name}");
    }
    assert_eq!(kinds.len(), 20, "the fixtures have every event");
}

#[test]
fn records_are_compact() {
    let events = record(&[
        started(),
        scheduled(0),
        awaiting_one(0),
        attempted(0, 1),
        completed(0, 5, 1),
        resumed(),
        scheduled(1),
        awaiting_one(1),
    ]);
    let step = encode_record(own(), &events[3..]).unwrap().len();
    assert!(step <= 72, "the five events of a step take {step} bytes");
    let wide = encode_record(own(), &sample()).unwrap().len();
    assert!(
        wide < 200 * 20,
        "199 awaited promises in a row are one run, not {wide} bytes"
    );
}

#[test]
fn every_flipped_bit_and_every_truncation_is_detected() {
    let events = record(&[
        started(),
        scheduled(0),
        awaiting_one(0),
        delivered("go", 1, 3),
    ]);
    let whole = encode_record(own(), &events).unwrap();
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_record(own(), &damaged).is_err(), "bit {bit}");
    }
    for length in 0..whole.len() {
        assert!(
            decode_record(own(), &whole[..length]).is_err(),
            "cut at {length}"
        );
    }
}

#[test]
fn a_record_belongs_to_its_execution() {
    let bytes = encode_record(own(), &sample()).unwrap();
    assert_eq!(
        decode_record(ExecutionId::default(), &bytes),
        Err(JournalCodecError::Checksum)
    );
}

#[test]
fn foreign_bytes_and_later_versions_are_distinguished() {
    let bytes = encode_record(own(), &sample()).unwrap();
    let with = |index: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[index] = byte;
        decode_record(own(), &bytes).unwrap_err()
    };
    assert_eq!(with(0, b'X'), JournalCodecError::NotARecord);
    assert_eq!(with(1, b'X'), JournalCodecError::NotARecord);
    assert_eq!(
        with(2, FORMAT_VERSION + 1),
        JournalCodecError::Version(FORMAT_VERSION + 1)
    );
    assert_eq!(
        decode_record(own(), b"OJ"),
        Err(JournalCodecError::NotARecord)
    );
    assert_eq!(
        decode_record(own(), b""),
        Err(JournalCodecError::NotARecord)
    );
}

#[test]
fn events_of_a_record_are_consecutive() {
    let mut events = sample();
    events.remove(3);
    assert_eq!(
        encode_record(own(), &events),
        Err(JournalCodecError::NotConsecutive {
            expected: 3,
            found: 4
        })
    );
    assert_eq!(
        decode_record(own(), &encode_record(own(), &[]).unwrap()),
        Ok(Vec::new())
    );
}

#[test]
fn ids_outside_of_the_execution_round_trip() {
    let foreign = ExecutionId::from_bytes([1; 32]);
    let ids = [
        own().root_promise(),
        own().child_promise(3).child_promise(4).unwrap(),
        foreign.root_promise(),
        foreign.child_promise(u32::MAX),
    ];
    let events = [
        Event::ExecutionAwaiting {
            waiting_on: ids.to_vec(),
            kind: AwaitKind::All,
        },
        Event::TimerFired {
            promise_id: ids[1].clone(),
        },
        awaiting(AwaitKind::Any, &[0, 1, 2, 5, 6, 9, u32::MAX - 1, u32::MAX]),
        awaiting(AwaitKind::Any, &[3, 2, 1, 1, 2, 3]),
    ];
    let events = record(&events);
    assert_eq!(
        decode_record(own(), &encode_record(own(), &events).unwrap()),
        Ok(events)
    );
}

#[test]
fn a_small_record_cannot_allocate_much_memory() {
    // [0, 0, [[0, [15, [[[0, 2^32-1]], [1, []]]]]]]: an await that names four billion promises.
    let greedy = [
        0x83, 0, 0, 0x81, 0x82, 0, 0x82, 15, 0x82, 0x81, 0x82, 0, 0x1a, 0xff, 0xff, 0xff, 0xff,
        0x82, 1, 0x80,
    ];
    let error = decode_body(own(), &greedy).unwrap_err();
    assert!(error.to_string().contains("too many promises"), "{error}");
    // An event list that claims 2^60 events.
    let many = [0x83, 0, 0, 0x9b, 0x10, 0, 0, 0, 0, 0, 0, 0];
    assert!(decode_body(own(), &many).is_err());
    let numbers: Vec<u32> = (0..=RECORD_AWAITED_MAX as u32).collect();
    let wide = record(&[awaiting(AwaitKind::Any, &numbers)]);
    assert_eq!(
        encode_record(own(), &wide),
        Err(JournalCodecError::TooManyAwaited)
    );
    let just = record(&[awaiting(AwaitKind::Any, &numbers[1..])]);
    assert_eq!(
        decode_record(own(), &encode_record(own(), &just).unwrap())
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn fields_that_later_versions_append_are_skipped() {
    // [5, 0, [[1000, [12, [3, "later"]], "later"]], "later"]: a timer that fired, with unknown
    // fields at every level.
    let later = [b"\x65later".as_slice()].concat();
    let body = [
        &[0x84, 5, 0, 0x81, 0x83, 0x19, 0x03, 0xe8, 0x82, 12, 0x82, 3][..],
        &later[..],
        &later[..],
        &later[..],
    ]
    .concat();
    let timestamp = Timestamp::EPOCH.plus_ms(1);
    assert_eq!(
        decode_body(own(), &body),
        Ok(vec![JournalEvent {
            sequence: 5,
            timestamp,
            event: fired(3)
        }])
    );
    let unknown_event = [0x83, 0, 0, 0x81, 0x82, 0, 0x82, 20, 0x80];
    assert!(
        decode_body(own(), &unknown_event).is_err(),
        "an event cannot be skipped"
    );
}

/// `[0, 0, [[0, [5, [0, 0, "f", "1", null, DELIVERY]]]]]`: an invoke.
fn invoke_delivered(delivery: u8) -> Vec<u8> {
    [
        &[
            0x83, 0, 0, 0x81, 0x82, 0, 0x82, 5, 0x86, 0, 0, 0x61, b'f', 0x61, b'1', 0xf6,
        ][..],
        &[delivery],
    ]
    .concat()
}

#[test]
fn an_unknown_delivery_guarantee_is_not_read_as_the_default() {
    let delivery = |byte| match &decode_body(own(), &invoke_delivered(byte))?[0].event {
        Event::InvokeScheduled { delivery, .. } => Ok::<_, JournalCodecError>(*delivery),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        [delivery(0), delivery(0xf6)],
        [
            Ok(DeliveryGuarantee::AtLeastOnce),
            Ok(DeliveryGuarantee::AtLeastOnce)
        ]
    );
    assert_eq!(delivery(1), Ok(DeliveryGuarantee::AtMostOnce));
    assert!(
        delivery(2)
            .unwrap_err()
            .to_string()
            .contains("unknown delivery")
    );
}

#[test]
fn an_error_is_retryable_by_default() {
    // [0, 0, [[0, [2, [["trap", "x", RETRYABLE]]]]]]: a failed execution.
    let error = |rest: &[u8]| {
        let fields = 2 + rest.len() as u8;
        let head = [0x83, 0, 0, 0x81, 0x82, 0, 0x82, 2, 0x81, 0x80 + fields];
        match &decode_body(own(), &[&head[..], b"\x64trap\x61x", rest].concat())?[0].event {
            Event::ExecutionFailed { error } => Ok::<_, JournalCodecError>(error.retryable),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        [error(&[]), error(&[0xf6]), error(&[0xf5])],
        [Ok(true), Ok(true), Ok(true)]
    );
    assert_eq!(error(&[0xf4]), Ok(false));
    assert!(
        error(&[1])
            .unwrap_err()
            .to_string()
            .contains("unknown retryable")
    );
}

#[test]
fn fields_with_default_values_are_not_written() {
    let body = |event: Event| {
        encode_record(own(), &record(&[event]))
            .unwrap()
            .split_off(HEADER_BYTES)
    };
    let failed = |error| body(Event::ExecutionFailed { error });
    assert_eq!(
        body(complete()),
        b"\x83\x00\x00\x81\x82\x00\x82\x01\x81\x610"
    );
    assert_eq!(
        body(scheduled(0)),
        b"\x83\x00\x00\x81\x82\x00\x82\x05\x84\x00\x00\x64task\x610"
    );
    assert_eq!(
        failed(error("x")),
        b"\x83\x00\x00\x81\x82\x00\x82\x02\x81\x82\x6auser_error\x61x"
    );
    assert_eq!(
        failed(error("x").into_permanent()),
        b"\x83\x00\x00\x81\x82\x00\x82\x02\x81\x83\x6auser_error\x61x\xf4"
    );
}

/// An invoke whose policy is `[null, 1, 1, 999, 0, [], null]`.
const POLICY_WITH_FACTOR_BELOW_ONE: [u8; 25] = [
    0x83, 0, 0, 0x81, 0x82, 0, 0x82, 5, 0x85, 0, 0, 0x61, b'f', 0x61, b'1', 0x87, 0xf6, 1, 1, 0x19,
    3, 231, 0, 0x80, 0xf6,
];

#[test]
fn policies_out_of_range_are_refused() {
    let mut body = POLICY_WITH_FACTOR_BELOW_ONE;
    assert!(
        decode_body(own(), &body)
            .unwrap_err()
            .to_string()
            .contains("factor out of range")
    );
    body[21] += 1;
    assert_eq!(decode_body(own(), &body).unwrap().len(), 1);
}

#[test]
fn maximum_numbers_round_trip() {
    let last = JournalEvent {
        sequence: u64::MAX,
        timestamp: Timestamp::EPOCH,
        event: resumed(),
    };
    assert_eq!(
        decode_record(
            own(),
            &encode_record(own(), std::slice::from_ref(&last)).unwrap()
        ),
        Ok(vec![last.clone()])
    );
    assert!(
        encode_record(own(), &[last.clone(), last])
            .is_ok_and(|bytes| decode_record(own(), &bytes).is_err())
    );
    let numbers = [u32::MAX - 2, u32::MAX - 1, u32::MAX];
    let run = record(&[awaiting(AwaitKind::Any, &numbers)]);
    assert_eq!(
        decode_record(own(), &encode_record(own(), &run).unwrap()),
        Ok(run)
    );
}

#[test]
fn malformed_bodies_are_refused() {
    let whole = encode_record(own(), &sample()).unwrap();
    let body = &whole[HEADER_BYTES..];
    assert!(decode_body(own(), body).is_ok());
    assert!(
        decode_body(own(), &[body, &[0]].concat()).is_err(),
        "bytes after the end"
    );
    for length in 0..body.len() {
        assert!(decode_body(own(), &body[..length]).is_err());
    }
    for (what, bytes) in [
        ("too short", &[0x82, 0, 0][..]),
        ("unknown length", &[0x9f, 0, 0, 0x80, 0xff]),
        (
            "sequence overflow",
            &[
                0x83, 0x1b, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0x82, 0x82, 0, 0x82, 16,
                0x80, 0x82, 0, 0x82, 16, 0x80,
            ],
        ),
        (
            "timestamp out of range",
            &[
                0x83, 0, 0x1b, 127, 255, 255, 255, 255, 255, 255, 255, 0x81, 0x82, 0, 0x82, 16,
                0x80,
            ],
        ),
        (
            "timestamp overflow",
            &[
                0x83, 0, 0x1b, 127, 255, 255, 255, 255, 255, 255, 255, 0x81, 0x82, 1, 0x82, 16,
                0x80,
            ],
        ),
        (
            "payload that is not JSON",
            &[0x83, 0, 0, 0x81, 0x82, 0, 0x82, 1, 0x81, 0x61, b'{'],
        ),
        (
            "id that is too deep",
            &[
                &[0x83, 0, 0, 0x81, 0x82, 0, 0x82, 12, 0x81, 0x98, 66, 0xf6][..],
                &[0; 65],
            ]
            .concat(),
        ),
        (
            "policy with a factor below one",
            &POLICY_WITH_FACTOR_BELOW_ONE,
        ),
        (
            "id of no length",
            &[0x83, 0, 0, 0x81, 0x82, 0, 0x82, 12, 0x81, 0x80],
        ),
        (
            "run beyond the last number",
            &[
                0x83, 0, 0, 0x81, 0x82, 0, 0x82, 15, 0x82, 0x81, 0x82, 0x1a, 255, 255, 255, 255, 2,
                0x82, 1, 0x80,
            ],
        ),
    ] {
        assert!(decode_body(own(), bytes).is_err(), "{what}");
    }
}
