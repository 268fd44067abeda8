//! Clients that have not proved who they are: how many there may be, and what is being found out
//! about them.
//!
//! Everybody can open connections and say nothing, or half of something. Each costs a descriptor
//! and some memory, until the login timeout. So there is a highest number of them, shared out among
//! the event loops, and above it the oldest is closed: a flood of silent connections keeps out no
//! client that logs in faster than the flood goes once round.

use std::collections::VecDeque;

use rustix::process::{Resource, getrlimit};
use tidegate_wire::error_response::SqlState;

use crate::auth_query::{Found, LookedUp};
use crate::client::{Applicant, Client, ClientSlot, ClientState, Inquiry, LoginStage, Requester};
use crate::config::Config;
use crate::hba::Hba;
use crate::login::{self, LoginError, LoginFailure, PasswordMethod};
use crate::users::User;

use super::Worker;

/// The most clients that have not logged in where nothing else is configured: far more than are
/// logging in at once, and 100 MB if each sends the longest start-up packet but its last byte.
const MAX: usize = 10_000;

/// Entries of clients that are no applicants any more, before they are looked for.
const STALE_MAX: usize = 1024;

/// Returns how many clients that have not logged in an event loop may have.
pub(super) fn max(config: &Config) -> usize {
    total(config).div_ceil(config.threads.get()).max(1)
}

/// Returns how many the proxy may have. Half of the files that it may open are for others.
fn total(config: &Config) -> usize {
    if let Some(configured) = config.logins_max {
        return configured.get();
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files / 2).map_or(MAX, |half| half.clamp(1, MAX))
}

/// The clients of an event loop that have not proved who they are.
///
/// - `count` is the number of clients with [`Client::is_applicant`], and each of them is in
///   `arrived`, the oldest first.
pub(super) struct Applicants {
    max: usize,
    count: usize,
    arrived: VecDeque<ClientSlot>,
}

impl Applicants {
    pub(super) fn new(max: usize) -> Applicants {
        Applicants { max, count: 0, arrived: VecDeque::new() }
    }

    /// Sets how many there may be; those that are too many leave as others come.
    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Notes that an applicant has been let in or has gone.
    fn leave(&mut self) {
        debug_assert!(self.count > 0, "each applicant leaves once");
        self.count -= 1;
    }

    #[cfg(debug_assertions)]
    pub(super) fn check(&self, applicants: usize) {
        assert_eq!(self.count, applicants, "clients that have not logged in");
    }
}

impl Worker {
    /// Counts a client that has just connected, and closes the oldest applicant if it is one too
    /// many.
    pub(super) fn add_applicant(&mut self, slot: ClientSlot) {
        let (applicants, clients) = (&mut self.applicants, &self.clients);
        applicants.arrived.push_back(slot);
        applicants.count += 1;
        let is_applicant = |slot: ClientSlot| clients.get(slot).is_some_and(|it| it.is_applicant);
        if applicants.arrived.len() > 2 * applicants.count + STALE_MAX {
            applicants.arrived.retain(|&slot| is_applicant(slot));
        }
        if applicants.count <= applicants.max {
            return;
        }
        while let Some(oldest) = applicants.arrived.pop_front() {
            if is_applicant(oldest) {
                return self.close_oldest(oldest);
            }
        }
    }

    fn close_oldest(&mut self, slot: ClientSlot) {
        if !matches!(self.clients[slot].state, ClientState::LoggingIn { .. }) {
            return self.remove_client(slot);
        }
        let max = total(&self.shared.config);
        let message = format!(
            "more than max_logins = {max} connections have not logged in, and this is the oldest"
        );
        self.fail_login(slot, LoginFailure::Crowded, SqlState::TOO_MANY_CONNECTIONS, &message);
        // One that does not even take its last message would still count.
        self.remove_client(slot);
    }

    /// Notes that a client is no applicant any more: it has been let in.
    pub(super) fn accept_applicant(&mut self, slot: ClientSlot) {
        if let Some(client) = self.clients.get_mut(slot)
            && std::mem::take(&mut client.is_applicant)
        {
            self.applicants.leave();
        }
    }

    /// Notes that a client has gone.
    pub(super) fn applicant_gone(&mut self, removed: &Client) {
        if removed.is_applicant {
            self.applicants.leave();
        }
    }

    /// Goes on with a client that has to prove itself by a password: challenges it as soon as its
    /// user's secret is known.
    pub(super) fn find_user(
        &mut self,
        slot: ClientSlot,
        mut applicant: Box<Applicant>,
        method: PasswordMethod,
        out: Vec<u8>,
    ) {
        let users = &self.shared.config.users;
        if let Some(user) = users.find(applicant.user.as_bytes()) {
            applicant.is_of_users_file = true;
            return self.challenge(slot, applicant, (method, Some(user)), out);
        }
        let Some(lookups) = self.shared.lookups(applicant.key.database) else {
            return self.challenge(slot, applicant, (method, None), out);
        };
        match lookups.find(&applicant.user, self.now) {
            Found::Known(user) => self.challenge(slot, applicant, (method, user), out),
            Found::Ask => {
                let requester = Requester { worker: self.index, client: slot };
                lookups.request(&applicant.user, requester);
                self.await_answer(slot, applicant, Inquiry::User(method), &out);
            }
        }
    }

    /// Goes on with a client whose name in the operating system counts.
    pub(super) fn find_system_user(
        &mut self,
        slot: ClientSlot,
        applicant: Box<Applicant>,
        inquiry: Inquiry,
        out: &[u8],
    ) -> Result<(), LoginError> {
        let refused = || LoginError::SystemUser(applicant.user.to_string());
        let number = self.clients[slot].connection.peer_user().map_err(|error| {
            tracing::warn!(%error, "the system does not tell who has connected a socket");
            refused()
        })?;
        let system_users = self.shared.system_users.as_ref().ok_or_else(refused)?;
        system_users.request(number, Requester { worker: self.index, client: slot });
        self.await_answer(slot, applicant, inquiry, out);
        Ok(())
    }

    fn await_answer(
        &mut self,
        slot: ClientSlot,
        applicant: Box<Applicant>,
        inquiry: Inquiry,
        out: &[u8],
    ) {
        self.clients[slot].enter_login_stage(LoginStage::LookingUp(applicant, inquiry));
        if !out.is_empty() {
            self.send_to_client(slot, out);
        }
    }

    /// Takes what a server has said about the user of a client.
    pub(super) fn looked_up(&mut self, slot: ClientSlot, looked_up: LookedUp) {
        let client = self.clients.get(slot);
        // The client may have gone.
        let Some((_, Inquiry::User(method))) = client.and_then(Client::looking_up) else { return };
        let method = *method;
        match looked_up {
            Ok(user) => {
                if let Some(applicant) = self.clients[slot].take_applicant() {
                    self.challenge(slot, applicant, (method, user), Vec::new());
                    self.follow_ups.resume_client(slot);
                }
            }
            Err(trouble) => {
                let message = format!("the server cannot be asked for the user: {trouble}");
                let code = SqlState::CONNECTION_FAILURE;
                self.fail_login(slot, LoginFailure::LookUp, code, &message);
            }
        }
    }

    /// Takes the name of the user of the operating system at the other end of a client's socket.
    pub(super) fn system_user(&mut self, slot: ClientSlot, name: Option<&str>) {
        let client = self.clients.get(slot);
        let Some((applicant, Inquiry::SystemUser { map })) = client.and_then(Client::looking_up)
        else {
            return;
        };
        let rules = self.shared.config.hba.as_ref().map(Hba::rules);
        let may_be = |(rules, name): (_, &str)| {
            crate::hba::Rules::may_be(rules, map.as_deref(), name, &applicant.user)
        };
        if !rules.as_deref().zip(name).is_some_and(may_be) {
            let user = &applicant.user;
            tracing::debug!(?name, ?map, %user, "this user of the system may not be that user");
            let error = LoginError::SystemUser(user.to_string());
            return self.fail_login_by(slot, &error);
        }
        if let Some(applicant) = self.clients[slot].take_applicant() {
            self.admit(slot, applicant, Vec::new());
            self.follow_ups.resume_client(slot);
        }
    }

    /// Sends a client its challenge, after `out`. The user is absent if it is not known.
    fn challenge(
        &mut self,
        slot: ClientSlot,
        applicant: Box<Applicant>,
        (method, user): (PasswordMethod, Option<std::sync::Arc<User>>),
        mut out: Vec<u8>,
    ) {
        let lookups = self.shared.lookups(applicant.key.database);
        let iterations = lookups.and_then(|lookups| lookups.iterations());
        let mock = self.shared.config.users.mock().with_iterations(iterations);
        let encryption = self.clients[slot].connection.encryption();
        let end_point = encryption.and_then(crate::tls::Encryption::own_end_point);
        let known = (&*applicant.user, user);
        match login::challenge(method, known, &mock, end_point, &mut out) {
            Ok(exchange) => {
                let stage = LoginStage::Authenticating(applicant, exchange);
                self.clients[slot].enter_login_stage(stage);
                self.send_to_client(slot, &out);
            }
            Err(error) => self.fail_login_by(slot, &error),
        }
    }

    /// Forgets what is being found out about a client that goes.
    pub(super) fn forget_inquiry(&self, slot: ClientSlot) {
        let client = self.clients.get(slot);
        if let Some((applicant, Inquiry::User(_))) = client.and_then(Client::looking_up)
            && let Some(lookups) = self.shared.lookups(applicant.key.database)
        {
            let gone = Requester { worker: self.index, client: slot };
            lookups.forget(&applicant.user, gone);
        }
    }

    /// Ends a client whose login takes too long.
    pub(super) fn end_late_login(&mut self, slot: ClientSlot) {
        let (code, message) = self.late_login(slot);
        self.fail_login(slot, LoginFailure::Timeout, SqlState(&code), &message);
    }

    fn late_login(&self, slot: ClientSlot) -> (String, String) {
        let (code, late) = self.words_about_login(slot);
        let client = self.clients.get(slot);
        let Some((applicant, Inquiry::User(_))) = client.and_then(Client::looking_up) else {
            return (code, late);
        };
        let lookups = self.shared.lookups(applicant.key.database);
        let trouble = lookups.and_then(|lookups| lookups.trouble());
        let why = trouble.map_or(String::new(), |trouble| format!(": {trouble}"));
        let message = format!("{late}; the server was asked for the user{why}");
        (SqlState::CONNECTION_FAILURE.0.to_owned(), message)
    }
}
