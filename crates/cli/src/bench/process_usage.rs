//! Resource usage of a process from `/proc`. On systems other than Linux every value is `None`.

use std::time::Duration;

/// Unit of CPU time in `/proc`: the same on all current Linux systems.
const TICK: Duration = Duration::from_millis(10);

/// Returns the CPU time of all threads of a process.
pub(super) fn cpu_time(process: u32) -> Option<Duration> {
    parse_cpu_time(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Returns the bytes that a process has written to disk.
pub(super) fn written_bytes(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("write_bytes: "))?
        .parse()
        .ok()
}

/// Returns the resident set size of a process in bytes.
pub(super) fn resident_bytes(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

/// Adds user and system time: the 14th and the 15th field. The second field, the name, is in
/// parentheses and may contain any character.
fn parse_cpu_time(stat: &str) -> Option<Duration> {
    let (_, behind_name) = stat.rsplit_once(") ")?;
    let mut fields = behind_name.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(TICK * (ticks()? + ticks()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse_cpu_time;

    #[test]
    fn the_time_of_a_process_is_found_behind_any_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 9 9 20 0 4 0 100 0\n";
        assert_eq!(parse_cpu_time(stat), Some(Duration::from_secs(3)));
        assert_eq!(parse_cpu_time("7"), None);
    }
}
