//! Fuzzes the decoder with untrusted records: decoding never panics, and accepted records are
//! encoded to the same events again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use onward_journal::{ExecutionId, Journal, codec, jsonl};

const HEADER_BYTES: usize = 7;

fuzz_target!(|record: &[u8]| {
    // The execution of the fixtures, which are the seeds: each is a whole record.
    let own = ExecutionId::from_bytes([0xee; 32]);
    let _ = codec::decode_record(own, record);
    let body = record.get(HEADER_BYTES..).unwrap_or_default();
    let Ok(events) = codec::decode_body(own, body) else {
        return;
    };
    let encoded = codec::encode_record(own, &events).expect("decoded events can be encoded");
    assert_eq!(codec::decode_record(own, &encoded).as_ref(), Ok(&events));
    for event in &events {
        let line = jsonl::JournalLine::new(event, own).to_string();
        assert_eq!(
            jsonl::JournalLineReader::for_execution(own)
                .read_line(&line)
                .as_ref(),
            Ok(event),
            "{line}"
        );
    }
    let _ = Journal::recover(own, events);
});
