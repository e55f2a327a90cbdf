//! A server of mail that does what a test says, at the moment that it says.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// When it misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Greeting,
    Ehlo,
    Auth,
    Mail,
    Recipient,
    Data,
    /// In the middle of the message, before its end.
    Content,
    Dot,
    Reset,
}

/// How.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// It says this.
    Say(&'static str),
    /// It closes the connection.
    Drop,
    /// It says nothing more, and listens to nothing.
    Hang,
}

/// What it does on which connection, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whim {
    /// Which connection, from 0; on any if none is named.
    pub(crate) connection: Option<usize>,
    pub(crate) at: At,
    pub(crate) act: Act,
}

/// What it has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) connections: usize,
    /// Messages that it has heard to their end.
    pub(crate) messages: Vec<String>,
    pub(crate) commands: Vec<String>,
    /// Connections that are over.
    pub(crate) closed: usize,
}

pub(crate) struct Hostile {
    pub(crate) port: u16,
    pub(crate) seen: Arc<Mutex<Seen>>,
}

impl Hostile {
    pub(crate) async fn start(whims: Vec<Whim>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let accepted = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = {
                    let mut seen = accepted.lock().unwrap();
                    seen.connections += 1;
                    seen.connections - 1
                };
                let is_here = |whim: &&Whim| whim.connection.is_none_or(|it| it == number);
                let whims: Vec<Whim> = whims.iter().filter(is_here).copied().collect();
                tokio::spawn(Session { stream: BufReader::new(stream), whims, seen: Arc::clone(&accepted) }.serve());
            }
        });
        Self { port, seen }
    }

    pub(crate) async fn that(at: At, act: Act) -> Self {
        Self::start(vec![Whim { connection: None, at, act }]).await
    }

    pub(crate) fn messages(&self) -> usize {
        self.seen.lock().unwrap().messages.len()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.lock().unwrap().connections
    }
}

struct Session {
    stream: BufReader<TcpStream>,
    whims: Vec<Whim>,
    seen: Arc<Mutex<Seen>>,
}

impl Session {
    async fn serve(mut self) {
        // A client that goes away ends the session.
        let _ = self.talk().await;
        self.seen.lock().unwrap().closed += 1;
    }

    async fn talk(&mut self) -> Option<()> {
        self.reply(At::Greeting, "220 hostile ready").await?;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let command = line.trim_end().to_owned();
            self.seen.lock().unwrap().commands.push(command.clone());
            let word = command.split_whitespace().next().unwrap_or_default().to_uppercase();
            match word.as_str() {
                "EHLO" => self.reply(At::Ehlo, "250-hostile\r\n250 AUTH PLAIN LOGIN").await?,
                "AUTH" => self.reply(At::Auth, "235 welcome").await?,
                "MAIL" => self.reply(At::Mail, "250 ok").await?,
                "RCPT" => self.reply(At::Recipient, "250 ok").await?,
                "RSET" => self.reply(At::Reset, "250 ok").await?,
                "DATA" if self.said(At::Data).is_none() => {
                    self.reply(At::Data, "354 go on").await?;
                    self.message().await?;
                }
                "DATA" => self.reply(At::Data, "").await?,
                "QUIT" => return None,
                _ => self.write("500 what?").await?,
            }
        }
    }

    /// What it says in place of what is right, if that is what a test wants.
    fn said(&self, at: At) -> Option<Act> {
        self.whims.iter().find(|whim| whim.at == at).map(|whim| whim.act)
    }

    async fn message(&mut self) -> Option<()> {
        if self.said(At::Content).is_some() {
            self.stream.read_u8().await.ok()?;
            return self.reply(At::Content, "").await;
        }
        let mut message = String::new();
        while !message.ends_with("\r\n.\r\n") {
            if self.stream.read_line(&mut message).await.ok()? == 0 {
                return None;
            }
        }
        self.seen.lock().unwrap().messages.push(message);
        self.reply(At::Dot, "250 queued as 42").await
    }

    async fn reply(&mut self, at: At, right: &str) -> Option<()> {
        match self.said(at) {
            None => self.write(right).await,
            Some(Act::Say(said)) => self.write(said).await,
            Some(Act::Drop) => None,
            Some(Act::Hang) => std::future::pending().await,
        }
    }

    async fn write(&mut self, line: &str) -> Option<()> {
        self.stream.write_all(format!("{line}\r\n").as_bytes()).await.ok()
    }
}
