//! The client's side of the protocol of `BaseX` 9 (documentation, page "Server Protocol").
//!
//! Texts end with a zero byte; a zero byte and 0xFF within are preceded by 0xFF. The server greets
//! with a realm and a nonce, and the client proves with `md5(md5(user:realm:password) nonce)` that
//! it knows the password. A command is a text; the answer is its result, information about it, and
//! a byte that is 0 if it succeeded.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use md5::{Digest, Md5};
use tidegate_workload::Failure;

/// How long an answer may take. The longest is that to the making of a database.
const ANSWER_BOUND: Duration = Duration::from_secs(600);

/// The byte in front of one that ends texts, or of itself.
const ESCAPE: u8 = 0xFF;

/// The command that makes a database from the text behind it.
const CREATE: u8 = 8;

/// Longest text of the server that is taken, in bytes.
const ANSWER_MAX: usize = 1 << 30;

/// A connection that has logged in.
#[derive(Debug)]
pub struct BasexConnection {
    input: BufReader<TcpStream>,
    output: BufWriter<TcpStream>,
}

fn lost(error: &io::Error) -> Failure {
    Failure::Lost(error.to_string())
}

impl BasexConnection {
    /// Connects to a server on 127.0.0.1.
    ///
    /// # Errors
    /// There is none, or it refuses the user.
    pub fn open(port: u16, user: &str, password: &str) -> Result<BasexConnection, Failure> {
        let (mut connection, greeting) = BasexConnection::greeted(port).map_err(|e| lost(&e))?;
        let reply = proof(user, password, &greeting);
        let is_in = connection.log_in(user, &reply).map_err(|error| lost(&error))?;
        if is_in {
            return Ok(connection);
        }
        Err(Failure::Refused {
            code: "login".to_owned(),
            message: format!("BaseX does not let {user} in; check the password"),
        })
    }

    fn greeted(port: u16) -> io::Result<(BasexConnection, String)> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_BOUND))?;
        let input = BufReader::with_capacity(1 << 16, stream.try_clone()?);
        let mut connection = BasexConnection { input, output: BufWriter::new(stream) };
        let greeting = connection.text()?;
        Ok((connection, greeting))
    }

    fn log_in(&mut self, user: &str, proof: &str) -> io::Result<bool> {
        self.send(user)?;
        self.send(proof)?;
        self.output.flush()?;
        Ok(self.byte()? == 0)
    }

    /// Runs a command and returns its result.
    ///
    /// # Errors
    /// [`Failure::Refused`] with what the server says, or the connection is lost.
    pub fn command(&mut self, command: &str) -> Result<String, Failure> {
        let (result, information, is_done) =
            self.exchange(command).map_err(|error| lost(&error))?;
        if is_done { Ok(result) } else { Err(refused(&information)) }
    }

    /// Evaluates a query as a transaction and returns its result as text.
    ///
    /// # Errors
    /// As [`BasexConnection::command`].
    pub fn query(&mut self, query: &str) -> Result<String, Failure> {
        self.command(&format!("XQUERY {query}"))
    }

    /// Makes a database from a document.
    ///
    /// # Errors
    /// As [`BasexConnection::command`], or the document cannot be read.
    pub fn create(&mut self, name: &str, document: impl BufRead) -> Result<(), Failure> {
        let (information, is_done) =
            self.exchange_document(name, document).map_err(|error| lost(&error))?;
        if is_done { Ok(()) } else { Err(refused(&information)) }
    }

    fn exchange(&mut self, command: &str) -> io::Result<(String, String, bool)> {
        self.send(command)?;
        self.output.flush()?;
        Ok((self.text()?, self.text()?, self.byte()? == 0))
    }

    fn exchange_document(
        &mut self,
        name: &str,
        mut document: impl BufRead,
    ) -> io::Result<(String, bool)> {
        self.output.write_all(&[CREATE])?;
        self.send(name)?;
        loop {
            let part = document.fill_buf()?;
            if part.is_empty() {
                break;
            }
            write_escaped(&mut self.output, part)?;
            let read = part.len();
            document.consume(read);
        }
        self.output.write_all(&[0])?;
        self.output.flush()?;
        Ok((self.text()?, self.byte()? == 0))
    }

    fn send(&mut self, text: &str) -> io::Result<()> {
        write_escaped(&mut self.output, text.as_bytes())?;
        self.output.write_all(&[0])
    }

    fn byte(&mut self) -> io::Result<u8> {
        let first = self.input.fill_buf()?.first().copied();
        let byte = first.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.input.consume(1);
        Ok(byte)
    }

    /// Reads a text of the server.
    fn text(&mut self) -> io::Result<String> {
        let invalid = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut bytes = Vec::new();
        loop {
            match self.byte()? {
                0 => break,
                ESCAPE => bytes.push(self.byte()?),
                byte => bytes.push(byte),
            }
            if bytes.len() > ANSWER_MAX {
                return Err(invalid("BaseX sends a text that is too long"));
            }
        }
        String::from_utf8(bytes).map_err(|_| invalid("BaseX sends a text that is not UTF-8"))
    }
}

fn write_escaped(output: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    for part in bytes.split_inclusive(|byte| matches!(*byte, 0 | ESCAPE)) {
        match part.split_last() {
            Some((&last @ (0 | ESCAPE), front)) => {
                output.write_all(front)?;
                output.write_all(&[ESCAPE, last])?;
            }
            _ => output.write_all(part)?,
        }
    }
    Ok(())
}

/// Returns an error with the code that is in brackets in what the server says, if there is one.
fn refused(information: &str) -> Failure {
    let in_brackets = information.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let code = in_brackets.map_or("error", |(code, _)| code).to_owned();
    Failure::Refused { code, message: information.trim().to_owned() }
}

/// Returns what proves that a user knows the password. The greeting is realm and nonce with a colon
/// between them.
fn proof(user: &str, password: &str, greeting: &str) -> String {
    let (realm, nonce) = greeting.split_once(':').unwrap_or(("", greeting));
    let known = digest(&format!("{user}:{realm}:{password}"));
    digest(&format!("{known}{nonce}"))
}

fn digest(text: &str) -> String {
    let mut digits = String::new();
    for byte in Md5::digest(text.as_bytes()) {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proof_is_that_of_the_documentation() {
        // md5(md5("admin:BaseX:admin") "1234"), by Python's hashlib.
        assert_eq!(proof("admin", "admin", "BaseX:1234"), "3b359647002d10d30bdf8f34bc38b0d0");
    }

    #[test]
    fn bytes_that_end_texts_are_escaped() {
        let mut written = Vec::new();
        write_escaped(&mut written, &[1, 0, 2, 0xFF, 0xFF, 3]).unwrap();
        assert_eq!(written, [1, 0xFF, 0, 2, 0xFF, 0xFF, 0xFF, 0xFF, 3]);
    }

    #[test]
    fn a_refusal_has_its_code() {
        let failure = refused("Stopped at ., 1/3:\n[XPST0003] Incomplete.");
        let Failure::Refused { code, message } = failure else { panic!("{failure:?}") };
        assert_eq!(code, "XPST0003");
        assert!(message.ends_with("Incomplete."));
    }
}
