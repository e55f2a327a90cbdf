//! Time zones by name, from the database that comes with the program: every node has the same, and a machine may have none.

use std::sync::LazyLock;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use onward_base::Timestamp;

static TIME_ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The zone of that name.
pub(crate) fn find_time_zone(name: &str) -> Option<TimeZone> {
    TIME_ZONES.get(name).ok()
}

/// The zone of that name, or a sentence that there is none.
pub(crate) fn require_time_zone(name: &str) -> Result<TimeZone, String> {
    find_time_zone(name).ok_or_else(|| {
        format!("there is no time zone `{name}`: write a name such as Europe/Berlin")
    })
}

/// An instant as the calendar has it, unless it is past what it has.
pub(crate) fn to_jiff_timestamp(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_microsecond(at.as_micros()).ok()
}
