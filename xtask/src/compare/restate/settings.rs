//! What the server says about its own settings, so that what stands beside the figures is read and
//! not believed.

use anyhow::{Context, Result, ensure};
use toml::de::{DeTable, DeValue};

/// The settings that a comparison rests on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RestateSettings {
    partitions: String,
    /// What kind of log it keeps. All else it keeps is made from the log again after a crash.
    log: String,
    synced: Synced,
}

/// What happens before a write to the log is answered.
#[derive(Debug, PartialEq, Eq)]
enum Synced {
    Always,
    Never,
}

impl RestateSettings {
    /// Finds them in what `--dump-config` prints.
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
                true => Synced::Never,
                false => Synced::Always,
            },
        })
    }

    pub(crate) fn partitions_beside(&self, default: &Self) -> String {
        format!(
            "partitions: {} (its default: {})",
            self.partitions, default.partitions
        )
    }

    /// What a step that counts as done has behind it. Refuses a log that would lose steps with the
    /// power.
    pub(crate) fn durability_beside(&self, default: &Self) -> Result<String> {
        ensure!(
            self.log == "replicated",
            "the log is {}, of which nothing is known here",
            self.log
        );
        ensure!(
            self.synced == Synced::Always,
            "the log is not synced: rocksdb-disable-wal-fsync is on"
        );
        let same = self.log == default.log && self.synced == default.synced;
        let default = if same {
            "its default"
        } else {
            "not its default"
        };
        Ok(format!(
            "a step is in the log of the one node, synced to disk, before the next begins ({default})"
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
    fn a_log_that_is_synced_is_durable() {
        let used = settings("replicated", "false");
        assert!(
            used.durability_beside(&used)
                .unwrap()
                .ends_with("(its default)")
        );
        assert!(
            used.durability_beside(&settings("replicated", "true"))
                .unwrap()
                .ends_with("(not its default)")
        );
    }

    #[test]
    fn a_log_that_is_not_synced_is_refused() {
        let used = settings("replicated", "true");
        assert!(used.durability_beside(&used).is_err());
    }

    #[test]
    fn a_log_of_another_kind_is_refused() {
        let used = settings("in-memory", "false");
        assert!(used.durability_beside(&used).is_err());
    }

    #[test]
    fn the_partitions_stand_beside_the_default() {
        let used = settings("replicated", "false");
        assert_eq!(
            used.partitions_beside(&used),
            "partitions: 24 (its default: 24)"
        );
    }

    #[test]
    fn settings_that_lack_one_are_refused() {
        assert!(
            RestateSettings::read(
                "default-num-partitions = 24\n[bifrost]\ndefault-provider = \"replicated\"\n"
            )
            .is_err()
        );
    }
}
