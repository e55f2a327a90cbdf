//! Generates run events for tests and benchmarks: complete, with valid idempotency keys, and all
//! distinct.

use std::fmt::Debug;
use std::str::FromStr;

use onward_base::Payload;
use onward_runs::{
    AttemptNumber, ExtraFields, IdempotencyKey, IdempotencyKeyParts, RunEventId, RunEventWrite,
};

/// Generates the events of one run after another, 1,000 events per run. The same name gives the
/// same events.
#[derive(Debug)]
pub struct RunEventGenerator {
    name: String,
    generated: u64,
    random: u64,
}

impl RunEventGenerator {
    /// Creates a generator of runs whose ids start with `name`.
    pub fn new(name: &str) -> Self {
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Self {
            name: name.to_owned(),
            generated: 0,
            random: seed,
        }
    }

    /// Returns the next `count` events; every 1,000 of them form a run.
    pub fn next_events(&mut self, count: usize) -> Vec<RunEventWrite> {
        (0..count).map(|_| self.next_event()).collect()
    }

    fn next_event(&mut self) -> RunEventWrite {
        let (run, place) = (self.generated / 1_000, self.generated % 1_000);
        self.generated += 1;
        let (event_type, step) = match place {
            0 => ("RunStarted", None),
            odd if odd % 2 == 1 => ("StepStarted", Some(odd / 2)),
            even => ("StepCompleted", Some((even - 1) / 2)),
        };
        let artifact =
            r#"{"artifacts":[{"uri":"s3://bucket/run/step/manifest.json","kind":"dbt-manifest"}]}"#;
        let mut event = RunEventWrite {
            event_id: self.random_event_id(),
            event_type: parse_valid(event_type),
            emitted_at: parse_valid("2026-03-01T12:00:00.123Z"),
            run_id: parse_valid(&format!("{}-0d3c6a9e-4f0c-4a8e-{run:012}", self.name)),
            tenant_id: parse_valid("tenant-1"),
            project_id: parse_valid("analytics"),
            environment_id: parse_valid("production"),
            plan_id: parse_valid("plan_abc"),
            plan_version: parse_valid("2"),
            engine_attempt_id: AttemptNumber::FIRST,
            logical_attempt_id: AttemptNumber::FIRST,
            idempotency_key: IdempotencyKey::from_bytes([0; 32]),
            step_id: step.map(|step| parse_valid(&format!("model.orders_{step}"))),
            payload: (event_type == "StepCompleted")
                .then(|| Payload::parse(artifact).expect("an object")),
            extra: ExtraFields::NONE,
        };
        event.idempotency_key = IdempotencyKeyParts::from_event(&event, None)
            .current_preimage()
            .compute_key();
        event
    }

    fn random_event_id(&mut self) -> RunEventId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next_random().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next_random().to_be_bytes());
        bytes[6] = 0x40 | (bytes[6] & 0x0f);
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        RunEventId::from_bytes(bytes).expect("the bits of version 4 are set")
    }

    const fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn parse_valid<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("valid test data")
}
