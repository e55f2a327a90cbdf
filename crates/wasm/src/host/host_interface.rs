//! The interface `host`, which workflows and tasks can call.

use onward_base::SharedText;
use onward_execution::{GuestLogLevel, GuestRequest, GuestResponse};
use wasmtime::Result;

use super::{GuestState, InstanceRole, truncate_text};
use crate::bindings::host;
use crate::guest_error::{GuestStop, permanent_error};

/// Maximum number of random bytes in one call of `random`, because a workflow's journal records
/// them.
const RANDOM_BYTES_MAX: u32 = 4_096;
/// Maximum length of a log line in bytes; a longer line is truncated.
const LINE_BYTES_MAX: usize = 16 << 10;

impl host::Host for GuestState {
    async fn own(&mut self) -> Result<host::Context> {
        Ok(host::Context {
            execution: self.context.execution.to_string(),
            idempotency_key: self.context.idempotency_key.to_string(),
            attempt: self.context.attempt,
        })
    }

    async fn log(&mut self, level: host::Level, message: String) -> Result<()> {
        self.log_guest_line(level.into(), message).await
    }

    async fn now(&mut self) -> Result<i64> {
        self.yield_after_copy(0).await;
        match &self.role {
            InstanceRole::Describe { .. } => Ok(0),
            InstanceRole::Task(served) => Ok(served.services.now().as_micros()),
            InstanceRole::Workflow(_) => {
                let time = |answer| {
                    if let GuestResponse::Time(at) = answer {
                        Some(at.as_micros())
                    } else {
                        None
                    }
                };
                self.request_or_stop("now", GuestRequest::ReadClock, time)
                    .await
            }
        }
    }

    async fn random(&mut self, length: u32) -> Result<Vec<u8>> {
        if length > RANDOM_BYTES_MAX {
            let message = format!(
                "`random` returns at most {RANDOM_BYTES_MAX} bytes at a time, requested: {length}"
            );
            return Err(GuestStop(permanent_error("too_large", message)).into());
        }
        self.yield_after_copy(length as usize).await;
        let mut bytes = vec![0; length as usize];
        match &self.role {
            InstanceRole::Describe { .. } => {}
            InstanceRole::Task(served) => served.services.fill_random(&mut bytes),
            InstanceRole::Workflow(_) => {
                let random = |answer| {
                    if let GuestResponse::Random(bytes) = answer {
                        Some(bytes)
                    } else {
                        None
                    }
                };
                let drawn = self
                    .request_or_stop("random", GuestRequest::Random { length }, random)
                    .await?;
                if drawn.len() != bytes.len() {
                    return Err(GuestStop(crate::guest_error::host_defect_error(
                        "`random` received the wrong number of bytes",
                    ))
                    .into());
                }
                bytes.copy_from_slice(&drawn);
            }
        }
        Ok(bytes)
    }
}

impl GuestState {
    /// Logs a line on behalf of the guest and records it if it may be part of a panic message.
    pub(crate) async fn log_guest_line(
        &mut self,
        level: GuestLogLevel,
        message: String,
    ) -> Result<()> {
        self.yield_after_copy(message.len()).await;
        let message = SharedText::from(truncate_text(message, LINE_BYTES_MAX));
        self.record_panic_line(level, &message);
        match &self.role {
            InstanceRole::Describe { .. } => Ok(()),
            InstanceRole::Task(served) => {
                served.services.log_line(&self.context, level, &message);
                Ok(())
            }
            InstanceRole::Workflow(_) => {
                let done = |answer| matches!(answer, GuestResponse::Done).then_some(());
                self.request_or_stop("log", GuestRequest::Log { level, message }, done)
                    .await
            }
        }
    }
}

impl From<host::Level> for GuestLogLevel {
    fn from(level: host::Level) -> Self {
        match level {
            host::Level::Debug => Self::Debug,
            host::Level::Info => Self::Info,
            host::Level::Warn => Self::Warn,
            host::Level::Error => Self::Error,
        }
    }
}
