//! A server of mail that others wrote.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::Error;

/// How often, and after how long each time, it is looked for.
const CONNECT_ATTEMPTS_MAX: u32 = 500;
const CONNECT_INTERVAL: Duration = Duration::from_millis(20);

/// A server of mail that keeps what it takes in a folder; aiosmtpd, which `cargo xtask test --only tools` installs.
pub struct TestMailServer {
    port: u16,
    folder: TempDir,
    child: Child,
}

impl TestMailServer {
    /// Starts one, with these options besides.
    pub fn start_server(args: &[&str]) -> Result<Self, Error> {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/aiosmtpd/bin/python");
        let made = tempfile::tempdir();
        let folder = made.map_err(|source| Error::Folder {
            path: std::env::temp_dir(),
            source,
        })?;
        let taken = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = taken.map_err(Error::Port)?.port();
        let program = "aiosmtpd (cargo xtask test --only tools installs it)".to_owned();
        let child = Command::new(python)
            .args(["-m", "aiosmtpd", "-n", "-l", &format!("127.0.0.1:{port}")])
            .args(args)
            .args(["-c", "aiosmtpd.handlers.Mailbox"])
            .arg(folder.path().join("mails"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| Error::Run { program, source })?;
        let mail = Self {
            port,
            folder,
            child,
        };
        for _ in 0..CONNECT_ATTEMPTS_MAX {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(mail);
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "it does not say when it listens, so it is looked for"
            )]
            std::thread::sleep(CONNECT_INTERVAL);
        }
        Err(Error::Stopped)
    }

    /// Where it listens, on loopback.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What it has taken so far, in no order.
    pub fn received_mails(&self) -> Result<Vec<String>, Error> {
        let path = self.folder.path().join("mails/new");
        let unread = |source| Error::Folder {
            path: path.clone(),
            source,
        };
        let read =
            |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(entry?.path());
        match std::fs::read_dir(&path) {
            Ok(entries) => entries.map(read).collect::<Result<_, _>>().map_err(unread),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(unread(error)),
        }
    }
}

impl Drop for TestMailServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
