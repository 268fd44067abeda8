//! A client's connection in the protocol of its server.

use std::fmt;
use std::io;

use thiserror::Error;
use tidegate_subject::client::{
    self, ServerError, TERMINATE, TransactionStatus, count, data_row, undoes, undone,
};
use tidegate_subject::{client as postgres, mysql};
use tidegate_workload::Dialect;

use super::LoadError;
use super::desk::Desk;
use super::session::{Said, Send, Talk};
use super::socket::Address;

/// Where a server is, and by that what it speaks.
#[derive(Clone, Debug)]
pub enum ServerUrl {
    /// `postgres://`
    Postgres(postgres::Url),
    /// `mysql://` or `mariadb://`
    MySql(mysql::Url),
}

impl ServerUrl {
    /// Reads a URL.
    pub(super) fn parse(text: &str) -> Result<Self, LoadError> {
        if text.starts_with("mysql://") || text.starts_with("mariadb://") {
            Ok(ServerUrl::MySql(text.parse()?))
        } else {
            Ok(ServerUrl::Postgres(text.parse()?))
        }
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self {
            ServerUrl::Postgres(_) => Dialect::Postgres,
            ServerUrl::MySql(_) => Dialect::MariaDb,
        }
    }

    /// Looks up where sockets connect.
    pub(super) fn resolve(&self) -> io::Result<Address> {
        match self {
            ServerUrl::Postgres(url) => match (url.socket_path(), &url.host) {
                (Some(path), _) => Ok(Address::Unix(path)),
                (None, postgres::Host::Tcp(host)) => Address::look_up(host, url.port),
                (None, _) => Err(io::ErrorKind::InvalidInput.into()),
            },
            ServerUrl::MySql(url) => match &url.host {
                mysql::Host::Unix(path) => Ok(Address::Unix(path.clone())),
                mysql::Host::Tcp(host) => Address::look_up(host, url.port),
            },
        }
    }
}

impl fmt::Display for ServerUrl {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerUrl::Postgres(url) => url.fmt(f),
            ServerUrl::MySql(url) => url.fmt(f),
        }
    }
}

/// A server that a client cannot go on with.
#[derive(Debug, Error)]
pub enum LineError {
    /// PostgreSQL, or what claims to be.
    #[error(transparent)]
    Postgres(#[from] client::ProtocolError),
    /// MariaDB, or what claims to be.
    #[error(transparent)]
    MySql(#[from] mysql::ProtocolError),
}

/// The protocol's state.
pub(super) enum Line {
    Postgres(client::Connection),
    MySql(mysql::Connection),
}

impl Line {
    /// A connection about to log in by the name of an application, where the protocol has such
    /// names; what is to be sent first is appended to `out`.
    pub(super) fn start(url: &ServerUrl, application: &str, out: &mut Vec<u8>) -> Self {
        match url {
            ServerUrl::Postgres(url) => {
                Line::Postgres(client::Connection::start(url, application, out))
            }
            ServerUrl::MySql(url) => Line::MySql(mysql::Connection::start(url, None)),
        }
    }

    pub(super) fn is_logged_in(&self) -> bool {
        match self {
            Line::Postgres(connection) => connection.is_logged_in(),
            Line::MySql(connection) => connection.is_logged_in(),
        }
    }

    /// Takes in what arrived, lets the talk go on, and appends what it has to say to `out`.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        talk: &mut Talk,
        desk: &mut Desk,
    ) -> Result<(), LineError> {
        match self {
            Line::Postgres(connection) => connection.receive(bytes, out, |event, out| {
                let send = on_postgres(event, talk, desk);
                encode_postgres(send, talk, out);
            })?,
            Line::MySql(connection) => connection.receive(bytes, out, |event, out| {
                let send = on_mysql(event, talk, desk);
                encode_mysql(send, talk, out);
            })?,
        }
        Ok(())
    }

    /// Appends what the talk has to say.
    pub(super) fn encode(&self, send: Send, talk: &Talk, out: &mut Vec<u8>) {
        match self {
            Line::Postgres(_) => encode_postgres(send, talk, out),
            Line::MySql(_) => encode_mysql(send, talk, out),
        }
    }
}

fn on_postgres(event: client::Event<'_>, talk: &mut Talk, desk: &mut Desk) -> Send {
    match event {
        client::Event::Row(payload) => {
            // A row of a wrong form has no columns, and the transaction misses them.
            if let Ok(columns) = data_row(payload) {
                talk.wire().borrow_mut().row(columns);
            }
            Send::Nothing
        }
        client::Event::Complete(payload) if talk.is_committing() && undoes(payload) => {
            talk.on(Said::Failed(undone()), desk)
        }
        client::Event::Complete(payload) => {
            talk.wire().borrow_mut().complete(count(payload));
            Send::Nothing
        }
        client::Event::Error(payload) => {
            talk.on(Said::Failed(ServerError::read(payload).into()), desk)
        }
        client::Event::Ready(status) => talk.on(ready(status), desk),
    }
}

fn on_mysql(event: mysql::Event<'_>, talk: &mut Talk, desk: &mut Desk) -> Send {
    match event {
        mysql::Event::Row(columns) => {
            talk.wire().borrow_mut().row(columns);
            Send::Nothing
        }
        mysql::Event::Complete(count) => {
            talk.wire().borrow_mut().complete(count);
            Send::Nothing
        }
        mysql::Event::Error(packet) => {
            talk.on(Said::Failed(mysql::ServerError::from(packet).into()), desk)
        }
        mysql::Event::Ready(status) => talk.on(ready(status), desk),
    }
}

fn ready(status: TransactionStatus) -> Said {
    Said::Ready { in_transaction: status != TransactionStatus::Idle }
}

fn encode_postgres(send: Send, talk: &Talk, out: &mut Vec<u8>) {
    encode(send, talk, out, client::encode_query, TERMINATE);
}

fn encode_mysql(send: Send, talk: &Talk, out: &mut Vec<u8>) {
    encode(send, talk, out, mysql::encode_query, mysql::QUIT);
}

fn encode(
    send: Send,
    talk: &Talk,
    out: &mut Vec<u8>,
    encode_query: impl Fn(&mut Vec<u8>, &[u8]),
    quit: &[u8],
) {
    match send {
        Send::Nothing => {}
        Send::Begin => encode_query(out, b"BEGIN"),
        Send::Commit => encode_query(out, b"COMMIT"),
        Send::Rollback => encode_query(out, b"ROLLBACK"),
        Send::Statement => {
            if let Some(text) = talk.wire().borrow_mut().take_statement() {
                encode_query(out, text);
            }
        }
        Send::Quit => out.extend_from_slice(quit),
    }
}
