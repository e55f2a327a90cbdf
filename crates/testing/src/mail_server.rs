//! Runs aiosmtpd, an independent SMTP implementation, for tests of mail delivery.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::Error;

/// Attempts to connect until the server listens, and the delay between them.
const CONNECT_ATTEMPTS_MAX: u32 = 500;
const CONNECT_INTERVAL: Duration = Duration::from_millis(20);

/// An SMTP server that stores received mails in a temporary folder: aiosmtpd, which `cargo xtask
/// test --only tools` installs. The process is killed on drop.
pub struct TestMailServer {
    port: u16,
    folder: TempDir,
    child: Child,
}

impl TestMailServer {
    /// Starts a server with additional arguments `args`, and waits until it accepts connections.
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
                reason = "the server does not report when it listens, so the port is polled"
            )]
            std::thread::sleep(CONNECT_INTERVAL);
        }
        Err(Error::Stopped)
    }

    /// The port of the server on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the mails received so far, in no particular order.
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
