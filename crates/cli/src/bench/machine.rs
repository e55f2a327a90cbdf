//! Properties of the measured machine, without its host name.

use std::path::Path;

/// Machine properties that are printed with every figure. `None` where the system does not report
/// them.
pub(super) struct MachineInfo {
    pub(super) cores: usize,
    pub(super) kernel: Option<String>,
    /// Type of the file system that holds the measured files.
    pub(super) file_system: Option<String>,
}

impl MachineInfo {
    /// Detects the properties of this machine and the file system type of `folder`.
    pub(super) fn detect_machine(folder: Option<&Path>) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok();
        let folder = folder.and_then(|folder| folder.canonicalize().ok());
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.map(|text| text.trim().to_owned()),
            file_system: mounts
                .zip(folder)
                .and_then(|(mounts, folder)| file_system_type(&mounts, &folder)),
        }
    }
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

    use super::file_system_type;

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
}
