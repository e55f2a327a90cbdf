//! Resource usage of processes and of the machine from `/proc`. On systems other than Linux every
//! value is `None`.

use std::fs;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Unit of CPU time in `/proc`: the same on all current Linux systems.
const TICK: Duration = Duration::from_millis(10);

/// Usage of a process with all its threads, since its start or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// User and system time.
    pub cpu: Duration,
    /// Bytes sent to the disk, without file system metadata and without data that is not yet
    /// written back.
    pub written_bytes: u64,
}

impl ProcessUsage {
    /// Reads what the process has used since its start.
    pub fn read_usage(process: u32) -> Option<Self> {
        Some(Self {
            cpu: cpu_time(process)?,
            written_bytes: written_bytes(process)?,
        })
    }
}

impl Add for ProcessUsage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            written_bytes: self.written_bytes + other.written_bytes,
        }
    }
}

/// The usage since `before`.
impl Sub for ProcessUsage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

/// Returns the CPU time of all threads of a process.
pub fn cpu_time(process: u32) -> Option<Duration> {
    parse_cpu_time(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Returns the bytes that a process has written to disk.
pub fn written_bytes(process: u32) -> Option<u64> {
    parse_written_bytes(&fs::read_to_string(format!("/proc/{process}/io")).ok()?)
}

/// Returns the resident set size of a process in bytes.
pub fn resident_bytes(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

/// Returns the CPU time that all processes have used on all cores since boot.
pub fn machine_cpu_time() -> Option<Duration> {
    parse_machine_cpu_time(&fs::read_to_string("/proc/stat").ok()?)
}

/// Adds user and system time: the 14th and the 15th field. The second field, the name, is in
/// parentheses and may contain any character.
fn parse_cpu_time(stat: &str) -> Option<Duration> {
    let (_, behind_name) = stat.rsplit_once(") ")?;
    let mut fields = behind_name.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(TICK * (ticks()? + ticks()?))
}

fn parse_written_bytes(io: &str) -> Option<u64> {
    io.lines()
        .find_map(|line| line.strip_prefix("write_bytes: "))?
        .parse()
        .ok()
}

/// Sums the first line, without fields 4 and 5 (idle and waiting for the disk) and without the last
/// two, which are contained in others.
fn parse_machine_cpu_time(stat: &str) -> Option<Duration> {
    let fields = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .take(8);
    let ticks: Option<Vec<u32>> = fields.map(|field| field.parse().ok()).collect();
    let busy = ticks?
        .iter()
        .enumerate()
        .filter(|(index, _)| ![3, 4].contains(index))
        .map(|(_, ticks)| *ticks)
        .sum();
    Some(TICK * busy)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        ProcessUsage, machine_cpu_time, parse_cpu_time, parse_machine_cpu_time, parse_written_bytes,
    };

    #[test]
    fn cpu_time_is_parsed_after_any_process_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 9 9 20 0 4 0 100 0\n";
        assert_eq!(parse_cpu_time(stat), Some(Duration::from_secs(3)));
        assert_eq!(parse_cpu_time("7"), None);
        assert_eq!(parse_cpu_time("7 (a"), None);
    }

    #[test]
    fn idle_and_waiting_cores_are_not_busy() {
        let stat = "cpu  100 20 30 5000 600 4 5 41 7 8\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(parse_machine_cpu_time(stat), Some(Duration::from_secs(2)));
        assert_eq!(parse_machine_cpu_time("intr 1\n"), None);
    }

    #[test]
    fn the_machine_uses_at_least_the_time_of_this_process() {
        let own = ProcessUsage::read_usage(std::process::id()).unwrap().cpu;
        assert!(machine_cpu_time().unwrap() >= own);
    }

    #[test]
    fn bytes_sent_to_the_disk_are_distinguished_from_bytes_written() {
        let io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n";
        assert_eq!(parse_written_bytes(io), Some(6));
    }

    #[test]
    fn usage_can_be_subtracted_and_added() {
        let before = ProcessUsage::read_usage(std::process::id()).unwrap();
        let after = ProcessUsage::read_usage(std::process::id()).unwrap();
        assert_eq!(before + (after - before), after);
    }

    #[test]
    fn a_missing_process_has_no_usage() {
        assert_eq!(ProcessUsage::read_usage(u32::MAX), None);
    }
}
