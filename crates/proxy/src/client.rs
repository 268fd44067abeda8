//! A client's connection and its state.
//!
//! ```text
//! LoggingIn: FirstPacket -> (LookingUp) -> Authenticating -> AwaitingParameters -> LoggedIn
//! LoggedIn:  Idle -> (gate) -> Queued -> AwaitingUpstream -> Running -> Idle
//!            Idle -> Paused -> Idle   any of them but Running -> Refused -> Idle
//! any state -> Closing; FirstPacket -> Cancelling; Authenticating -> Console
//! ```
//!
//! A state holds what exists only in it: an upstream connection, a permit, a place in the queue.
//! So a client that is dropped gives back all that it holds.

use std::sync::Arc;
use std::time::Instant;

use tidegate_gate::{ClassId, Permit, Ticket};
use tidegate_wire::startup::CancelKey;

use crate::cancel_key::ClientKey;
use crate::capacity::Place;
use crate::console::{ConsoleClient, Rights};
use crate::login::{Exchange, PasswordMethod};
use crate::net::{Connection, Stream};
use crate::scheduling::Identity;
use crate::scheduling::expected::Fingerprint;
use crate::session::ClientSession;
use crate::slots::{PoolIndex, Slot, WorkerIndex};
use crate::timeouts::ClientTimeouts;
use crate::upstream::{PoolKey, UpstreamSlot};

/// Names a client of an event loop.
pub(crate) type ClientSlot = Slot<Client>;

/// The client that sent a cancel request, and its event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requester {
    pub(crate) worker: WorkerIndex,
    pub(crate) client: ClientSlot,
}

/// What a client that asks for the console may do there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsoleAccess {
    /// Everything: it is the user of the operating system that runs the proxy.
    Own,
    /// This much, once it has proved who it is.
    Proved(Rights),
    /// Nothing.
    Denied,
}

/// Who a client says it is, and what it asks for.
#[derive(Debug)]
pub(crate) struct Applicant {
    pub(crate) user: Box<str>,
    pub(crate) identity: Identity,
    /// The database that it asks for.
    pub(crate) asked: Box<str>,
    /// The pool that it will use, which need not exist.
    pub(crate) key: PoolKey,
    /// It proves who it is by what the users file says.
    pub(crate) is_of_users_file: bool,
    /// How long it may take.
    pub(crate) timeouts: ClientTimeouts,
    pub(crate) session: ClientSession,
    /// Set if it asks for the console.
    pub(crate) console: Option<ConsoleAccess>,
}

/// What has to be found out about a client before it can prove anything.
#[derive(Clone, Debug)]
pub(crate) enum Inquiry {
    /// What the server knows of the user, who then proves itself by this method.
    User(PasswordMethod),
    /// The user of the operating system at the other end of its socket, whom this map lets be
    /// users of the database.
    SystemUser { map: Option<Arc<str>> },
}

/// Who a client is, once it has proved it.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) user: Box<str>,
    /// What is known of the class of its transactions.
    pub(crate) identity: Identity,
    /// How long it may take.
    pub(crate) timeouts: Box<ClientTimeouts>,
    /// The database that it has asked for.
    pub(crate) asked: Box<str>,
    pub(crate) pool: PoolIndex,
    /// It has proved who it is by what the users file says.
    pub(crate) is_of_users_file: bool,
    /// Its database is another entry of the configuration now, or none.
    pub(crate) is_misplaced: bool,
    pub(crate) session: ClientSession,
    /// The right to be connected.
    pub(crate) place: Option<Place>,
}

/// What a login waits for.
#[expect(clippy::large_enum_variant, reason = "a client that is logged in is as large")]
pub(crate) enum LoginStage {
    /// The start-up packet; requests for encryption may come before it.
    FirstPacket,
    /// The answer to an inquiry about the client.
    LookingUp(Box<Applicant>, Inquiry),
    /// The client's next authentication message.
    Authenticating(Box<Applicant>, Exchange),
    /// The server's parameters. In session mode from the client's own connection, once that is
    /// being opened.
    AwaitingParameters(Account, Option<UpstreamSlot>),
}

/// How the input of a running transaction goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionInput {
    /// What the client sends goes to the server.
    Flowing,
    /// It waits for an answer of the server, or for the end of a cancel request.
    Held,
    /// The server waits for the client's next command, since then.
    IdleSince(Instant),
}

/// A transaction on an upstream connection, which holds the permit.
#[derive(Debug)]
pub(crate) struct RunningTransaction {
    pub(crate) upstream: UpstreamSlot,
    /// When its first message went to the server.
    pub(crate) since: Instant,
    pub(crate) input: TransactionInput,
    /// A cancel request that is sent on as soon as the held input is.
    pub(crate) cancel_when_sent: Option<Requester>,
    /// Something of the client's has been sent to the server.
    pub(crate) has_sent: bool,
}

/// The transaction of a client that is logged in.
#[derive(Debug)]
pub(crate) enum TransactionState {
    /// None. The client's input may be held until a cancel request for the last one has arrived.
    Idle { is_held: bool },
    /// It waits, without a ticket, until its database is resumed.
    Paused,
    /// It waits for a permit.
    Queued(Ticket),
    /// It has a permit and waits for an upstream connection.
    AwaitingUpstream(Permit),
    /// It runs.
    Running(RunningTransaction),
    /// It was refused: messages up to the end of the batch are discarded. `batch_ends` says that
    /// the message being discarded is the last of them.
    Refused { batch_ends: bool },
}

/// A client that is logged in.
pub(crate) struct LoggedIn {
    pub(crate) account: Account,
    /// In session mode, the upstream connection that is the client's for good.
    pub(crate) own_upstream: Option<UpstreamSlot>,
    pub(crate) transaction: TransactionState,
    /// When its last transaction was asked for.
    asked: Instant,
    /// The class of its last transaction; before the first, the usual one.
    pub(crate) class: ClassId,
    /// What its last transaction began with, if it is to be measured.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// It has been told that a class or a deadline which it has chosen is ignored.
    pub(crate) was_told_of_choice: bool,
    /// It has asked before, and asks again in the process that takes over.
    has_asked: bool,
}

pub(crate) enum ClientState {
    LoggingIn {
        since: Instant,
        stage: LoginStage,
    },
    LoggedIn(LoggedIn),
    /// It is a client of the console.
    Console(ConsoleClient),
    /// It is being passed to another process, and nothing of it is handled.
    Passing(Box<PassedClient>),
    /// It has sent a cancel request, and is closed when the server has dealt with it.
    Cancelling {
        since: Instant,
    },
    /// It is sent a last message, then closed.
    Closing {
        since: Instant,
    },
}

/// A client that is on its way to another process. It is still this one's.
pub(crate) struct PassedClient {
    /// Its state if it comes back.
    pub(crate) before: ClientState,
    /// The connection that goes with it.
    pub(crate) upstream: Option<UpstreamSlot>,
    /// This end of what the other process gets in place of a socket with TLS.
    pub(crate) relay: Option<Stream>,
    /// Cancel requests that have come meanwhile.
    pub(crate) cancels: Vec<(CancelKey, Requester)>,
}

/// How a client has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// By a listening socket.
    Accepted,
    /// From another process that has let it in: its key names a slot there.
    Adopted,
    /// By the other process of a hand-over: it has a cancel request for a client of this one.
    Forwarded,
}

/// A client, from accept to close.
pub(crate) struct Client {
    /// A number that no other client or connection of this process has.
    pub(crate) id: u64,
    pub(crate) connected_at: Instant,
    pub(crate) connection: Connection,
    pub(crate) key: ClientKey,
    pub(crate) state: ClientState,
    /// Since when the rest of a message is awaited.
    pub(crate) mid_message_since: Option<Instant>,
    /// Bytes have come from it since the last sweep.
    pub(crate) has_moved: bool,
    /// Since when sweeps have found it idle outside a transaction.
    idle_since: Option<Instant>,
    /// It has not proved who it is, and counts among those who have not.
    pub(crate) is_applicant: bool,
    pub(crate) arrival: Arrival,
}

impl Client {
    pub(crate) fn new(
        (id, arrival): (u64, Arrival),
        stream: Stream,
        key: ClientKey,
        now: Instant,
    ) -> Client {
        Client {
            id,
            connected_at: now,
            connection: Connection::new(stream),
            key,
            state: ClientState::LoggingIn { since: now, stage: LoginStage::FirstPacket },
            mid_message_since: None,
            has_moved: false,
            idle_since: None,
            is_applicant: true,
            arrival,
        }
    }

    /// Makes a client that another process has served, at the beginning of its login.
    pub(crate) fn adopt(
        (id, key): (u64, ClientKey),
        connection: Connection,
        (since, connected_at, idle_since): (Instant, Instant, Option<Instant>),
    ) -> Client {
        Client {
            id,
            connected_at,
            connection,
            key,
            state: ClientState::LoggingIn { since, stage: LoginStage::FirstPacket },
            mid_message_since: None,
            has_moved: false,
            idle_since,
            is_applicant: true,
            arrival: Arrival::Accepted,
        }
    }

    /// Returns whether it is on its way to another process.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.state, ClientState::Passing(_))
    }

    /// Returns since when sweeps have found it idle outside a transaction.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.idle_since.filter(|_| !self.has_moved)
    }

    /// Goes on to the next stage of a login.
    pub(crate) fn enter_login_stage(&mut self, next: LoginStage) {
        match &mut self.state {
            ClientState::LoggingIn { stage, .. } => *stage = next,
            _ => debug_assert!(false, "a client logs in once"),
        }
    }

    /// Takes the client's application, if it has applied and has not been let in.
    pub(crate) fn take_applicant(&mut self) -> Option<Box<Applicant>> {
        let ClientState::LoggingIn { stage, .. } = &mut self.state else { return None };
        match std::mem::replace(stage, LoginStage::FirstPacket) {
            LoginStage::LookingUp(applicant, _) | LoginStage::Authenticating(applicant, _) => {
                Some(applicant)
            }
            other => {
                *stage = other;
                None
            }
        }
    }

    /// Returns what is being found out about the client, and about whom.
    pub(crate) fn looking_up(&self) -> Option<(&Applicant, &Inquiry)> {
        match &self.state {
            ClientState::LoggingIn { stage: LoginStage::LookingUp(applicant, inquiry), .. } => {
                Some((applicant, inquiry))
            }
            _ => None,
        }
    }

    /// Returns who the client is if it waits for the server's parameters.
    pub(crate) fn awaiting_parameters(&self) -> Option<&Account> {
        match &self.state {
            ClientState::LoggingIn {
                stage: LoginStage::AwaitingParameters(account, _), ..
            } => Some(account),
            _ => None,
        }
    }

    /// Gives a client of session mode the connection that is being opened for it.
    pub(crate) fn set_own_upstream(&mut self, upstream: UpstreamSlot) {
        match &mut self.state {
            ClientState::LoggingIn { stage: LoginStage::AwaitingParameters(_, own), .. } => {
                debug_assert!(own.is_none(), "a client has one connection of its own");
                *own = Some(upstream);
            }
            _ => debug_assert!(false, "only a client that awaits parameters gets a connection"),
        }
    }

    /// Takes the connection away that was being opened for a client of session mode. Returns
    /// whether the client waits for another.
    pub(crate) fn unset_own_upstream(&mut self) -> bool {
        match &mut self.state {
            ClientState::LoggingIn { stage: LoginStage::AwaitingParameters(_, own), .. } => {
                *own = None;
                true
            }
            _ => false,
        }
    }

    /// Logs the client in if it waits for the server's parameters. Returns who it is then.
    pub(crate) fn finish_login(&mut self) -> Option<&Account> {
        let ClientState::LoggingIn { since: asked, ref mut stage } = self.state else {
            return None;
        };
        if !matches!(stage, LoginStage::AwaitingParameters(..)) {
            return None;
        }
        let stage = std::mem::replace(stage, LoginStage::FirstPacket);
        if let LoginStage::AwaitingParameters(account, own_upstream) = stage {
            let transaction = TransactionState::Idle { is_held: false };
            self.state = Client::logged_in(account, own_upstream, transaction, (asked, false));
        }
        self.account()
    }

    /// Returns whether bytes that arrive now can be handled, unless they are held.
    pub(crate) fn takes_input(&self) -> bool {
        match &self.state {
            ClientState::LoggingIn { stage, .. } => {
                matches!(stage, LoginStage::FirstPacket | LoginStage::Authenticating(..))
            }
            ClientState::LoggedIn(LoggedIn { transaction, .. }) => {
                use TransactionState::{Idle, Refused, Running};
                matches!(transaction, Idle { .. } | Running(_) | Refused { .. })
            }
            ClientState::Console(console) => !console.is_busy,
            ClientState::Passing(_)
            | ClientState::Cancelling { .. }
            | ClientState::Closing { .. } => false,
        }
    }

    /// Returns whether the input waits for the server.
    pub(crate) fn is_held(&self) -> bool {
        match self.transaction() {
            Some(TransactionState::Idle { is_held }) => *is_held,
            Some(TransactionState::Running(running)) => running.input == TransactionInput::Held,
            _ => false,
        }
    }

    /// Holds the input of a running transaction.
    pub(crate) fn hold_input(&mut self) {
        if let Some(running) = self.running_mut() {
            running.input = TransactionInput::Held;
        }
    }

    /// Lets input that was held go on.
    pub(crate) fn release_input(&mut self) {
        match self.transaction_mut() {
            Some(TransactionState::Idle { is_held }) => *is_held = false,
            Some(TransactionState::Running(running)) if running.input == TransactionInput::Held => {
                running.input = TransactionInput::Flowing;
            }
            _ => {}
        }
    }

    /// Returns who the client is, once it has proved it and until it is closed.
    pub(crate) fn account(&self) -> Option<&Account> {
        match &self.state {
            ClientState::LoggingIn { stage, .. } => match stage {
                LoginStage::AwaitingParameters(account, _) => Some(account),
                _ => None,
            },
            ClientState::LoggedIn(client) => Some(&client.account),
            ClientState::Console(_)
            | ClientState::Passing(_)
            | ClientState::Cancelling { .. }
            | ClientState::Closing { .. } => None,
        }
    }

    /// Returns the same, to change it.
    pub(crate) fn account_mut(&mut self) -> Option<&mut Account> {
        match &mut self.state {
            ClientState::LoggingIn {
                stage: LoginStage::AwaitingParameters(account, _), ..
            } => Some(account),
            ClientState::LoggedIn(client) => Some(&mut client.account),
            _ => None,
        }
    }

    /// Returns the class of its last transaction, or of those to come as far as that is known.
    pub(crate) fn class(&self) -> Option<ClassId> {
        match &self.state {
            ClientState::LoggedIn(client) => Some(client.class),
            _ => self.account().map(|account| account.identity.usual_class()),
        }
    }

    /// Notes that a transaction is asked for. Returns since when: since before, if it had to ask
    /// again.
    pub(crate) fn ask(&mut self, now: Instant) -> Instant {
        let Some(client) = self.logged_in_mut() else { return now };
        if !std::mem::take(&mut client.has_asked) {
            client.asked = now;
        }
        client.asked
    }

    /// Lets a transaction that waits ask again later, as of the time at which it asked.
    pub(crate) fn ask_again_later(&mut self) {
        let Some(client) = self.logged_in_mut() else { return };
        let (waits, is_counted) = match client.transaction {
            TransactionState::Queued(_) | TransactionState::AwaitingUpstream(_) => (true, true),
            // This time does not count.
            TransactionState::Paused => (true, false),
            _ => (false, client.has_asked),
        };
        client.has_asked = is_counted;
        if waits {
            client.transaction = TransactionState::Idle { is_held: false };
        }
    }

    /// Notes that what it has asked for is refused.
    pub(crate) fn forget_asked(&mut self) {
        if let Some(client) = self.logged_in_mut() {
            client.has_asked = false;
        }
    }

    /// Returns whether it has asked before for the transaction that it asks for next.
    pub(crate) fn has_asked(&self) -> bool {
        matches!(&self.state, ClientState::LoggedIn(LoggedIn { has_asked: true, .. }))
    }

    /// Returns when its last transaction was asked for, once it is logged in.
    pub(crate) fn asked_at(&self) -> Option<Instant> {
        match &self.state {
            ClientState::LoggedIn(client) => Some(client.asked),
            _ => None,
        }
    }

    /// Returns how long it may take, once it has said who it is.
    pub(crate) fn timeouts(&self) -> Option<&ClientTimeouts> {
        match &self.state {
            ClientState::LoggingIn {
                stage:
                    LoginStage::LookingUp(applicant, _) | LoginStage::Authenticating(applicant, _),
                ..
            } => Some(&applicant.timeouts),
            _ => self.account().map(|account| &*account.timeouts),
        }
    }

    /// Returns the name of the user that the client says it is, for a log; empty while it has said
    /// none.
    pub(crate) fn user(&self) -> &str {
        match &self.state {
            ClientState::LoggingIn {
                stage:
                    LoginStage::LookingUp(applicant, _) | LoginStage::Authenticating(applicant, _),
                ..
            } => &applicant.user,
            ClientState::Console(console) => &console.user,
            _ => self.account().map_or("", |account| &account.user),
        }
    }

    /// Makes the state of a client that is logged in.
    pub(crate) fn logged_in(
        account: Account,
        own_upstream: Option<UpstreamSlot>,
        transaction: TransactionState,
        (asked, has_asked): (Instant, bool),
    ) -> ClientState {
        let class = account.identity.usual_class();
        ClientState::LoggedIn(LoggedIn {
            account,
            own_upstream,
            transaction,
            asked,
            class,
            fingerprint: None,
            was_told_of_choice: false,
            has_asked,
        })
    }

    pub(crate) fn logged_in_mut(&mut self) -> Option<&mut LoggedIn> {
        match &mut self.state {
            ClientState::LoggedIn(client) => Some(client),
            _ => None,
        }
    }

    pub(crate) fn session_mut(&mut self) -> Option<&mut ClientSession> {
        self.logged_in_mut().map(|client| &mut client.account.session)
    }

    pub(crate) fn transaction(&self) -> Option<&TransactionState> {
        match &self.state {
            ClientState::LoggedIn(client) => Some(&client.transaction),
            _ => None,
        }
    }

    pub(crate) fn transaction_mut(&mut self) -> Option<&mut TransactionState> {
        self.logged_in_mut().map(|client| &mut client.transaction)
    }

    /// Enters another state of the transaction of a client that is logged in.
    pub(crate) fn set_transaction(&mut self, next: TransactionState) {
        match self.transaction_mut() {
            Some(transaction) => *transaction = next,
            None => debug_assert!(false, "only a client that is logged in has transactions"),
        }
    }

    /// Begins to run on an upstream connection.
    pub(crate) fn run_on(&mut self, upstream: UpstreamSlot, now: Instant) {
        self.set_transaction(TransactionState::Running(RunningTransaction {
            upstream,
            since: now,
            input: TransactionInput::Flowing,
            cancel_when_sent: None,
            has_sent: false,
        }));
    }

    /// Returns the running transaction if nothing of it has been sent on a connection that it was
    /// lent for itself alone: another connection would do as well.
    pub(crate) fn unsent(&self) -> Option<&RunningTransaction> {
        match &self.state {
            ClientState::LoggedIn(LoggedIn { own_upstream: None, .. }) => {
                self.running().filter(|running| !running.has_sent)
            }
            _ => None,
        }
    }

    pub(crate) fn running(&self) -> Option<&RunningTransaction> {
        match self.transaction() {
            Some(TransactionState::Running(running)) => Some(running),
            _ => None,
        }
    }

    pub(crate) fn running_mut(&mut self) -> Option<&mut RunningTransaction> {
        match self.transaction_mut() {
            Some(TransactionState::Running(running)) => Some(running),
            _ => None,
        }
    }

    /// Returns the upstream connection that the client keeps beyond its transaction.
    pub(crate) fn own_upstream(&self) -> Option<UpstreamSlot> {
        match &self.state {
            ClientState::LoggedIn(client) => client.own_upstream,
            _ => None,
        }
    }

    /// Returns the upstream connection that is the client's now.
    pub(crate) fn upstream(&self) -> Option<UpstreamSlot> {
        match &self.state {
            ClientState::LoggingIn { stage: LoginStage::AwaitingParameters(_, own), .. } => *own,
            ClientState::LoggedIn(LoggedIn { own_upstream, transaction, .. }) => {
                match transaction {
                    TransactionState::Running(running) => Some(running.upstream),
                    _ => *own_upstream,
                }
            }
            _ => None,
        }
    }

    /// Returns since when a transaction is open whose next command is awaited.
    pub(crate) fn idle_in_transaction_since(&self) -> Option<Instant> {
        match self.running()?.input {
            TransactionInput::IdleSince(since) => Some(since),
            TransactionInput::Flowing | TransactionInput::Held => None,
        }
    }

    /// Notes whether it is idle outside a transaction, and returns since when. Each sweep asks, so
    /// that a client's messages need not look at the clock.
    pub(crate) fn note_idleness(&mut self, now: Instant) -> Option<Instant> {
        let is_idle = matches!(self.transaction(), Some(TransactionState::Idle { is_held: false }))
            && !self.connection.has_unsent();
        let has_moved = std::mem::take(&mut self.has_moved);
        let since = if has_moved { now } else { self.idle_since.unwrap_or(now) };
        self.idle_since = is_idle.then_some(since);
        self.idle_since
    }

    /// Returns since when its login, or the end of its connection, is awaited.
    pub(crate) fn login_or_end_since(&self) -> Option<Instant> {
        match self.state {
            ClientState::LoggingIn { since, .. }
            | ClientState::Cancelling { since }
            | ClientState::Closing { since } => Some(since),
            ClientState::LoggedIn(_) | ClientState::Console(_) | ClientState::Passing(_) => None,
        }
    }

    /// Ends the running transaction. Returns who waits for a cancel request of it that was never
    /// sent on.
    pub(crate) fn end_transaction(&mut self) -> Option<Requester> {
        let is_held = self.is_held();
        let Some(running) = self.running_mut() else {
            debug_assert!(false, "only a running transaction ends");
            return None;
        };
        let requester = running.cancel_when_sent.take();
        self.set_transaction(TransactionState::Idle { is_held });
        requester
    }
}
