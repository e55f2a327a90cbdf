//! An audience of a million takes no more memory than a tenth of it.

use std::io::{self, Read};
use std::process::Command;

use onward_campaign_file::audience::read_audience;
use onward_campaign_file::{AudienceFormat, CampaignChecker};

use crate::{LETTER, campaign_with};

const ROWS: u64 = 1_000_000;

/// A table, or lines, that are made while they are read.
struct Made {
    format: AudienceFormat,
    made: u64,
    rest: Vec<u8>,
    at: usize,
}

impl Made {
    fn new(format: AudienceFormat) -> Self {
        let header = if format == AudienceFormat::Jsonl {
            &b""[..]
        } else {
            b"id,email,name\n"
        };
        Self {
            format,
            made: 0,
            rest: header.to_vec(),
            at: 0,
        }
    }
}

impl Read for Made {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.rest.len() && self.made < ROWS {
            let n = self.made;
            let row = match self.format {
                AudienceFormat::Jsonl => {
                    format!("{{\"id\":{n},\"email\":\"p{n}@example.com\",\"name\":\"P\"}}\n")
                }
                _ => format!("{n},p{n}@example.com,P\n"),
            };
            (self.rest, self.at, self.made) = (row.into_bytes(), 0, n + 1);
        }
        let read = (&self.rest[self.at..]).read(buffer)?;
        self.at += read;
        Ok(read)
    }
}

/// The most memory that this process has had.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

#[test]
#[ignore = "the test below runs it in a process of its own, where the memory of no other test counts"]
fn a_million_rows_go_by() {
    for format in [AudienceFormat::Csv, AudienceFormat::Jsonl] {
        let campaign = campaign_with(LETTER, "");
        let mut checker = CampaignChecker::new(&campaign, "2026-12-01T12:00:00Z".parse().unwrap());
        let mut early = None;
        for row in read_audience(
            Made::new(format),
            format,
            &campaign.audience_fields(),
            campaign.channel,
        )
        .unwrap()
        {
            checker.add_recipient(&row.unwrap());
            // By then all of the filter is in use that finds repeats.
            if checker.audience_report().good == ROWS / 10 {
                early = peak_kib();
            }
        }
        let (list, report) = checker.finish();
        assert_eq!((report.good, report.bad), (ROWS, 0));
        assert!(list.iter().all(|it| it.pass), "{list:?}");
        if let (Some(early), Some(late)) = (early, peak_kib()) {
            assert!(early < 96 * 1024, "{format:?}: {early} KiB");
            assert!(
                late < early + 4 * 1024,
                "{format:?}: {early} KiB after a tenth, {late} KiB after a million"
            );
        }
    }
}

#[test]
fn a_million_rows_take_no_more_memory_than_a_tenth_of_them() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command
        .args(["--exact", "memory::a_million_rows_go_by", "--ignored"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}
