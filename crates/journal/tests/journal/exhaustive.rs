//! All small journals: every event of a small alphabet is tried after every legal journal up to a
//! length, and the rules and the oracle must agree each time.

use std::collections::BTreeMap;

use onward_base::Timestamp;
use onward_journal::{AwaitKind, Event, JournalEvent, JournalState, Rule};

use super::oracle;
use super::script::*;

/// Two promises, two attempts, two payloads, one signal, a join set: enough for every rule but the
/// policy's limits.
fn alphabet() -> Vec<Event> {
    let mut events = vec![
        started(),
        complete(),
        fail(),
        cancel_requested(),
        cancelled(),
        resumed(),
    ];
    for number in 0..2 {
        events.extend([
            scheduled(number),
            random(number),
            timer(number),
            fired(number),
            created(number),
        ]);
        events.extend([
            attempted(number, 1),
            attempted(number, 2),
            retrying(number, 1),
        ]);
        events.extend([
            completed(number, 0, 1),
            completed(number, 0, 2),
            failed(number, 1),
            failed(number, 2),
        ]);
        events.extend([awaiting_one(number), awaiting_signal(number, "go")]);
        events.extend([
            awaiting_signal_until(number, "go", 1 - number),
            awaiting_signal_until(number, "go", number),
        ]);
        events.push(retrying_after(number, 1, error("never").into_permanent()));
        events.extend([
            received(number, "go", 1, 0),
            received(number, "go", 2, 0),
            received(number, "go", 1, 1),
        ]);
        events.extend([
            submitted(number, 1 - number),
            taken(number, 1 - number, 0),
            taken(number, 1 - number, 1),
        ]);
    }
    events.extend([delivered("go", 1, 0), delivered("go", 2, 0)]);
    events.extend([
        awaiting(AwaitKind::Any, &[0, 1]),
        awaiting(AwaitKind::All, &[0, 1]),
    ]);
    events
}

struct Search {
    alphabet: Vec<Event>,
    judged: u64,
    legal: u64,
    refused: BTreeMap<Rule, u64>,
}

impl Search {
    fn extend(&mut self, history: &mut Vec<JournalEvent>, fold: &JournalState, length: usize) {
        for index in 0..self.alphabet.len() {
            let sequence = history.len() as u64;
            let event = JournalEvent {
                sequence,
                timestamp: Timestamp::EPOCH,
                event: self.alphabet[index].clone(),
            };
            let broken = oracle::broken(history, &event);
            self.judged += 1;
            match fold.check_event(&event) {
                Err(violation) => {
                    assert!(
                        broken.contains(&violation.rule),
                        "{violation} but the oracle reports {broken:?}"
                    );
                    *self.refused.entry(violation.rule).or_default() += 1;
                }
                Ok(()) => {
                    assert!(
                        broken.is_empty(),
                        "{event:?} after {history:?} breaks {broken:?}"
                    );
                    self.legal += 1;
                    if history.len() + 1 < length {
                        let mut next = fold.clone();
                        next.push_event(&event).unwrap();
                        history.push(event);
                        self.extend(history, &next, length);
                        history.pop();
                    }
                }
            }
        }
    }
}

#[test]
fn the_rules_and_the_oracle_agree_on_every_small_journal() {
    let length = std::env::var("ONWARD_EXHAUSTIVE")
        .ok()
        .and_then(|length| length.parse().ok())
        .unwrap_or(8);
    let mut search = Search {
        alphabet: alphabet(),
        judged: 0,
        legal: 0,
        refused: BTreeMap::new(),
    };
    search.extend(&mut Vec::new(), &JournalState::new(own()), length);
    println!(
        "{} events judged after {} legal journals of up to {length} events",
        search.judged, search.legal
    );
    println!("{:?}", search.refused);
    assert!(
        search.judged > 1_000_000 && search.refused.len() > 25,
        "the alphabet no longer reaches the rules"
    );
}
