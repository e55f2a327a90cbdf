//! Events and steps as the model in `spec/` has them: read from Quint traces and from the corpus,
//! and written as Quint.

use std::fmt::Write as _;

use onward_base::Timestamp;
use onward_journal::{AwaitKind, Event, JournalEvent};
use serde_json::Value;

use super::script::*;

/// An event as the model has it: a flat record, -1 or empty where a field does not apply.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Record {
    pub(crate) tag: String,
    pub(crate) seq: i64,
    pub(crate) pid: i64,
    pub(crate) set: i64,
    pub(crate) attempt: i64,
    pub(crate) value: i64,
    pub(crate) ok: bool,
    pub(crate) signal: String,
    pub(crate) delivery: i64,
    pub(crate) waiting: Vec<i64>,
    pub(crate) kind: String,
}

/// An event that was tried, and its outcome: the rule that refused it or nothing, and the state
/// then.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Step {
    pub(crate) record: Record,
    pub(crate) answer: String,
    pub(crate) status: String,
}

impl Record {
    pub(crate) fn from_itf(value: &Value) -> Self {
        let int = |name: &str| integer(&value[name]);
        let text = |name: &str| value[name].as_str().unwrap().to_owned();
        Self {
            tag: text("tag"),
            seq: int("seq"),
            pid: int("pid"),
            set: int("set"),
            attempt: int("attempt"),
            value: int("value"),
            ok: value["ok"].as_bool().unwrap(),
            signal: text("signal"),
            delivery: int("delivery"),
            waiting: value["waiting"]
                .as_array()
                .unwrap()
                .iter()
                .map(integer)
                .collect(),
            kind: text("kind"),
        }
    }

    /// The event it stands for.
    pub(crate) fn event(&self) -> JournalEvent {
        let Self {
            attempt,
            value,
            delivery,
            signal,
            ..
        } = self;
        let (pid, of_set) = (self.pid as u32, self.set as u32);
        let (attempt, value, delivery) = (*attempt as u32, *value as u32, *delivery as u64);
        let result = if self.ok {
            Ok(payload(value))
        } else {
            Err(error(&value.to_string()))
        };
        let waiting: Vec<u32> = self.waiting.iter().map(|number| *number as u32).collect();
        let event = match self.tag.as_str() {
            "ExecutionStarted" => started(),
            "ExecutionCompleted" => complete(),
            "ExecutionFailed" => fail(),
            "CancelRequested" => cancel_requested(),
            "ExecutionCancelled" => cancelled(),
            "InvokeScheduled" => scheduled(pid),
            "InvokeStarted" => attempted(pid, attempt),
            "InvokeCompleted" => Event::InvokeCompleted {
                promise_id: promise(pid),
                result,
                attempt,
            },
            "InvokeRetrying" => retrying(pid, attempt),
            "RandomGenerated" => random(pid),
            "TimeRecorded" => clock(pid),
            "TimerScheduled" => timer(pid),
            "TimerFired" => fired(pid),
            "SignalDelivered" => delivered(signal, delivery, value),
            "SignalReceived" => received(pid, signal, delivery, value),
            "ExecutionAwaiting" => awaiting(self.await_kind(), &waiting),
            "ExecutionResumed" => resumed(),
            "JoinSetCreated" => created(of_set),
            "JoinSetSubmitted" => submitted(of_set, pid),
            "JoinSetAwaited" => taken_result(of_set, pid, result),
            other => panic!("the model has an event {other}"),
        };
        JournalEvent {
            sequence: self.seq as u64,
            timestamp: Timestamp::EPOCH,
            event,
        }
    }

    fn await_kind(&self) -> AwaitKind {
        match self.kind.as_str() {
            "single" => AwaitKind::Single,
            "any" => AwaitKind::Any,
            "all" => AwaitKind::All,
            _ => AwaitKind::Signal(name(&self.signal)),
        }
    }

    /// As a Quint expression.
    pub(crate) fn quint(&self) -> String {
        let Self {
            tag,
            seq,
            pid,
            set,
            attempt,
            value,
            ok,
            signal,
            delivery,
            waiting,
            kind,
        } = self;
        format!(
            "{{ tag: \"{tag}\", seq: {seq}, pid: {pid}, set: {set}, attempt: {attempt}, value: {value}, ok: {ok}, \
             signal: \"{signal}\", delivery: {delivery}, waiting: {waiting:?}, kind: \"{kind}\" }}"
        )
    }

    /// A short text form, for the corpus.
    pub(crate) fn write(&self) -> String {
        let mut words = self.tag.clone();
        let numbers = [
            ("seq", self.seq),
            ("pid", self.pid),
            ("set", self.set),
            ("attempt", self.attempt),
        ];
        for (name, number) in numbers
            .into_iter()
            .chain([("value", self.value), ("delivery", self.delivery)])
        {
            if number != -1 {
                write!(words, " {name}={number}").unwrap();
            }
        }
        for (name, text) in [("signal", &self.signal), ("kind", &self.kind)] {
            if !text.is_empty() {
                write!(words, " {name}={text}").unwrap();
            }
        }
        let waiting: Vec<String> = self.waiting.iter().map(ToString::to_string).collect();
        words + &format!(" waiting={} ok={}", waiting.join(","), self.ok)
    }

    pub(crate) fn read(words: &str) -> Self {
        let (tag, fields) = words.split_once(' ').unwrap();
        let mut record = Self {
            tag: tag.to_owned(),
            seq: -1,
            pid: -1,
            set: -1,
            attempt: -1,
            value: -1,
            delivery: -1,
            ..Self::default()
        };
        for (name, text) in fields
            .split(' ')
            .map(|field| field.split_once('=').unwrap())
        {
            let number = || text.parse().unwrap();
            match name {
                "seq" => record.seq = number(),
                "pid" => record.pid = number(),
                "set" => record.set = number(),
                "attempt" => record.attempt = number(),
                "value" => record.value = number(),
                "delivery" => record.delivery = number(),
                "signal" => text.clone_into(&mut record.signal),
                "kind" => text.clone_into(&mut record.kind),
                "ok" => record.ok = text == "true",
                _ => {
                    record.waiting = text
                        .split_terminator(',')
                        .map(|number| number.parse().unwrap())
                        .collect()
                }
            }
        }
        record
    }
}

fn integer(value: &Value) -> i64 {
    value["#bigint"]
        .as_str()
        .map_or_else(|| value.as_i64().unwrap(), |digits| digits.parse().unwrap())
}
