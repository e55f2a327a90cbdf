//! Run events to test and measure with: whole, keyed, and all different.

use std::fmt::Debug;
use std::str::FromStr;

use onward_journal::Payload;
use onward_runs::{Attempt, EventId, Extra, IdempotencyKey, KeyParts, RunEventWrite};

/// Makes events of runs of a thousand steps, one after the other.
#[derive(Debug)]
pub struct Events {
    name: String,
    made: u64,
    random: u64,
}

impl Events {
    /// Events of runs whose names begin with `name`.
    pub fn new(name: &str) -> Self {
        let seed = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Self { name: name.to_owned(), made: 0, random: seed }
    }

    /// The next `count` events, a thousand a run.
    pub fn take(&mut self, count: usize) -> Vec<RunEventWrite> {
        (0..count).map(|_| self.next_event()).collect()
    }

    fn next_event(&mut self) -> RunEventWrite {
        let (run, place) = (self.made / 1_000, self.made % 1_000);
        self.made += 1;
        let (event_type, step) = match place {
            0 => ("RunStarted", None),
            odd if odd % 2 == 1 => ("StepStarted", Some(odd / 2)),
            even => ("StepCompleted", Some((even - 1) / 2)),
        };
        let artifact = r#"{"artifacts":[{"uri":"s3://bucket/run/step/manifest.json","kind":"dbt-manifest"}]}"#;
        let mut event = RunEventWrite {
            event_id: self.event_id(),
            event_type: valid(event_type),
            emitted_at: valid("2026-03-01T12:00:00.123Z"),
            run_id: valid(&format!("{}-0d3c6a9e-4f0c-4a8e-{run:012}", self.name)),
            tenant_id: valid("tenant-1"),
            project_id: valid("analytics"),
            environment_id: valid("production"),
            plan_id: valid("plan_abc"),
            plan_version: valid("2"),
            engine_attempt_id: Attempt::FIRST,
            logical_attempt_id: Attempt::FIRST,
            idempotency_key: IdempotencyKey::from_bytes([0; 32]),
            step_id: step.map(|step| valid(&format!("model.orders_{step}"))),
            payload: (event_type == "StepCompleted").then(|| Payload::parse(artifact).expect("an object")),
            extra: Extra::NONE,
        };
        event.idempotency_key = KeyParts::of(&event, None).preimage().key();
        event
    }

    fn event_id(&mut self) -> EventId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.splitmix().to_be_bytes());
        bytes[8..].copy_from_slice(&self.splitmix().to_be_bytes());
        bytes[6] = 0x40 | (bytes[6] & 0x0f);
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        EventId::from_bytes(bytes).expect("the bits of version 4 are set")
    }

    const fn splitmix(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn valid<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("written as it should be")
}
