//! Time zones by IANA name, from the database bundled with the program: all nodes use the same
//! version, and a machine may have no database of its own.

use std::sync::LazyLock;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use onward_base::Timestamp;
use thiserror::Error;

static TIME_ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Returns the time zone with this IANA name, or `None` if the name is unknown.
pub(crate) fn find_time_zone(name: &str) -> Option<TimeZone> {
    TIME_ZONES.get(name).ok()
}

/// The error for a name that is not in the time zone database.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown time zone `{0}`: use an IANA name such as Europe/Berlin")]
pub struct UnknownTimeZone(pub String);

/// Returns the time zone with this IANA name. Fails if the name is unknown.
pub(crate) fn require_time_zone(name: &str) -> Result<TimeZone, UnknownTimeZone> {
    find_time_zone(name).ok_or_else(|| UnknownTimeZone(name.to_owned()))
}

/// Converts a timestamp to the calendar library's type, or returns `None` if it is out of range
/// there.
pub(crate) fn to_jiff_timestamp(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_microsecond(at.as_micros()).ok()
}
