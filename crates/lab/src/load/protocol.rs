//! A client's connection in the protocol of its server.

use std::io;

use thiserror::Error;
use tidegate_subject::client::{
    self, ServerError, TERMINATE, TransactionStatus, count, data_row, undoes, undone,
};
use tidegate_subject::mysql;
use tidegate_subject::url::{Host, Protocol, Url};

use super::LoadError;
use super::client_state::{ClientState, NextMessage, ServerEvent};
use super::dispatcher::Dispatcher;
use super::socket::Address;

/// The server that clients on sockets connect to.
pub(super) struct Server {
    pub(super) url: Url,
    pub(super) address: Address,
    protocol: Protocol,
}

impl Server {
    /// Reads a URL, and looks up its host.
    pub(super) fn find(url: &str) -> Result<Self, LoadError> {
        let url: Url = url.parse()?;
        let protocol = url.protocol()?;
        let address = match (url.socket_path(), &url.host) {
            (Some(path), _) => Ok(Address::Unix(path)),
            (None, Host::Tcp(host)) => Address::look_up(host, url.port),
            (None, Host::Unix(_) | Host::Local) => Err(io::ErrorKind::InvalidInput.into()),
        };
        match address {
            Ok(address) => Ok(Server { url, address, protocol }),
            Err(source) => Err(LoadError::Host { url: Box::new(url), source }),
        }
    }
}

/// A server that a client cannot go on with.
#[derive(Debug, Error)]
pub enum ClientProtocolError {
    /// PostgreSQL, or what claims to be.
    #[error(transparent)]
    Postgres(#[from] client::ProtocolError),
    /// MariaDB, or what claims to be.
    #[error(transparent)]
    MySql(#[from] mysql::ProtocolError),
}

pub(super) enum ClientProtocol {
    Postgres(client::Connection),
    MySql(mysql::Connection),
}

impl ClientProtocol {
    /// A connection about to log in by the name of an application, where the protocol has such
    /// names; what is to be sent first is appended to `out`.
    pub(super) fn start(server: &Server, application: &str, out: &mut Vec<u8>) -> Self {
        let url = &server.url;
        match server.protocol {
            Protocol::Postgres => {
                ClientProtocol::Postgres(client::Connection::start(url, application, out))
            }
            Protocol::MySql => ClientProtocol::MySql(mysql::Connection::start(url)),
        }
    }

    pub(super) fn is_logged_in(&self) -> bool {
        match self {
            ClientProtocol::Postgres(connection) => connection.is_logged_in(),
            ClientProtocol::MySql(connection) => connection.is_logged_in(),
        }
    }

    /// Takes in what arrived, lets the talk go on, and appends what it has to say to `out`.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        state: &mut ClientState,
        dispatcher: &mut Dispatcher,
    ) -> Result<(), ClientProtocolError> {
        match self {
            ClientProtocol::Postgres(connection) => {
                connection.receive(bytes, out, |event, out| {
                    let next = on_postgres(event, state, dispatcher);
                    encode_postgres(next, state, out);
                })?;
            }
            ClientProtocol::MySql(connection) => connection.receive(bytes, out, |event, out| {
                let next = on_mysql(event, state, dispatcher);
                encode_mysql(next, state, out);
            })?,
        }
        Ok(())
    }

    /// Appends what the talk has to say.
    pub(super) fn encode(&self, next: NextMessage, state: &ClientState, out: &mut Vec<u8>) {
        match self {
            ClientProtocol::Postgres(_) => encode_postgres(next, state, out),
            ClientProtocol::MySql(_) => encode_mysql(next, state, out),
        }
    }
}

fn on_postgres(
    event: client::Event<'_>,
    state: &mut ClientState,
    dispatcher: &mut Dispatcher,
) -> NextMessage {
    match event {
        client::Event::Row(payload) => {
            // A row of a wrong form has no columns, and the transaction misses them.
            if let Ok(columns) = data_row(payload) {
                state.wire().borrow_mut().row(columns);
            }
            NextMessage::Nothing
        }
        client::Event::Complete(payload) if state.is_committing() && undoes(payload) => {
            state.on(ServerEvent::Failed(undone()), dispatcher)
        }
        client::Event::Complete(payload) => {
            state.wire().borrow_mut().complete(count(payload));
            NextMessage::Nothing
        }
        client::Event::Error(payload) => {
            state.on(ServerEvent::Failed(ServerError::read(payload).into()), dispatcher)
        }
        client::Event::Ready(status) => state.on(ready(status), dispatcher),
    }
}

fn on_mysql(
    event: mysql::Event<'_>,
    state: &mut ClientState,
    dispatcher: &mut Dispatcher,
) -> NextMessage {
    match event {
        mysql::Event::Row(columns) => {
            state.wire().borrow_mut().row(columns);
            NextMessage::Nothing
        }
        mysql::Event::Complete(count) => {
            state.wire().borrow_mut().complete(count);
            NextMessage::Nothing
        }
        mysql::Event::Error(packet) => {
            state.on(ServerEvent::Failed(mysql::ServerError::from(packet).into()), dispatcher)
        }
        mysql::Event::Ready(status) => state.on(ready(status), dispatcher),
    }
}

fn ready(status: TransactionStatus) -> ServerEvent {
    ServerEvent::Ready { in_transaction: status != TransactionStatus::Idle }
}

fn encode_postgres(next: NextMessage, state: &ClientState, out: &mut Vec<u8>) {
    encode(next, state, out, client::encode_query, TERMINATE);
}

fn encode_mysql(next: NextMessage, state: &ClientState, out: &mut Vec<u8>) {
    encode(next, state, out, mysql::encode_query, mysql::QUIT);
}

fn encode(
    next: NextMessage,
    state: &ClientState,
    out: &mut Vec<u8>,
    encode_query: impl Fn(&mut Vec<u8>, &[u8]),
    quit: &[u8],
) {
    match next {
        NextMessage::Nothing => {}
        NextMessage::Begin => encode_query(out, b"BEGIN"),
        NextMessage::Commit => encode_query(out, b"COMMIT"),
        NextMessage::Rollback => encode_query(out, b"ROLLBACK"),
        NextMessage::Statement => {
            if let Some(text) = state.wire().borrow_mut().take_statement() {
                encode_query(out, text);
            }
        }
        NextMessage::Quit => out.extend_from_slice(quit),
    }
}
