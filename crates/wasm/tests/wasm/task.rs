//! Tasks under tokio, as the engine runs them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_base::Timestamp;
use onward_execution::GuestLogLevel;
use onward_journal::{ErrorKind, InvokeResult};
use onward_wasm::{
    CallContext, ComponentEgress, GuestHttpClient, HttpConfig, TaskCall, TaskLimits, TaskServices,
};

use crate::{guests, load, own, payload};

/// Task services with a fixed time, random bytes of 7, and a log in memory.
#[derive(Default)]
pub(crate) struct Fixed(Mutex<Vec<String>>);

impl TaskServices for Fixed {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(49).unwrap()
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        bytes.fill(b'7');
    }

    fn log_line(&self, context: &CallContext, level: GuestLogLevel, message: &str) {
        self.0
            .lock()
            .unwrap()
            .push(format!("{} {level:?} {message}", context.execution));
    }
}

fn nowhere() -> ComponentEgress {
    ComponentEgress {
        http: GuestHttpClient::new(HttpConfig::default()).unwrap(),
        hosts: [].into(),
    }
}

pub(crate) fn call(limits: TaskLimits) -> TaskCall {
    TaskCall {
        owner: "tenant".into(),
        context: own(),
        limits,
        http: nowhere(),
        services: Arc::new(Fixed::default()),
    }
}

async fn job(body: &str, limits: TaskLimits) -> InvokeResult {
    load(&guests::with_call(body))
        .run_task("job", &payload("[1,2]"), call(limits))
        .await
}

#[tokio::test]
async fn a_task_returns_its_input() {
    assert_eq!(
        job(guests::ECHO, TaskLimits::default()).await,
        Ok(payload("[1,2]"))
    );
}

#[tokio::test]
async fn a_busy_task_times_out_and_others_continue() {
    let limits = TaskLimits {
        timeout: Duration::from_millis(200),
        ..TaskLimits::default()
    };
    let busy = job(guests::LOOP, limits);
    let others = async {
        for _ in 0..10 {
            assert_eq!(
                job(guests::ECHO, TaskLimits::default()).await,
                Ok(payload("[1,2]"))
            );
        }
    };
    let (result, ()) = tokio::join!(busy, others);
    let error = result.unwrap_err();
    assert_eq!(
        (error.kind.clone(), error.to_string()),
        (
            ErrorKind::Timeout,
            "timeout: no result in 200 ms".to_owned()
        )
    );
}

#[tokio::test]
async fn dropping_a_task_cancels_it_and_frees_its_slot() {
    for _ in 0..40 {
        let busy = job(guests::LOOP, TaskLimits::default());
        assert!(
            tokio::time::timeout(Duration::from_millis(1), busy)
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn a_memory_bomb_is_an_error() {
    let limits = TaskLimits {
        memory_bytes_max: 1 << 20,
        ..TaskLimits::default()
    };
    let error = job(guests::BOMB, limits).await.unwrap_err();
    assert!(error.message.contains("the limit is 1048576"), "{error}");
}

#[tokio::test]
async fn operations_of_workflows_are_refused_in_tasks() {
    let again =
        "(call $continue-as-new (local.get $input) (local.get $input-length)) (unreachable)";
    for body in [guests::TIMER, "(call $is-cancelled)", again] {
        let error = job(body, TaskLimits::default()).await.unwrap_err();
        assert_eq!(error.kind.as_str(), "not_in_task");
    }
}

#[tokio::test]
async fn the_caller_supplies_time_randomness_and_log() {
    let body = r#"
        (call $log (i32.const 1) (i32.const 300) (i32.const 15))
        (call $random (i32.const 1) (i32.const 2048))
        (i32.store8 (i32.const 301) (i32.load8_u (i32.load (i32.const 2048))))
        (i32.store8 (i32.const 300) (i32.wrap_i64 (call $now)))
        (call $ok (i32.const 300) (i32.const 2))"#;
    let services = Arc::new(Fixed::default());
    let call = TaskCall {
        services: services.clone(),
        ..call(TaskLimits::default())
    };
    let result = load(&guests::with_call(body))
        .run_task("job", &payload("1"), call)
        .await;
    assert_eq!(result, Ok(payload("17")));
    assert_eq!(
        *services.0.lock().unwrap(),
        ["execution-1 Info the end is near"]
    );
}

#[tokio::test]
async fn only_tasks_run_as_tasks() {
    let component = load(&guests::with_call(guests::ECHO));
    let error = component
        .run_task("flow", &payload("1"), call(TaskLimits::default()))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown_function: `flow` is a workflow, not a task"
    );
}

#[tokio::test]
async fn a_large_payload_is_refused() {
    let limits = TaskLimits {
        payload_bytes_max: 4,
        ..TaskLimits::default()
    };
    assert_eq!(
        job(guests::ECHO, limits).await.unwrap_err().kind.as_str(),
        "too_large"
    );
    let error = job(
        "(call $ok (i32.const 300) (i32.const 15))",
        TaskLimits {
            payload_bytes_max: 10,
            ..limits
        },
    )
    .await;
    assert_eq!(error.unwrap_err().kind.as_str(), "too_large");
}
