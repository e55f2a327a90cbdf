//! Column codecs of the domain types: how each of them is stored in a column.

use std::sync::Arc;

use onward_base::{EnvironmentId, ProjectId, SharedText, TenantId, Timestamp};
use onward_campaign_core::{
    CampaignRunControl, CampaignRunStatus, DeliveryChannel, ItemReason, ItemStatus, JobStatus,
    JobType,
};
use onward_journal::{ComponentDigest, DeliveryGuarantee, ExecutionId, ExecutionState};
use onward_runs::{RunId, RunSeq};

use crate::tables::{
    AlertCode, AlertSeverity, DeployedFunctionKind, InboxMessageKind, SnapshotCondition,
    WorkerTaskState,
};
use crate::{ColumnCodec, ColumnType, ColumnValue, SerialId, ShardEpoch, ShardId};

impl<T: ColumnCodec> ColumnCodec for Option<T> {
    const COLUMN_TYPE: ColumnType = T::COLUMN_TYPE;
    const NULLABLE: bool = true;

    fn to_value(&self) -> ColumnValue {
        self.as_ref().map_or(ColumnValue::Null, T::to_value)
    }

    fn from_value(value: &ColumnValue) -> Option<Self> {
        if *value == ColumnValue::Null {
            Some(None)
        } else {
            T::from_value(value).map(Some)
        }
    }
}

impl ColumnCodec for bool {
    const COLUMN_TYPE: ColumnType = ColumnType::Bool;

    fn to_value(&self) -> ColumnValue {
        ColumnValue::Bool(*self)
    }

    fn from_value(value: &ColumnValue) -> Option<Self> {
        if let ColumnValue::Bool(flag) = value {
            Some(*flag)
        } else {
            None
        }
    }
}

impl ColumnCodec for SharedText {
    const COLUMN_TYPE: ColumnType = ColumnType::Text;

    fn to_value(&self) -> ColumnValue {
        ColumnValue::Text(self.clone())
    }

    fn from_value(value: &ColumnValue) -> Option<Self> {
        if let ColumnValue::Text(text) = value {
            Some(text.clone())
        } else {
            None
        }
    }
}

impl ColumnCodec for Timestamp {
    const COLUMN_TYPE: ColumnType = ColumnType::Time;

    fn to_value(&self) -> ColumnValue {
        ColumnValue::Time(*self)
    }

    fn from_value(value: &ColumnValue) -> Option<Self> {
        if let ColumnValue::Time(at) = value {
            Some(*at)
        } else {
            None
        }
    }
}

impl ColumnCodec for Arc<[u8]> {
    const COLUMN_TYPE: ColumnType = ColumnType::Bytes;

    fn to_value(&self) -> ColumnValue {
        ColumnValue::Bytes(Self::clone(self))
    }

    fn from_value(value: &ColumnValue) -> Option<Self> {
        if let ColumnValue::Bytes(bytes) = value {
            Some(Self::clone(bytes))
        } else {
            None
        }
    }
}

impl ColumnCodec for SerialId {
    const COLUMN_TYPE: ColumnType = ColumnType::Serial;

    fn to_value(&self) -> ColumnValue {
        self.0.map_or(ColumnValue::Null, ColumnValue::Int)
    }

    fn from_value(value: &ColumnValue) -> Option<Self> {
        if let ColumnValue::Int(number) = value {
            Some(Self(Some(*number)))
        } else {
            None
        }
    }
}

/// Implements the codec for integers and newtypes over them.
macro_rules! integer_codecs {
    ($($of:ty: $get:expr, $make:expr;)+) => {$(
        impl ColumnCodec for $of {
            const COLUMN_TYPE: ColumnType = ColumnType::Int;

            fn to_value(&self) -> ColumnValue {
                let get: fn(&$of) -> i64 = $get;
                ColumnValue::Int(get(self))
            }

            fn from_value(value: &ColumnValue) -> Option<Self> {
                let make: fn(i64) -> Option<$of> = $make;
                if let ColumnValue::Int(number) = value { make(*number) } else { None }
            }
        }
    )+};
}

integer_codecs! {
    i64: |it| *it, Some;
    u32: |it| i64::from(*it), |number| u32::try_from(number).ok();
    ShardId: |it| i64::from(it.0), |number| u32::try_from(number).ok().map(ShardId);
    ShardEpoch: |it| it.0.cast_signed(), |number| u64::try_from(number).ok().map(ShardEpoch);
    RunSeq: |it| it.as_u64().cast_signed(), |number| u64::try_from(number).ok().and_then(RunSeq::new);
}

/// Implements the codec for ids that are byte arrays of fixed length.
macro_rules! fixed_bytes_codecs {
    ($($of:ty),+) => {$(
        impl ColumnCodec for $of {
            const COLUMN_TYPE: ColumnType = ColumnType::Bytes;

            fn to_value(&self) -> ColumnValue {
                ColumnValue::Bytes(Arc::from(self.as_bytes().as_slice()))
            }

            fn from_value(value: &ColumnValue) -> Option<Self> {
                if let ColumnValue::Bytes(bytes) = value { Some(Self::from_bytes((**bytes).try_into().ok()?)) } else { None }
            }
        }
    )+};
}

fixed_bytes_codecs!(ExecutionId, ComponentDigest);

/// Implements the codec for ids that are stored as text and validated when they are read.
macro_rules! text_id_codecs {
    ($($of:ty),+) => {$(
        impl ColumnCodec for $of {
            const COLUMN_TYPE: ColumnType = ColumnType::Text;

            fn to_value(&self) -> ColumnValue {
                ColumnValue::Text(SharedText::from(&**self))
            }

            fn from_value(value: &ColumnValue) -> Option<Self> {
                if let ColumnValue::Text(text) = value { text.parse().ok() } else { None }
            }
        }
    )+};
}

text_id_codecs!(RunId, TenantId, ProjectId, EnvironmentId);

/// Implements the codec for enums that are stored as their text form. A text that no variant has is
/// not decoded, so a row with an unknown status or channel is corrupt and never taken for another.
macro_rules! text_enum_codecs {
    ($($of:ty),+) => {$(
        impl ColumnCodec for $of {
            const COLUMN_TYPE: ColumnType = ColumnType::Text;

            fn to_value(&self) -> ColumnValue {
                ColumnValue::Text(SharedText::from(self.as_str()))
            }

            fn from_value(value: &ColumnValue) -> Option<Self> {
                if let ColumnValue::Text(text) = value { Self::parse(text) } else { None }
            }
        }
    )+};
}

text_enum_codecs!(
    AlertCode,
    AlertSeverity,
    CampaignRunControl,
    CampaignRunStatus,
    DeliveryChannel,
    DeliveryGuarantee,
    DeployedFunctionKind,
    ExecutionState,
    InboxMessageKind,
    ItemReason,
    ItemStatus,
    JobStatus,
    JobType,
    SnapshotCondition,
    WorkerTaskState
);
