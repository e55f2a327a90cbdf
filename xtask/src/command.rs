//! Running other programs: shown as they go or kept quiet until they fail, and always named in the
//! error so that a person can repeat the command by hand.

use std::fmt::{self, Display, Formatter};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::run::{Output, XtaskRun};

/// One command line, its folder relative to the workspace, and what it adds to the environment.
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

    /// Runs with the terminal's own output, for commands whose output is the point.
    pub(crate) fn shown(&self) -> Result<()> {
        let status = self
            .command()
            .status()
            .with_context(|| self.cannot_start())?;
        self.require_success(status)
    }

    /// Runs and returns what was printed, stdout and stderr in the order they came. Shown only when
    /// the command fails, or as it goes when the run says so.
    pub(crate) fn quiet(&self) -> Result<String> {
        let (reader, writer) = io::pipe().context("cannot open a pipe")?;
        let mut command = self.command();
        command.stdout(writer.try_clone().context("cannot copy a pipe")?);
        command.stderr(writer);
        let mut child = command.spawn().with_context(|| self.cannot_start())?;
        // The command holds the writing ends: while it lives the pipe never ends.
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
            .with_context(|| format!("cannot read what `{self}` prints"))?
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

/// The line a person would type from the workspace's root.
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

/// What `program args…` prints on stdout, or nothing when it is absent or fails.
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
    fn a_call_reads_as_the_line_a_person_would_type() {
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
    fn a_quiet_call_returns_both_streams_in_order() {
        let run = here();
        let call = ToolCommand::new(&run, "sh", ["-c", "echo a; echo b >&2; echo c"]);
        assert_eq!(call.quiet().unwrap(), "a\nb\nc\n");
    }

    #[test]
    fn a_failing_call_names_its_command() {
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
    fn an_absent_program_is_named() {
        let run = here();
        let error = ToolCommand::new(&run, "no-such-program", ["x"])
            .shown()
            .unwrap_err();
        assert!(error.to_string().contains("is no-such-program installed?"));
    }
}
