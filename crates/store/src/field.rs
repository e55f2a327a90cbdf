//! How the types of the domain stand in columns.

use std::sync::Arc;

use onward_journal::{ComponentDigest, ExecutionId, Text, Timestamp};
use onward_runs::{EnvironmentId, ProjectId, RunId, RunSeq, TenantId};

use crate::{Epoch, Field, Serial, Shard, Type, Value};

impl<T: Field> Field for Option<T> {
    const OF: Type = T::OF;
    const NULLABLE: bool = true;

    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::to_value)
    }

    fn from_value(value: &Value) -> Option<Self> {
        if *value == Value::Null { Some(None) } else { T::from_value(value).map(Some) }
    }
}

impl Field for bool {
    const OF: Type = Type::Bool;

    fn to_value(&self) -> Value {
        Value::Bool(*self)
    }

    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Bool(flag) = value { Some(*flag) } else { None }
    }
}

impl Field for Text {
    const OF: Type = Type::Text;

    fn to_value(&self) -> Value {
        Value::Text(self.clone())
    }

    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Text(text) = value { Some(text.clone()) } else { None }
    }
}

impl Field for Timestamp {
    const OF: Type = Type::Time;

    fn to_value(&self) -> Value {
        Value::Time(*self)
    }

    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Time(at) = value { Some(*at) } else { None }
    }
}

impl Field for Arc<[u8]> {
    const OF: Type = Type::Bytes;

    fn to_value(&self) -> Value {
        Value::Bytes(Self::clone(self))
    }

    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Bytes(bytes) = value { Some(Self::clone(bytes)) } else { None }
    }
}

impl Field for Serial {
    const OF: Type = Type::Serial;

    fn to_value(&self) -> Value {
        self.0.map_or(Value::Null, Value::Int)
    }

    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Int(number) = value { Some(Self(Some(*number))) } else { None }
    }
}

/// Integers, and newtypes over them.
macro_rules! numbers {
    ($($of:ty: $get:expr, $make:expr;)+) => {$(
        impl Field for $of {
            const OF: Type = Type::Int;

            fn to_value(&self) -> Value {
                let get: fn(&$of) -> i64 = $get;
                Value::Int(get(self))
            }

            fn from_value(value: &Value) -> Option<Self> {
                let make: fn(i64) -> Option<$of> = $make;
                if let Value::Int(number) = value { make(*number) } else { None }
            }
        }
    )+};
}

numbers! {
    i64: |it| *it, Some;
    u32: |it| i64::from(*it), |number| u32::try_from(number).ok();
    Shard: |it| i64::from(it.0), |number| u32::try_from(number).ok().map(Shard);
    Epoch: |it| it.0.cast_signed(), |number| u64::try_from(number).ok().map(Epoch);
    RunSeq: |it| it.get().cast_signed(), |number| u64::try_from(number).ok().and_then(RunSeq::new);
}

/// Fixed numbers of bytes.
macro_rules! hashes {
    ($($of:ty),+) => {$(
        impl Field for $of {
            const OF: Type = Type::Bytes;

            fn to_value(&self) -> Value {
                Value::Bytes(Arc::from(self.as_bytes().as_slice()))
            }

            fn from_value(value: &Value) -> Option<Self> {
                if let Value::Bytes(bytes) = value { Some(Self::from_bytes((**bytes).try_into().ok()?)) } else { None }
            }
        }
    )+};
}

hashes!(ExecutionId, ComponentDigest);

/// Names that are text in the table and checked on the way out.
macro_rules! names {
    ($($of:ty),+) => {$(
        impl Field for $of {
            const OF: Type = Type::Text;

            fn to_value(&self) -> Value {
                Value::Text(Text::from(&**self))
            }

            fn from_value(value: &Value) -> Option<Self> {
                if let Value::Text(text) = value { text.parse().ok() } else { None }
            }
        }
    )+};
}

names!(RunId, TenantId, ProjectId, EnvironmentId);
