//! The machine in words, without its name.

use std::fs;
use std::thread;

use crate::command::probe;
use crate::run::XtaskRun;

/// When, on how many cores of which kind, under which kernel and on which file system.
pub(crate) fn describe(run: &XtaskRun) -> String {
    let asked = |program: &str, args: &[&str]| {
        probe(&run.root, program, args).unwrap_or_else(|| "unknown".to_owned())
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let file_system = asked("df", &["--output=fstype", "."]);
    let file_system = file_system.lines().last().unwrap_or_default();
    format!(
        "{}, {cores} cores ({}), Linux {}, {file_system}",
        asked("date", &["-u", "+%F"]),
        fs::read_to_string("/proc/cpuinfo")
            .ok()
            .and_then(|text| model(&text))
            .unwrap_or_else(|| "unknown".to_owned()),
        asked("uname", &["-r"]),
    )
}

fn model(cpus: &str) -> Option<String> {
    let line = cpus.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::model;

    #[test]
    fn the_model_is_found_among_much_else() {
        assert_eq!(
            model("processor\t: 0\nmodel name\t: A CPU\nflags\t: x\n").as_deref(),
            Some("A CPU")
        );
        assert_eq!(model("processor\t: 0\n"), None);
    }
}
