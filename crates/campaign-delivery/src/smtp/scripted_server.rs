//! An SMTP server for tests that injects a scripted fault at a given point of the protocol.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The point of the protocol at which the server injects a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SmtpFaultPoint {
    Greeting,
    Ehlo,
    Auth,
    Mail,
    Recipient,
    Data,
    /// In the middle of the message, before its end.
    Content,
    EndOfData,
    Reset,
}

/// The fault that the server injects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SmtpFault {
    /// It sends this reply in place of the regular one.
    Reply(&'static str),
    /// It closes the connection.
    Disconnect,
    /// It neither replies nor reads any more.
    Hang,
}

/// A fault with its connection and its point of the protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptedFault {
    /// Number of the connection, counted from 0; `None` for all connections.
    pub(crate) connection: Option<usize>,
    pub(crate) point: SmtpFaultPoint,
    pub(crate) fault: SmtpFault,
}

/// What the server has recorded.
#[derive(Debug, Default)]
pub(crate) struct SmtpServerLog {
    pub(crate) connections: usize,
    /// Messages received completely.
    pub(crate) messages: Vec<String>,
    pub(crate) commands: Vec<String>,
    /// Number of connections that have ended.
    pub(crate) closed: usize,
}

pub(crate) struct ScriptedSmtpServer {
    pub(crate) port: u16,
    pub(crate) log: Arc<Mutex<SmtpServerLog>>,
}

impl ScriptedSmtpServer {
    pub(crate) async fn start(faults: Vec<ScriptedFault>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let log = Arc::new(Mutex::new(SmtpServerLog::default()));
        let server_log = Arc::clone(&log);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = {
                    let mut log = server_log.lock().unwrap();
                    log.connections += 1;
                    log.connections - 1
                };
                let applies =
                    |fault: &&ScriptedFault| fault.connection.is_none_or(|it| it == number);
                let faults: Vec<ScriptedFault> = faults.iter().filter(applies).copied().collect();
                tokio::spawn(
                    ScriptedSmtpSession {
                        stream: BufReader::new(stream),
                        faults,
                        log: Arc::clone(&server_log),
                    }
                    .serve_session(),
                );
            }
        });
        Self { port, log }
    }

    pub(crate) async fn start_with_fault(point: SmtpFaultPoint, fault: SmtpFault) -> Self {
        Self::start(vec![ScriptedFault {
            connection: None,
            point,
            fault,
        }])
        .await
    }

    pub(crate) fn message_count(&self) -> usize {
        self.log.lock().unwrap().messages.len()
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.log.lock().unwrap().connections
    }
}

struct ScriptedSmtpSession {
    stream: BufReader<TcpStream>,
    faults: Vec<ScriptedFault>,
    log: Arc<Mutex<SmtpServerLog>>,
}

impl ScriptedSmtpSession {
    async fn serve_session(mut self) {
        // A client that disconnects ends the session.
        let _ = self.reply_to_commands().await;
        self.log.lock().unwrap().closed += 1;
    }

    async fn reply_to_commands(&mut self) -> Option<()> {
        self.send_reply(SmtpFaultPoint::Greeting, "220 scripted ready")
            .await?;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let command = line.trim_end().to_owned();
            self.log.lock().unwrap().commands.push(command.clone());
            let verb = command
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_uppercase();
            match verb.as_str() {
                "EHLO" => {
                    self.send_reply(SmtpFaultPoint::Ehlo, "250-scripted\r\n250 AUTH PLAIN LOGIN")
                        .await?
                }
                "AUTH" => self.send_reply(SmtpFaultPoint::Auth, "235 welcome").await?,
                "MAIL" => self.send_reply(SmtpFaultPoint::Mail, "250 ok").await?,
                "RCPT" => self.send_reply(SmtpFaultPoint::Recipient, "250 ok").await?,
                "RSET" => self.send_reply(SmtpFaultPoint::Reset, "250 ok").await?,
                "DATA" if self.fault_at(SmtpFaultPoint::Data).is_none() => {
                    self.send_reply(SmtpFaultPoint::Data, "354 send the message")
                        .await?;
                    self.receive_message().await?;
                }
                "DATA" => self.send_reply(SmtpFaultPoint::Data, "").await?,
                "QUIT" => return None,
                _ => self.write_line("500 unknown command").await?,
            }
        }
    }

    /// Returns the fault scripted for this point, if any.
    fn fault_at(&self, point: SmtpFaultPoint) -> Option<SmtpFault> {
        self.faults
            .iter()
            .find(|fault| fault.point == point)
            .map(|fault| fault.fault)
    }

    async fn receive_message(&mut self) -> Option<()> {
        if self.fault_at(SmtpFaultPoint::Content).is_some() {
            self.stream.read_u8().await.ok()?;
            return self.send_reply(SmtpFaultPoint::Content, "").await;
        }
        let mut message = String::new();
        while !message.ends_with("\r\n.\r\n") {
            if self.stream.read_line(&mut message).await.ok()? == 0 {
                return None;
            }
        }
        self.log.lock().unwrap().messages.push(message);
        self.send_reply(SmtpFaultPoint::EndOfData, "250 queued as 42")
            .await
    }

    async fn send_reply(&mut self, point: SmtpFaultPoint, reply: &str) -> Option<()> {
        match self.fault_at(point) {
            None => self.write_line(reply).await,
            Some(SmtpFault::Reply(scripted)) => self.write_line(scripted).await,
            Some(SmtpFault::Disconnect) => None,
            Some(SmtpFault::Hang) => std::future::pending().await,
        }
    }

    async fn write_line(&mut self, line: &str) -> Option<()> {
        self.stream
            .write_all(format!("{line}\r\n").as_bytes())
            .await
            .ok()
    }
}
