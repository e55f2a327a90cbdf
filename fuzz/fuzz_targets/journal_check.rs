//! Fuzzes `onward journal check` with untrusted journals: validation never panics, and gives the
//! same result after the journal was encoded and decoded.

#![no_main]

use libfuzzer_sys::fuzz_target;
use onward_journal::{Journal, JournalState, codec, jsonl};

fuzz_target!(|journal: &str| {
    let mut reader = jsonl::JournalLineReader::new();
    let own = reader.execution_id();
    let mut state = JournalState::new(own);
    let mut accepted = Vec::new();
    for line in journal.lines() {
        let Ok(event) = reader.read_line(line) else {
            break;
        };
        let _ = event.event.describe(own).to_string();
        if let Err(violation) = state.push_event(&event) {
            let _ = violation.to_string();
            break;
        }
        accepted.push(event);
    }
    if accepted.is_empty() {
        return;
    }
    let record = codec::encode_record(own, &accepted).expect("accepted events can be encoded");
    let decoded = codec::decode_record(own, &record).expect("an encoded record can be decoded");
    assert_eq!(decoded, accepted);
    let recovered = Journal::recover(own, decoded).expect("accepted events are accepted again");
    assert_eq!(recovered.execution_state(), state.execution_state());
});
