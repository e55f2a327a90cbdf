//! Memory of the deploy check: an audience of a million rows needs no more than a tenth of it.

use std::io::{self, Read};
use std::process::Command;

use onward_campaign_file::audience::read_audience;
use onward_campaign_file::{AudienceFormat, CampaignChecker};

use crate::{LETTER, campaign_with};

const ROWS: u64 = 1_000_000;

/// An audience that is generated while it is read.
struct GeneratedAudience {
    format: AudienceFormat,
    generated: u64,
    row: Vec<u8>,
    position: usize,
}

impl GeneratedAudience {
    fn new(format: AudienceFormat) -> Self {
        let header = if format == AudienceFormat::Jsonl {
            &b""[..]
        } else {
            b"id,email,name\n"
        };
        Self {
            format,
            generated: 0,
            row: header.to_vec(),
            position: 0,
        }
    }
}

impl Read for GeneratedAudience {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position == self.row.len() && self.generated < ROWS {
            let n = self.generated;
            let row = match self.format {
                AudienceFormat::Jsonl => {
                    format!("{{\"id\":{n},\"email\":\"p{n}@example.com\",\"name\":\"P\"}}\n")
                }
                _ => format!("{n},p{n}@example.com,P\n"),
            };
            (self.row, self.position, self.generated) = (row.into_bytes(), 0, n + 1);
        }
        let read = (&self.row[self.position..]).read(buffer)?;
        self.position += read;
        Ok(read)
    }
}

/// Peak memory of this process.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

#[test]
#[ignore = "the test below runs it in a separate process, to exclude the memory of other tests"]
fn a_million_rows_are_checked() {
    for format in [AudienceFormat::Csv, AudienceFormat::Jsonl] {
        let campaign = campaign_with(LETTER, "");
        let mut checker =
            CampaignChecker::new(campaign.clone(), "2026-12-01T12:00:00Z".parse().unwrap());
        let mut peak_at_tenth = None;
        for row in read_audience(
            GeneratedAudience::new(format),
            format,
            &campaign.audience_fields(),
            campaign.channel,
        )
        .unwrap()
        {
            checker.add_recipient(&row.unwrap());
            // At this size the duplicate filter has allocated all of its pages.
            if checker.audience_report().valid == ROWS / 10 {
                peak_at_tenth = peak_kib();
            }
        }
        let (list, report) = checker.finish();
        assert_eq!((report.valid, report.invalid), (ROWS, 0));
        assert!(list.iter().all(|it| it.pass), "{list:?}");
        if let (Some(tenth), Some(full)) = (peak_at_tenth, peak_kib()) {
            assert!(tenth < 96 * 1024, "{format:?}: {tenth} KiB");
            assert!(
                full < tenth + 4 * 1024,
                "{format:?}: {tenth} KiB after a tenth, {full} KiB after a million"
            );
        }
    }
}

#[test]
fn a_million_rows_need_no_more_memory_than_a_tenth_of_them() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command
        .args(["--exact", "memory::a_million_rows_are_checked", "--ignored"])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{stdout}"
    );
}
