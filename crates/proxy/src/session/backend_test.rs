//! A server of a tiny language that obeys the protocol: the model's truth.
//!
//! Statements: `row X` (one row), `rows` (two), `notice`, `empty`, `fail`, `begin`, `commit`,
//! `rollback`, `copy in`, `copy out`, `deallocate all`; `bad …` does not parse. Several of them
//! are separated by semicolons in a simple query. Copy data is accepted unless it says `wrong`.

use std::collections::HashMap;

use tidegate_wire::backend::{self, TransactionStatus, tag};
use tidegate_wire::error_response::{Severity, SqlState, encode_error};
use tidegate_wire::frame::HEADER_LEN;
use tidegate_wire::frontend::{self, Target};

/// Messages of the server, each whole.
pub(super) type Answer = Vec<Vec<u8>>;

/// What asked for copy data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyBy {
    Query,
    Execute,
}

struct Portal {
    sql: String,
    rows_left: u32,
}

pub(super) struct Backend {
    pub(super) statements: HashMap<Vec<u8>, String>,
    portals: HashMap<Vec<u8>, Portal>,
    pub(super) status: TransactionStatus,
    pub(super) skipping: bool,
    copy: Option<CopyBy>,
}

/// An error's code; the caller decides what it ends.
struct Failure(&'static str);

/// One message.
pub(super) fn message(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    message.extend_from_slice(&u32::try_from(payload.len() + 4).unwrap().to_be_bytes());
    message.extend_from_slice(payload);
    message
}

fn text(payload: &[u8]) -> String {
    let end = payload.iter().position(|&byte| byte == 0).unwrap_or(payload.len());
    String::from_utf8(payload[..end].to_vec()).unwrap()
}

fn is_exit(sql: &str) -> bool {
    matches!(sql, "commit" | "rollback")
}

impl Backend {
    pub(super) fn new() -> Self {
        Backend {
            statements: HashMap::new(),
            portals: HashMap::new(),
            status: TransactionStatus::Idle,
            skipping: false,
            copy: None,
        }
    }

    pub(super) fn is_in_copy(&self) -> bool {
        self.copy.is_some()
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.status == TransactionStatus::Idle && !self.skipping && self.copy.is_none()
    }

    /// Acts on one message and answers it.
    pub(super) fn take(&mut self, message: &[u8]) -> Answer {
        let (tag, payload) = (message[0], &message[HEADER_LEN..]);
        let mut out = Answer::new();
        if let Some(by) = self.copy {
            self.copy_message(by, tag, payload, &mut out);
            return out;
        }
        match tag {
            frontend::tag::SYNC => {
                self.skipping = false;
                self.ready(&mut out);
            }
            _ if self.skipping => {}
            frontend::tag::QUERY => self.query(&text(payload), &mut out),
            frontend::tag::COPY_DATA | frontend::tag::COPY_DONE | frontend::tag::COPY_FAIL => {}
            _ => {
                if let Err(Failure(code)) = self.extended(tag, payload, &mut out) {
                    self.skipping = true;
                    self.fail(code, &mut out);
                }
            }
        }
        out
    }

    fn ready(&mut self, out: &mut Answer) {
        if self.status == TransactionStatus::Idle {
            self.portals.clear();
        }
        let mut ready = Vec::new();
        backend::encode_ready_for_query(&mut ready, self.status);
        out.push(ready);
    }

    fn fail(&mut self, code: &str, out: &mut Answer) {
        if self.status == TransactionStatus::InBlock {
            self.status = TransactionStatus::Failed;
        }
        let mut error = Vec::new();
        encode_error(&mut error, Severity::Error, SqlState(code), "");
        out.push(error);
    }

    fn query(&mut self, sql: &str, out: &mut Answer) {
        self.statements.remove(&b""[..]);
        for part in sql.to_ascii_lowercase().split(';') {
            match self.run(part, u32::MAX, 0, out) {
                Ok(_) if self.copy.is_some() => {
                    self.copy = Some(CopyBy::Query);
                    return;
                }
                Ok(_) => {}
                Err(Failure(code)) => {
                    self.fail(code, out);
                    break;
                }
            }
        }
        self.ready(out);
    }

    fn extended(&mut self, tag: u8, payload: &[u8], out: &mut Answer) -> Result<(), Failure> {
        match tag {
            frontend::tag::PARSE => self.parse(payload, out),
            frontend::tag::BIND => self.bind(payload, out),
            frontend::tag::DESCRIBE => self.describe(payload, out),
            frontend::tag::EXECUTE => self.execute(payload, out),
            frontend::tag::CLOSE => {
                match frontend::target(payload).unwrap() {
                    (Target::Statement, name) => drop(self.statements.remove(name)),
                    (Target::Portal, name) => drop(self.portals.remove(name)),
                }
                out.push(message(tag::CLOSE_COMPLETE, b""));
                Ok(())
            }
            frontend::tag::FLUSH => Ok(()),
            other => panic!("the model has no message {other:#04x}"),
        }
    }

    fn may_run(&self, sql: &str) -> Result<(), Failure> {
        if self.status == TransactionStatus::Failed && !is_exit(sql) {
            return Err(Failure("25P02"));
        }
        Ok(())
    }

    fn parse(&mut self, payload: &[u8], out: &mut Answer) -> Result<(), Failure> {
        let parse = frontend::parse(payload).unwrap();
        let sql = text(parse.definition);
        if parse.name.is_empty() {
            self.statements.remove(parse.name);
        }
        if sql.starts_with("bad") {
            return Err(Failure("42601"));
        }
        self.may_run(&sql)?;
        if self.statements.contains_key(parse.name) {
            return Err(Failure("42P05"));
        }
        self.statements.insert(parse.name.to_vec(), sql);
        out.push(message(tag::PARSE_COMPLETE, b""));
        Ok(())
    }

    fn bind(&mut self, payload: &[u8], out: &mut Answer) -> Result<(), Failure> {
        let names = frontend::bind_names(payload).unwrap();
        let sql = self.statements.get(names.statement).cloned().ok_or(Failure("26000"))?;
        self.may_run(&sql)?;
        if !names.portal.is_empty() && self.portals.contains_key(names.portal) {
            return Err(Failure("42P03"));
        }
        let rows_left = if sql == "rows" { 2 } else { 1 };
        self.portals.insert(names.portal.to_vec(), Portal { sql, rows_left });
        out.push(message(tag::BIND_COMPLETE, b""));
        Ok(())
    }

    fn describe(&mut self, payload: &[u8], out: &mut Answer) -> Result<(), Failure> {
        let (target, name) = frontend::target(payload).unwrap();
        let sql = match target {
            Target::Statement => self.statements.get(name).cloned().ok_or(Failure("26000"))?,
            Target::Portal => {
                self.portals.get(name).map(|portal| portal.sql.clone()).ok_or(Failure("34000"))?
            }
        };
        self.may_run(&sql)?;
        if target == Target::Statement {
            out.push(message(tag::PARAMETER_DESCRIPTION, b"\0\0"));
        }
        let has_rows = sql.starts_with("row");
        out.push(message(if has_rows { tag::ROW_DESCRIPTION } else { tag::NO_DATA }, b"\0\0"));
        Ok(())
    }

    fn execute(&mut self, payload: &[u8], out: &mut Answer) -> Result<(), Failure> {
        let name = text(payload).into_bytes();
        let portal = self.portals.get(&name).ok_or(Failure("34000"))?;
        let (sql, rows_left) = (portal.sql.clone(), portal.rows_left);
        let limit = u32::from(payload[payload.len() - 1]);
        let done = self.run(&sql, rows_left, limit, out)?;
        if let Some(portal) = self.portals.get_mut(&name) {
            portal.rows_left -= done;
        }
        if self.copy.is_some() {
            self.copy = Some(CopyBy::Execute);
        }
        Ok(())
    }

    /// Runs a statement, at most `limit` rows of it unless that is 0; the rows it gave.
    fn run(
        &mut self,
        sql: &str,
        rows_left: u32,
        limit: u32,
        out: &mut Answer,
    ) -> Result<u32, Failure> {
        self.may_run(sql)?;
        let complete =
            |text: &str| message(tag::COMMAND_COMPLETE, &[text.as_bytes(), b"\0"].concat());
        match sql {
            "begin" => self.status = TransactionStatus::InBlock,
            "commit" | "rollback" => {
                self.status = TransactionStatus::Idle;
                self.portals.clear();
            }
            "fail" => return Err(Failure("22012")),
            "empty" => {
                out.push(message(tag::EMPTY_QUERY, b""));
                return Ok(0);
            }
            "notice" => out.push(message(tag::NOTICE, b"\0")),
            "deallocate all" => {
                self.statements.retain(|name, _| name.is_empty());
                out.push(complete("DEALLOCATE ALL"));
                return Ok(0);
            }
            "copy in" => {
                self.copy = Some(CopyBy::Query);
                out.push(message(tag::COPY_IN, b"\0\0\0"));
                return Ok(0);
            }
            "copy out" => {
                out.push(message(tag::COPY_OUT, b"\0\0\0"));
                out.push(message(frontend::tag::COPY_DATA, b"x\n"));
                out.push(message(frontend::tag::COPY_DONE, b""));
            }
            rows => {
                let all = rows_left.min(if rows == "rows" { 2 } else { 1 });
                let is_cut = (1..=all).contains(&limit);
                let given = if is_cut { limit } else { all };
                let row = || message(tag::DATA_ROW, rows.as_bytes());
                out.extend((0..given).map(|_| row()));
                if is_cut {
                    out.push(message(tag::PORTAL_SUSPENDED, b""));
                } else {
                    out.push(complete("SELECT"));
                }
                return Ok(given);
            }
        }
        out.push(complete(sql));
        Ok(0)
    }

    fn copy_message(&mut self, by: CopyBy, tag: u8, payload: &[u8], out: &mut Answer) {
        let failure = match tag {
            frontend::tag::COPY_DATA if payload == b"wrong" => Some("22P02"),
            frontend::tag::COPY_FAIL => Some("57014"),
            frontend::tag::COPY_DONE => None,
            frontend::tag::COPY_DATA | frontend::tag::SYNC | frontend::tag::FLUSH => return,
            other => panic!("{other:#04x} where copy data is expected"),
        };
        self.copy = None;
        match failure {
            Some(code) => {
                self.skipping = by == CopyBy::Execute;
                self.fail(code, out);
            }
            None => out.push(message(tag::COMMAND_COMPLETE, b"COPY\0")),
        }
        if by == CopyBy::Query {
            self.ready(out);
        }
    }
}
