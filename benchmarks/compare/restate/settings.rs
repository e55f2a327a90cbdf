//! Reads the effective settings of the server, so that the durability in the report is verified and
//! not assumed.

use anyhow::{Context, Result, ensure};
use toml::de::{DeTable, DeValue};

/// The settings that the comparison depends on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RestateSettings {
    partitions: String,
    /// The kind of log. All other state is rebuilt from the log after a crash.
    log: String,
    synced: LogSync,
}

/// Whether the log is synced before a write is acknowledged.
#[derive(Debug, PartialEq, Eq)]
enum LogSync {
    Always,
    Never,
}

impl RestateSettings {
    /// Parses the output of `--dump-config`.
    pub(crate) fn read(dumped: &str) -> Result<Self> {
        let document = DeTable::parse(dumped).context("the settings are not TOML")?;
        let top = |name: &str| document.get_ref().get(name).map(|value| value.get_ref());
        let within =
            |section: &str, name: &str| top(section)?.get(name).map(|value| value.get_ref());
        let partitions = top("default-num-partitions").and_then(DeValue::as_integer);
        let log = within("bifrost", "default-provider").and_then(DeValue::as_str);
        let without_sync =
            within("log-server", "rocksdb-disable-wal-fsync").and_then(DeValue::as_bool);
        Ok(Self {
            partitions: partitions
                .context("no default-num-partitions in the settings")?
                .to_string(),
            log: log
                .context("no bifrost.default-provider in the settings")?
                .to_owned(),
            synced: match without_sync
                .context("no log-server.rocksdb-disable-wal-fsync in the settings")?
            {
                true => LogSync::Never,
                false => LogSync::Always,
            },
        })
    }

    pub(crate) fn partitions_with_default(&self, default: &Self) -> String {
        format!(
            "partitions: {} (default: {})",
            self.partitions, default.partitions
        )
    }

    /// Describes the durability of a completed step. Fails for a log that would lose steps on power
    /// loss.
    pub(crate) fn durability_with_default(&self, default: &Self) -> Result<String> {
        ensure!(
            self.log == "replicated",
            "bifrost.default-provider is {}: only the durability of replicated is known",
            self.log
        );
        ensure!(
            self.synced == LogSync::Always,
            "the log is not synced: log-server.rocksdb-disable-wal-fsync is true"
        );
        let same = self.log == default.log && self.synced == default.synced;
        let default = if same {
            "the default setting"
        } else {
            "not the default setting"
        };
        Ok(format!(
            "each step is in the log of the single node, synced to disk, before the next starts ({default})"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::RestateSettings;

    fn settings(log: &str, without_sync: &str) -> RestateSettings {
        let dumped = format!(
            "default-num-partitions = 24\n\
             [bifrost]\ndefault-provider = \"{log}\"\n\
             [log-server]\nrocksdb-disable-wal-fsync = {without_sync}\n"
        );
        RestateSettings::read(&dumped).unwrap()
    }

    #[test]
    fn a_synced_log_is_durable() {
        let used = settings("replicated", "false");
        assert!(
            used.durability_with_default(&used)
                .unwrap()
                .ends_with("(the default setting)")
        );
        assert!(
            used.durability_with_default(&settings("replicated", "true"))
                .unwrap()
                .ends_with("(not the default setting)")
        );
    }

    #[test]
    fn an_unsynced_log_is_rejected() {
        let used = settings("replicated", "true");
        assert!(used.durability_with_default(&used).is_err());
    }

    #[test]
    fn an_unknown_kind_of_log_is_rejected() {
        let used = settings("in-memory", "false");
        assert!(used.durability_with_default(&used).is_err());
    }

    #[test]
    fn partitions_are_reported_with_their_default() {
        let used = settings("replicated", "false");
        assert_eq!(
            used.partitions_with_default(&used),
            "partitions: 24 (default: 24)"
        );
    }

    #[test]
    fn incomplete_settings_are_rejected() {
        assert!(
            RestateSettings::read(
                "default-num-partitions = 24\n[bifrost]\ndefault-provider = \"replicated\"\n"
            )
            .is_err()
        );
    }
}
