//! Properties of the measured machine, without its host name.

use std::fs;
use std::path::Path;

/// Machine properties that are printed with every figure. `None` where the system does not report
/// them.
#[derive(Debug)]
pub struct MachineInfo {
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Model of the first core.
    pub cpu_model: Option<String>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Type of the file system that holds the measured files.
    pub file_system: Option<String>,
}

impl MachineInfo {
    /// Detects the properties of this machine and the file system type of `folder`.
    pub fn detect_machine(folder: Option<&Path>) -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        let folder = folder.and_then(|folder| folder.canonicalize().ok());
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_model: read("/proc/cpuinfo").and_then(|text| parse_cpu_model(&text)),
            kernel: read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            file_system: read("/proc/self/mounts")
                .zip(folder)
                .and_then(|(mounts, folder)| file_system_type(&mounts, &folder)),
        }
    }

    /// Describes the machine in one line.
    pub fn in_one_line(&self) -> String {
        let or_unknown = |value: &Option<String>| value.as_deref().unwrap_or("unknown").to_owned();
        format!(
            "{} cores ({}), Linux {}, {}",
            self.cores,
            or_unknown(&self.cpu_model),
            or_unknown(&self.kernel),
            or_unknown(&self.file_system)
        )
    }
}

fn parse_cpu_model(cpus: &str) -> Option<String> {
    let line = cpus.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns the type of the file system that holds `folder`: that of the longest mount point above
/// it.
fn file_system_type(mounts: &str, folder: &Path) -> Option<String> {
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    // A later mount hides an earlier one at the same mount point.
    let above = fields
        .filter(|(point, _)| folder.starts_with(point))
        .max_by_key(|(point, _)| point.len());
    above.map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{MachineInfo, file_system_type, parse_cpu_model};

    #[test]
    fn the_nearest_mount_counts() {
        let mounts = "none / overlay rw 0 0\n/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmpfiles xfs rw 0 0\n";
        for (folder, kind) in [
            ("/srv", "ext4"),
            ("/tmp/a/b", "tmpfs"),
            ("/tmpfiles/a", "xfs"),
            ("/", "ext4"),
        ] {
            assert_eq!(
                file_system_type(mounts, Path::new(folder)).as_deref(),
                Some(kind),
                "{folder}"
            );
        }
    }

    #[test]
    fn the_model_is_read_from_cpuinfo() {
        assert_eq!(
            parse_cpu_model("processor\t: 0\nmodel name\t: A CPU\nflags\t: x\n").as_deref(),
            Some("A CPU")
        );
        assert_eq!(parse_cpu_model("processor\t: 0\n"), None);
    }

    #[test]
    fn a_property_that_the_system_does_not_report_is_unknown() {
        let machine = MachineInfo {
            cores: 2,
            cpu_model: Some("A CPU".to_owned()),
            kernel: Some("6.1".to_owned()),
            file_system: None,
        };
        assert_eq!(machine.in_one_line(), "2 cores (A CPU), Linux 6.1, unknown");
    }
}
