//! Parses the URL of a database: the server's address, and whether the connection is encrypted.
//!
//! The URL contains a password, so no function here repeats any part of it, not even in an error
//! message.

use std::net::IpAddr;

use onward_store::Error;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

const EXPECTED_URL_FORMAT: &str =
    "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE, with special characters as %XX";

/// Whether the connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostgresTransport {
    /// Unencrypted connection.
    Plain,
    /// TLS; the server must present a certificate for its name that this machine trusts.
    Tls,
}

/// Address of a database and the transport to reach it.
#[derive(Clone)]
pub(crate) struct PostgresAddress {
    pub(crate) config: Config,
    pub(crate) transport: PostgresTransport,
}

impl PostgresAddress {
    /// Parses a URL. Without `sslmode`, a server on this machine is reached without encryption and
    /// any other server with TLS.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let (url, wanted) = extract_ssl_mode(url)?;
        let mut config: Config = url.parse().map_err(|_| {
            Error::Unusable(format!(
                "the URL of the store is invalid: {EXPECTED_URL_FORMAT}"
            ))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(Error::Unusable(format!(
                "the URL of the store has no host: {EXPECTED_URL_FORMAT}"
            )));
        }
        let transport = wanted.unwrap_or_else(|| {
            if is_loopback_only(&config) {
                PostgresTransport::Plain
            } else {
                PostgresTransport::Tls
            }
        });
        config.ssl_mode(if transport == PostgresTransport::Tls {
            SslMode::Require
        } else {
            SslMode::Disable
        });
        if config.get_application_name().is_none() {
            config.application_name("onward");
        }
        Ok(Self { config, transport })
    }
}

/// Splits the URL into the part without `sslmode` and the transport that `sslmode` requests. The
/// client library does not support all values of `sslmode`.
fn extract_ssl_mode(url: &str) -> Result<(String, Option<PostgresTransport>), Error> {
    // A password may contain any character but `@`.
    let credentials = url.find('@').unwrap_or(0);
    let Some((place, query)) = url[credentials..].split_once('?') else {
        return Ok((url.to_owned(), None));
    };
    let place = format!("{}{place}", &url[..credentials]);
    let mut wanted = None;
    let mut rest = Vec::new();
    for parameter in query.split('&') {
        match parameter.strip_prefix("sslmode=") {
            None => rest.push(parameter),
            Some("disable") => wanted = Some(PostgresTransport::Plain),
            Some("require" | "verify-ca" | "verify-full") => wanted = Some(PostgresTransport::Tls),
            Some(_) => {
                return Err(Error::Unusable(
                    "unsupported sslmode in the URL of the store: expected disable, require or verify-full"
                        .to_owned(),
                ));
            }
        }
    }
    let separator = if rest.is_empty() { "" } else { "?" };
    Ok((format!("{place}{separator}{}", rest.join("&")), wanted))
}

/// Returns `true` if all hosts are this machine.
fn is_loopback_only(config: &Config) -> bool {
    let is_local = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse()
                    .is_ok_and(|address: IpAddr| address.is_loopback())
        }
        Host::Unix(_) => true,
    };
    config.get_hosts().iter().all(is_local)
        && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::{PostgresAddress, PostgresTransport};

    fn transport(url: &str) -> PostgresTransport {
        PostgresAddress::parse(url).unwrap().transport
    }

    #[test]
    fn a_remote_server_is_reached_with_tls_by_default() {
        assert_eq!(
            transport("postgres://onward@127.0.0.1:5432/onward"),
            PostgresTransport::Plain
        );
        assert_eq!(
            transport("postgres://onward@localhost/onward"),
            PostgresTransport::Plain
        );
        assert_eq!(
            transport("postgres://onward@[::1]/onward"),
            PostgresTransport::Plain
        );
        assert_eq!(
            transport("postgresql://onward@%2Frun%2Fpostgresql/onward"),
            PostgresTransport::Plain
        );
        assert_eq!(
            transport("postgres://onward@db.example/onward"),
            PostgresTransport::Tls
        );
        assert_eq!(
            transport("postgres://onward@localhost,db.example/onward"),
            PostgresTransport::Tls
        );
        assert_eq!(
            transport("postgres://onward@db.example/onward?sslmode=disable"),
            PostgresTransport::Plain
        );
        for mode in ["require", "verify-ca", "verify-full"] {
            assert_eq!(
                transport(&format!(
                    "postgres://onward@localhost/onward?sslmode={mode}"
                )),
                PostgresTransport::Tls
            );
        }
    }

    #[test]
    fn other_url_parameters_are_kept() {
        let address = PostgresAddress::parse(
            "postgres://u@h/d?connect_timeout=3&sslmode=disable&application_name=x",
        )
        .unwrap();
        assert_eq!(address.config.get_application_name(), Some("x"));
        assert_eq!(
            address
                .config
                .get_connect_timeout()
                .map(|timeout| timeout.as_secs()),
            Some(3)
        );
    }

    #[test]
    fn a_password_with_special_characters_is_kept() {
        let address =
            PostgresAddress::parse("postgres://u:a?sslmode=none&b@localhost/d?sslmode=disable")
                .unwrap();
        assert_eq!(
            address.config.get_password(),
            Some(b"a?sslmode=none&b".as_slice())
        );
        assert_eq!(address.config.get_dbname(), Some("d"));
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        for url in [
            "postgres://onward:secret@localhost:port/onward",
            "postgres://onward:secret@/onward",
            "postgres://onward:secret@localhost/onward?sslmode=prefer",
            "postgres://onward:secret@localhost/onward?secret=1",
            "mysql://onward:secret@localhost/onward",
            "",
        ] {
            let Err(error) = PostgresAddress::parse(url) else {
                panic!("{url} was read")
            };
            assert_eq!(error.kind(), onward_store::StoreErrorKind::Fatal);
            assert!(!error.to_string().contains("cret"), "{error}");
        }
    }
}
