//! Clients of the console in an event loop: see [`crate::console`].

use rustix::process::getuid;
use tidegate_wire::authentication;
use tidegate_wire::error_response::SqlState;
use tidegate_wire::frontend::tag;
use tidegate_wire::input::Input;

use crate::client::{ClientSlot, ClientState, ConsoleAccess, Requester};
use crate::console::{self, ConsoleClient, MESSAGE_LEN_MAX, Rights};
use crate::login::LoginFailure;

use super::Worker;
use super::clients::Flow;

impl Worker {
    /// Returns what a client that asks for this database may do in the console; `None` if it is no
    /// console.
    pub(super) fn console_access(
        &self,
        slot: ClientSlot,
        database: &str,
        user: &str,
    ) -> Option<ConsoleAccess> {
        if !console::DATABASES.contains(&database) || self.shared.is_configured(database) {
            return None;
        }
        let config = &self.shared.config;
        let is_among = |names: &[String]| names.iter().any(|name| name == user);
        let is_own = console::OWN_USERS.contains(&user)
            && self.clients[slot].connection.peer_user().ok() == Some(getuid().as_raw());
        Some(if is_own {
            ConsoleAccess::Own
        } else if is_among(&config.admin_users) {
            ConsoleAccess::Proved(Rights::Admin)
        } else if is_among(&config.stats_users) {
            ConsoleAccess::Proved(Rights::Stats)
        } else {
            ConsoleAccess::Denied
        })
    }

    /// Lets a client into the console that is who it says it is, after `out`.
    pub(super) fn admit_to_console(
        &mut self,
        slot: ClientSlot,
        user: Box<str>,
        access: ConsoleAccess,
        mut out: Vec<u8>,
    ) {
        let rights = match access {
            ConsoleAccess::Own => Rights::Admin,
            ConsoleAccess::Proved(rights) => rights,
            ConsoleAccess::Denied => {
                let code = SqlState::INVALID_AUTHORIZATION;
                let message = format!(
                    "not allowed: user \"{user}\" is neither in admin_users nor in stats_users"
                );
                return self.fail_login(slot, LoginFailure::Console, code, &message);
            }
        };
        let requester = Requester { worker: self.index, client: slot };
        let started = ConsoleClient::start(&self.in_force, requester, (user, rights));
        let console = match started {
            Ok(console) => console,
            Err(error) => {
                let (code, message) = (SqlState::TOO_MANY_CONNECTIONS, error.to_string());
                return self.fail_login(slot, LoginFailure::Console, code, &message);
            }
        };
        self.accept_applicant(slot);
        authentication::encode_ok(&mut out);
        console::greet(&mut out, &self.clients[slot].key.shown());
        self.clients[slot].state = ClientState::Console(console);
        self.send_to_client(slot, &out);
        self.follow_ups.resume_client(slot);
    }

    /// Handles a message of a client of the console.
    pub(super) fn console_message(&mut self, slot: ClientSlot, input: &mut Input<'_>) -> Flow {
        let ClientState::Console(console) = &mut self.clients[slot].state else {
            debug_assert!(false, "only a client of the console comes here");
            return Flow::Wait;
        };
        if console.is_busy {
            return Flow::Wait;
        }
        let peeked = match input.peek() {
            Ok(Some(peeked)) => peeked,
            Ok(None) => return Flow::Wait,
            Err(error) => return self.violation(slot, &error.to_string()),
        };
        if peeked.announced_len() > MESSAGE_LEN_MAX {
            return self.violation(slot, "the message is too long for the console");
        }
        if !peeked.is_complete() {
            return Flow::Wait;
        }
        let (message, _) = peeked.take();
        if message.tag() == tag::TERMINATE
            || !console.answer(message.tag(), message.payload().to_vec())
        {
            self.lose_client(slot);
        }
        Flow::Wait
    }

    /// Sends the answer to a message of a client of the console.
    pub(super) fn console_answered(&mut self, slot: ClientSlot, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(slot) else { return };
        let ClientState::Console(console) = &mut client.state else { return };
        console.is_busy = false;
        self.send_to_client(slot, bytes);
        self.follow_ups.resume_client(slot);
    }
}
