//! Messages that name prepared statements, on their way to a shared connection.

use std::sync::Arc;

use tidegate_wire::frontend::{self, BindNames, Target};
use tidegate_wire::input::Message;

use super::{DEALLOCATE_STAND_IN, REFUSED, ServerSession, Violation, deallocate};
use crate::config::SessionStatePolicy;
use crate::net::BatchOutput;
use crate::replies::ExpectedReply;
use crate::session_state::look::{self, Look};
use crate::session_state::{self, CustomNames, Kinds};
use crate::statements::{self, ClientStatements, Definitions, Statement};

/// The messages that name statements, on their way to a shared connection.
pub(super) struct Translation<'a, 'b> {
    pub(super) statements: &'a mut ClientStatements,
    pub(super) custom_names: &'a mut CustomNames,
    pub(super) search_path: Option<&'a str>,
    pub(super) server: &'a mut ServerSession,
    pub(super) prepared_max: usize,
    pub(super) policy: SessionStatePolicy,
    pub(super) out: &'a mut BatchOutput<'b>,
}

impl Translation<'_, '_> {
    pub(super) fn parse(
        &mut self,
        message: &Message<'_>,
        definitions: &mut Definitions,
    ) -> Result<(), Violation> {
        let payload = message.payload();
        // A long unnamed Parse comes in pieces; its name is at the head.
        if let Some((0, definition)) = payload.split_first() {
            self.parse_unnamed(message, definition);
            return Ok(());
        }
        if payload.len() < message.announced_payload_len() {
            return self.parse_in_pieces(message, definitions);
        }
        let Ok(parse) = frontend::parse(payload) else {
            return self.pass_malformed(message, ExpectedReply::ParseTaken);
        };
        if let Some(existing) = self.statements.get(parse.name).cloned() {
            self.parse_again(&existing, parse.definition);
            return Ok(());
        }
        if self.statements.is_full() {
            return Err(Violation::TooManyStatements);
        }
        let statement = definitions.intern(parse.definition, self.search_path);
        if let Some(refused) = session_state::refused(self.policy, &statement.look) {
            self.refuse_parse(refused);
            return Ok(());
        }
        if self.server.statements.prepared.touch(statement.id) {
            self.server.replies.sent(ExpectedReply::ProxyParse(statement.id));
        } else {
            let owed = ExpectedReply::Parse(Some(statement.id));
            self.server.passed.prepared += 1;
            self.prepare(&statement, parse.definition, owed);
        }
        let batch = self.server.replies.batch();
        self.statements.change(parse.name, Some(statement), batch);
        Ok(())
    }

    /// Parses a named statement of which only the beginning has arrived.
    pub(super) fn parse_in_pieces(
        &mut self,
        message: &Message<'_>,
        definitions: &mut Definitions,
    ) -> Result<(), Violation> {
        let name = frontend::statement_name(message.payload());
        let name = name.map_err(|_| Violation::NameTooLong)?;
        let (statement, owed) = if let Some(existing) = self.statements.get(name).cloned() {
            // The server itself says that the name is taken.
            self.ensure_prepared(&existing);
            (existing, ExpectedReply::ParseTaken)
        } else if self.statements.is_full() {
            return Err(Violation::TooManyStatements);
        } else {
            let statement = definitions.long();
            let batch = self.server.replies.batch();
            self.statements.change(name, Some(Arc::clone(&statement)), batch);
            self.server.holds_long_statement = true;
            let owed = ExpectedReply::Parse(Some(statement.id));
            (statement, owed)
        };
        let rest_len = message.announced_payload_len() - (name.len() + 1);
        frontend::encode_parse_head(self.out.spill(), &statement.server_name, rest_len);
        match owed {
            ExpectedReply::Parse(_) => self.server.named_sent(owed),
            _ => self.server.replies.sent(owed),
        }
        self.out.pass(message.payload_range(name.len() + 1));
        Ok(())
    }

    /// Passes on a message that the server refuses: it says why, and skips to the next Sync.
    pub(super) fn pass_malformed(
        &mut self,
        message: &Message<'_>,
        owed: ExpectedReply,
    ) -> Result<(), Violation> {
        // What has not arrived may put it right, so that it could do what its name says.
        if message.payload().len() < message.announced_payload_len() {
            return Err(Violation::NameTooLong);
        }
        self.server.replies.sent(owed);
        self.out.pass(message.range());
        Ok(())
    }

    /// Parses the unnamed statement, of whose definition there is as much as has arrived.
    pub(super) fn parse_unnamed(&mut self, message: &Message<'_>, definition: &[u8]) {
        let is_whole = message.payload().len() == message.announced_payload_len();
        let look = self.look_at_unnamed(definition);
        if let Some(refused) = session_state::refused(self.policy, &look).filter(|_| is_whole) {
            self.statements.forget_unnamed();
            self.server.statements.unnamed_is_current = false;
            return self.refuse_parse(refused);
        }
        self.server.watch.notice_release(look);
        let text = statements::query_of(definition);
        if is_whole && deallocate(text, self.statements, self.server, self.out) {
            let definition = frontend::definition(DEALLOCATE_STAND_IN);
            self.statements.change_unnamed(Some(&definition));
            frontend::encode_parse(self.out.spill(), b"", &definition);
            self.server.change_unnamed();
            self.server.replies.sent(ExpectedReply::Parse(None));
            return;
        }
        let parsed = frontend::parse(message.payload());
        self.statements.change_unnamed(parsed.ok().map(|parse| parse.definition));
        if !is_whole {
            self.server.watch.expect_rest();
        }
        self.server.change_unnamed();
        self.server.replies.sent(ExpectedReply::Parse(None));
        self.out.pass(message.range());
    }

    /// Looks at the unnamed statement; what it may leave behind counts when it is bound.
    pub(super) fn look_at_unnamed(&mut self, definition: &[u8]) -> Look {
        let mut names = Vec::new();
        let look = look::look(statements::query_of(definition), &mut names);
        self.server.watch.set_unnamed(look);
        self.server.watch.notice_names(&names, self.custom_names);
        look
    }

    pub(super) fn refuse_parse(&mut self, refused: Kinds) {
        frontend::encode_parse(self.out.spill(), b"", &frontend::definition(REFUSED));
        self.server.replies.sent(ExpectedReply::RefusedParse(refused));
    }

    /// The name is taken: the server itself says so when it sees its own name a second time, unless
    /// it has more to say against the text.
    pub(super) fn parse_again(&mut self, existing: &Statement, definition: &[u8]) {
        self.ensure_prepared(existing);
        frontend::encode_parse(self.out.spill(), &existing.server_name, definition);
        self.server.replies.sent(ExpectedReply::ParseTaken);
    }

    pub(super) fn bind(&mut self, message: &Message<'_>) -> Result<(), Violation> {
        let Ok(names) = frontend::bind_names(message.payload()) else {
            return self.pass_malformed(message, ExpectedReply::Bind);
        };
        let statement = self.resolve(names.statement);
        self.notice_bound(names.statement);
        self.server.replies.sent(ExpectedReply::Bind);
        let Some(statement) = statement else {
            self.out.pass(message.range());
            return Ok(());
        };
        // The names were read from the payload, so they are no longer than it.
        let rest_len = message.announced_payload_len() - names.encoded_len();
        let rest = message.payload_range(names.encoded_len());
        let names = BindNames { portal: names.portal, statement: &statement };
        frontend::encode_bind_head(self.out.spill(), names, rest_len);
        self.out.pass(rest);
        Ok(())
    }

    /// The statement that the client calls `name` is about to run.
    pub(super) fn notice_bound(&mut self, name: &[u8]) {
        if name.is_empty() {
            self.server.watch.notice_unnamed();
        } else if let Some(statement) = self.statements.get(name) {
            self.server.watch.notice(statement.look);
            self.server.watch.notice_names(&statement.custom_names, self.custom_names);
        }
    }

    pub(super) fn describe(&mut self, message: &Message<'_>) -> Result<(), Violation> {
        let Ok((target, name)) = frontend::target(message.payload()) else {
            return self.pass_malformed(message, ExpectedReply::Describe);
        };
        let statement = match target {
            Target::Statement => self.resolve(name),
            Target::Portal => None,
        };
        self.server.replies.sent(ExpectedReply::Describe);
        match statement {
            Some(name) => frontend::encode_describe(self.out.spill(), target, &name),
            None => self.out.pass(message.range()),
        }
        Ok(())
    }

    pub(super) fn close(&mut self, message: &Message<'_>) -> Result<(), Violation> {
        let Ok((target, name)) = frontend::target(message.payload()) else {
            return self.pass_malformed(message, ExpectedReply::Close);
        };
        match target {
            Target::Statement if !name.is_empty() => {
                // Others may use the server's statement; only this client's name for it goes.
                let long = self.statements.get(name).filter(|it| it.definition.is_none()).cloned();
                if let Some(long) = long {
                    frontend::encode_close(self.out.spill(), target, &long.server_name);
                    self.server.named_sent(ExpectedReply::OwnClose(Some(long.id)));
                }
                self.statements.change(name, None, self.server.replies.batch());
                self.server.replies.sent(ExpectedReply::ProxyClose);
            }
            Target::Statement => {
                self.statements.change_unnamed(None);
                self.server.change_unnamed();
                self.server.replies.sent(ExpectedReply::CloseUnnamed);
                self.out.pass(message.range());
            }
            Target::Portal => {
                self.server.replies.sent(ExpectedReply::Close);
                self.out.pass(message.range());
            }
        }
        Ok(())
    }

    /// Makes sure that the statement the client calls `name` is on the connection; its name there,
    /// where it differs. A name the proxy does not know may be one made by SQL's PREPARE.
    pub(super) fn resolve(&mut self, name: &[u8]) -> Option<Box<[u8]>> {
        if name.is_empty() {
            self.ensure_unnamed();
            return None;
        }
        let statement = self.statements.get(name).cloned()?;
        self.ensure_prepared(&statement);
        Some(statement.server_name.clone())
    }

    pub(super) fn ensure_prepared(&mut self, statement: &Statement) {
        // One whose definition is not kept is on the connection that its client keeps.
        let Some(definition) = &statement.definition else { return };
        if !self.server.statements.prepared.touch(statement.id) {
            self.server.own_parses += 1;
            self.prepare(statement, definition, ExpectedReply::OwnParse(Some(statement.id)));
        }
    }

    pub(super) fn prepare(
        &mut self,
        statement: &Statement,
        definition: &[u8],
        owed: ExpectedReply,
    ) {
        if let Some(evicted) = self.server.statements.prepared.evict(self.prepared_max) {
            let name = statements::server_name(evicted);
            frontend::encode_close(self.out.spill(), Target::Statement, &name);
            self.server.named_sent(ExpectedReply::OwnClose(Some(evicted)));
        }
        frontend::encode_parse(self.out.spill(), &statement.server_name, definition);
        self.server.statements.prepared.insert(statement.id);
        self.server.named_sent(owed);
    }

    /// The connection's unnamed statement may be another client's: it must not run for this one.
    pub(super) fn ensure_unnamed(&mut self) {
        if self.server.statements.unnamed_is_current {
            return;
        }
        self.server.change_unnamed();
        if let Some(definition) = self.statements.unnamed() {
            let look = look::look(statements::query_of(definition), &mut Vec::new());
            self.server.watch.set_unnamed(look);
            frontend::encode_parse(self.out.spill(), b"", definition);
            self.server.own_parses += 1;
            self.server.replies.sent(ExpectedReply::OwnParse(None));
        } else {
            frontend::encode_close(self.out.spill(), Target::Statement, b"");
            self.server.replies.sent(ExpectedReply::OwnClose(None));
        }
    }
}
