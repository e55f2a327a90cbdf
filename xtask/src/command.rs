//! Runs external programs. Their output is shown, or captured and printed on failure. Errors
//! contain the command line, so that it can be repeated by hand.

use std::env;
use std::fmt::{self, Display, Formatter};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::run::{Output, XtaskRun};

/// A command line, its working directory relative to the workspace, and additional variables.
pub(crate) struct ToolCommand<'a> {
    run: &'a XtaskRun,
    program: &'a str,
    args: Vec<String>,
    folder: &'a str,
    environment: Vec<(&'a str, &'a str)>,
}

impl<'a> ToolCommand<'a> {
    pub(crate) fn new<S: Into<String>>(
        run: &'a XtaskRun,
        program: &'a str,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            run,
            program,
            args: args.into_iter().map(Into::into).collect(),
            folder: "",
            environment: Vec::new(),
        }
    }

    pub(crate) fn in_folder(mut self, folder: &'a str) -> Self {
        self.folder = folder;
        self
    }

    pub(crate) fn with_environment(mut self, name: &'a str, value: &'a str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// Runs with the output of the terminal, for commands whose output matters.
    pub(crate) fn shown(&self) -> Result<()> {
        let status = self
            .command()
            .status()
            .with_context(|| self.cannot_start())?;
        self.require_success(status)
    }

    /// Runs and returns stdout and stderr, interleaved in order. Prints them if the command fails,
    /// or while it runs if the run is verbose.
    pub(crate) fn quiet(&self) -> Result<String> {
        let (reader, writer) = io::pipe().context("cannot open a pipe")?;
        let mut command = self.command();
        command.stdout(writer.try_clone().context("cannot copy a pipe")?);
        command.stderr(writer);
        let mut child = command.spawn().with_context(|| self.cannot_start())?;
        // The command holds the write ends of the pipe; reading ends only after they are closed.
        drop(command);
        let printed = self.collect(BufReader::new(reader))?;
        let status = child.wait().with_context(|| self.cannot_start())?;
        if !status.success() && self.run.output == Output::OnFailure {
            eprint!("{printed}");
        }
        self.require_success(status)?;
        Ok(printed)
    }

    fn collect(&self, mut reader: impl BufRead) -> Result<String> {
        let mut printed = String::new();
        let mut line = Vec::new();
        while reader
            .read_until(b'\n', &mut line)
            .with_context(|| format!("cannot read the output of `{self}`"))?
            > 0
        {
            let text = String::from_utf8_lossy(&line);
            if self.run.output == Output::Shown {
                eprint!("{text}");
            }
            printed.push_str(&text);
            line.clear();
        }
        Ok(printed)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command
            .args(&self.args)
            .envs(self.environment.iter().copied())
            .current_dir(self.run.root.join(self.folder))
            .stdin(Stdio::null());
        for (name, _) in env::vars_os() {
            if name.to_str().is_some_and(describes_this_package) {
                command.env_remove(name);
            }
        }
        command
    }

    fn cannot_start(&self) -> String {
        format!("cannot run `{self}`: is {} installed?", self.program)
    }

    fn require_success(&self, status: ExitStatus) -> Result<()> {
        if status.success() {
            return Ok(());
        }
        bail!("`{self}` failed ({status})")
    }
}

/// Whether `cargo run` set this variable for xtask. Build scripts that depend on such a variable
/// would run again, and everything above them would be built again, whenever a build is started by
/// xtask after one that was not.
fn describes_this_package(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_")
}

/// The command line as typed in the root of the workspace.
impl Display for ToolCommand<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.folder.is_empty() {
            write!(f, "cd {} && ", self.folder)?;
        }
        for (name, value) in &self.environment {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(self.program)?;
        for arg in &self.args {
            write!(f, " {}", quoted(arg))?;
        }
        Ok(())
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./@:,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns the stdout of `program args…`, or `None` if the program is missing or fails.
pub(crate) fn probe(folder: &Path, program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::ToolCommand;
    use crate::run::{Length, Output, XtaskRun};

    fn here() -> XtaskRun {
        XtaskRun {
            root: PathBuf::from(env!("CARGO_MANIFEST_DIR")),
            length: Length::Short,
            output: Output::OnFailure,
        }
    }

    #[test]
    fn a_command_is_displayed_as_a_shell_command_line() {
        let run = here();
        let call = ToolCommand::new(&run, "cargo", ["doc", "--no-deps"])
            .in_folder("spec")
            .with_environment("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(
            call.to_string(),
            "cd spec && RUSTDOCFLAGS='-D warnings' cargo doc --no-deps"
        );
    }

    #[test]
    fn a_quiet_command_returns_both_streams_in_order() {
        let run = here();
        let call = ToolCommand::new(&run, "sh", ["-c", "echo a; echo b >&2; echo c"]);
        assert_eq!(call.quiet().unwrap(), "a\nb\nc\n");
    }

    #[test]
    fn a_failed_command_is_named_in_the_error() {
        let run = here();
        let error = ToolCommand::new(&run, "sh", ["-c", "exit 3"])
            .quiet()
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "`sh -c 'exit 3'` failed (exit status: 3)"
        );
    }

    #[test]
    fn a_command_does_not_inherit_the_description_of_the_package() {
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
        let run = here();
        let variables = ToolCommand::new(&run, "env", [""; 0]).quiet().unwrap();
        assert!(!variables.contains("CARGO_PKG_"), "{variables}");
        assert!(!variables.contains("CARGO_MANIFEST_"), "{variables}");
    }

    #[test]
    fn a_missing_program_is_named_in_the_error() {
        let run = here();
        let error = ToolCommand::new(&run, "no-such-program", ["x"])
            .shown()
            .unwrap_err();
        assert!(error.to_string().contains("is no-such-program installed?"));
    }
}
