//! What every function can call.

use onward_execution::{Answer, Level, Request};
use onward_journal::Text;
use wasmtime::Result;

use super::{Data, Role, cut};
use crate::bindings::host;
use crate::stop::{Stop, named};

/// Bytes of randomness in one draw: it is recorded.
const RANDOM_BYTES_MAX: u32 = 4_096;
/// Bytes of a line of a log.
const LINE_BYTES_MAX: usize = 16 << 10;

impl host::Host for Data {
    async fn own(&mut self) -> Result<host::Context> {
        Ok(host::Context {
            execution: self.context.execution.to_string(),
            idempotency_key: self.context.idempotency_key.to_string(),
            attempt: self.context.attempt,
        })
    }

    async fn log(&mut self, level: host::Level, message: String) -> Result<()> {
        self.say(level.into(), message).await
    }

    async fn now(&mut self) -> Result<i64> {
        match &self.role {
            Role::Describe => Ok(0),
            Role::Task(served) => Ok(served.services.now().as_micros()),
            Role::Workflow(_) => {
                let time = |answer| if let Answer::Time(at) = answer { Some(at.as_micros()) } else { None };
                self.demand("now", Request::Now, time).await
            }
        }
    }

    async fn random(&mut self, length: u32) -> Result<Vec<u8>> {
        if length > RANDOM_BYTES_MAX {
            let message = format!("`random` draws at most {RANDOM_BYTES_MAX} bytes at a time, not {length}");
            return Err(Stop(named("too_large", message)).into());
        }
        let mut bytes = vec![0; length as usize];
        match &self.role {
            Role::Describe => {}
            Role::Task(served) => served.services.random(&mut bytes),
            Role::Workflow(_) => {
                let random = |answer| if let Answer::Random(bytes) = answer { Some(bytes) } else { None };
                let drawn = self.demand("random", Request::Random { length }, random).await?;
                if drawn.len() != bytes.len() {
                    return Err(Stop(crate::stop::defect("`random` was given another number of bytes")).into());
                }
                bytes.copy_from_slice(&drawn);
            }
        }
        Ok(bytes)
    }
}

impl Data {
    /// Logs a line on behalf of the guest.
    pub(crate) async fn say(&mut self, level: Level, message: String) -> Result<()> {
        let message = Text::from(cut(message, LINE_BYTES_MAX));
        self.note(level, &message);
        match &self.role {
            Role::Describe => Ok(()),
            Role::Task(served) => {
                served.services.log(&self.context, level, &message);
                Ok(())
            }
            Role::Workflow(_) => {
                let done = |answer| matches!(answer, Answer::Done).then_some(());
                self.demand("log", Request::Log { level, message }, done).await
            }
        }
    }
}

impl From<host::Level> for Level {
    fn from(level: host::Level) -> Self {
        match level {
            host::Level::Debug => Self::Debug,
            host::Level::Info => Self::Info,
            host::Level::Warn => Self::Warn,
            host::Level::Error => Self::Error,
        }
    }
}
