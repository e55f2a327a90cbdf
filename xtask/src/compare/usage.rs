//! What a process and the whole machine have used so far, as Linux counts it.

use std::fs;
use std::ops::{Add, Sub};
use std::time::Duration;

use anyhow::{Context, Result};

/// The unit of CPU time in /proc is the same on every machine that Linux runs on today.
const TICK: Duration = Duration::from_millis(10);

/// Since the start of a process, all its threads together, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    /// What was sent to the disk. What the file system adds is not in it, nor what a file would
    /// have written later.
    pub(crate) written_bytes: u64,
}

impl Usage {
    pub(crate) fn of(process: u32) -> Result<Self> {
        let read = |name: &str| {
            let path = format!("/proc/{process}/{name}");
            fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let cpu = cpu(&read("stat")?).context("cannot find the CPU time in /proc")?;
        let written_bytes =
            written_bytes(&read("io")?).context("cannot find the bytes written in /proc")?;
        Ok(Self { cpu, written_bytes })
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            written_bytes: self.written_bytes + other.written_bytes,
        }
    }
}

/// What was used since `before`.
impl Sub for Usage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

/// Time in the process and in the kernel for it: the 14th and the 15th field. The second one, the
/// name, is in parentheses and may have any character in it.
fn cpu(stat: &str) -> Option<Duration> {
    let (_, behind_name) = stat.rsplit_once(") ")?;
    let mut fields = behind_name.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    Some(TICK * (ticks()? + ticks()?))
}

/// For how long the cores of the machine have been busy with anything, one after the other.
pub(crate) fn machine_cpu() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    busy(&stat).context("cannot find the CPU time in /proc/stat")
}

/// All of the first line but the fourth and the fifth field, where a core is idle or waits for the
/// disk, and the last two, which are in others already.
fn busy(stat: &str) -> Option<Duration> {
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

fn written_bytes(io: &str) -> Option<u64> {
    io.lines()
        .find_map(|line| line.strip_prefix("write_bytes: "))?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Usage, busy, cpu, machine_cpu, written_bytes};

    #[test]
    fn the_time_of_a_process_is_found_behind_any_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 9 9 20 0 4 0 100 0\n";
        assert_eq!(cpu(stat), Some(Duration::from_secs(3)));
        assert_eq!(cpu("7 (a"), None);
    }

    #[test]
    fn a_core_that_is_idle_or_waits_is_not_busy() {
        let stat = "cpu  100 20 30 5000 600 4 5 41 7 8\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(busy(stat), Some(Duration::from_secs(2)));
        assert_eq!(busy("intr 1\n"), None);
    }

    #[test]
    fn the_machine_has_used_at_least_what_this_process_has() {
        let own = Usage::of(std::process::id()).unwrap().cpu;
        assert!(machine_cpu().unwrap() >= own);
    }

    #[test]
    fn what_reached_the_disk_is_told_from_what_was_written() {
        let io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n";
        assert_eq!(written_bytes(io), Some(6));
    }

    #[test]
    fn this_process_has_used_something_and_uses_more() {
        let before = Usage::of(std::process::id()).unwrap();
        let after = Usage::of(std::process::id()).unwrap();
        assert_eq!(before + (after - before), after);
    }

    #[test]
    fn a_process_that_is_gone_has_no_usage() {
        assert!(Usage::of(u32::MAX).is_err());
    }
}
