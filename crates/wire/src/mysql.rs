//! The client's side of the MySQL client/server protocol, as MariaDB speaks it: bytes to values and
//! back, no sockets.
//!
//! # Mechanism
//! Everything travels in [packets](packet): three bytes of length, one that counts the packets of
//! an exchange, then the payload. The server speaks first, with a [greeting](handshake::greeting);
//! the client [logs in](handshake::encode_login); the server says OK, or an error, or asks for
//! another way to prove the password. From then on the client asks and the server answers:
//!
//! ```text
//! client  0  COM_QUERY "SELECT a, b FROM t"
//! server  1  2 columns
//! server  2  definition of a           skipped: every value comes as text
//! server  3  definition of b
//! server  4  "7" NULL                  a row
//! server  5  end, with the status      OK in EOF's place, or EOF
//! ```
//!
//! A statement without rows is answered by one OK. Either may be an error instead, and rows may end
//! in one. The status says whether a transaction is open and whether another answer follows.
//!
//! # Limits
//! Protocol 4.1 with `mysql_native_password`; no TLS, no compression, no prepared statements, no
//! `LOAD DATA LOCAL`, none of MariaDB's extended capabilities. The old EOF, also between
//! definitions and rows, is understood, for servers that do not leave it out when asked.
//!
//! Source: MariaDB Server documentation, "Clients & Utilities / Server Client Programs / Client
//! Server Protocol"; MySQL Source Code Documentation, "Client/Server Protocol".

pub mod authentication;
mod fields;
pub mod handshake;
pub mod packet;
pub mod response;
