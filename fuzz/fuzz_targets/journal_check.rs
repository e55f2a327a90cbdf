//! Journals that anybody may hand to `onward journal check`: judging never panics, and the judge
//! agrees with itself after the journal went through storage.

#![no_main]

use libfuzzer_sys::fuzz_target;
use onward_journal::{Journal, JournalState, codec, jsonl};

fuzz_target!(|journal: &str| {
    let mut reader = jsonl::JournalLineReader::new();
    let own = reader.execution_id();
    let mut state = JournalState::new(own);
    let mut accepted = Vec::new();
    for line in journal.lines() {
        let Ok(event) = reader.read_line(line) else { break };
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
    let record = codec::encode_record(own, &accepted).expect("accepted events can be stored");
    let decoded = codec::decode_record(own, &record).expect("what was stored can be read");
    assert_eq!(decoded, accepted);
    let recovered = Journal::recover(own, decoded).expect("what was accepted is accepted again");
    assert_eq!(recovered.execution_state(), state.execution_state());
});
