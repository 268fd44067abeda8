//! The new process's side of a hand-over.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use tidegate_control::Mpl;

use super::channel::Channel;
use super::records::{
    Address, Answer, ClientRecord, Held, Hello, OrdersRecord, ServerRecord, StatementRecord, Told,
    UpstreamRecord, VERSION,
};
use super::{Handover, HandoverError};
use crate::accounts::ConnectionLimits;
use crate::capacity::Bound;
use crate::commands::Commands;
use crate::config::ListenAddress;
use crate::control_thread::ControlledServer;
use crate::health::Health;
use crate::mailbox::Message;
use crate::net::{Listener, Stream};
use crate::shared::Shared;

/// What an event loop adopts.
#[derive(Debug)]
pub(crate) enum Adoption {
    Statement(StatementRecord),
    Client { number: u64, client: Box<ClientRecord>, sockets: Vec<OwnedFd> },
    Upstream { number: u64, upstream: Box<UpstreamRecord>, sockets: Vec<OwnedFd> },
}

/// What a process gets from the one before it, before it starts.
#[derive(Debug)]
pub struct Inheritance {
    channel: Arc<Channel>,
    generation: u64,
    listeners: Vec<(ListenAddress, ListenAddress, OwnedFd)>,
    admin: Option<(SocketAddr, OwnedFd)>,
    servers: Vec<ServerRecord>,
    orders: OrdersRecord,
}

impl Inheritance {
    /// Reads what the old process says at the other end of `socket`.
    ///
    /// # Errors
    /// It is no socket, or the other end does not speak this version of the hand-over.
    pub fn receive(socket: OwnedFd) -> Result<Inheritance, HandoverError> {
        let channel = Arc::new(Channel::new(socket)?);
        let Some((Told::Hello(hello), mut sockets)) = channel.receive::<Told>()? else {
            return Err(HandoverError::Ended);
        };
        let Hello { version, generation, listeners, admin, servers, orders } = *hello;
        if version != VERSION {
            return Err(HandoverError::Version { own: VERSION, other: version });
        }
        let admin = admin.and_then(|wanted| Some((wanted, sockets.pop()?)));
        let both = listeners.into_iter().zip(sockets);
        let listeners = both.map(|((wanted, taken), socket): ((Address, Address), _)| {
            (ListenAddress::from(wanted), ListenAddress::from(taken), socket)
        });
        let listeners = listeners.collect();
        Ok(Inheritance { channel, generation, listeners, admin, servers, orders })
    }

    /// Returns what tells the old process why this one cannot take over. It goes on as before then.
    pub fn refusal(&self) -> impl Fn(&str) + use<> {
        let channel = Arc::clone(&self.channel);
        move |reason| {
            let failed = Answer::Failed { reason: reason.to_owned() };
            if let Err(error) = channel.send(&failed, &[]) {
                tracing::debug!(%error, "the old process has gone");
            }
        }
    }

    /// Returns the orders of an administrator that were in force.
    pub(crate) fn commands(&self) -> Arc<Commands> {
        Arc::new(Commands::adopt(self.orders.clone()))
    }

    /// Takes what was learnt of servers: how many connections they give, and their limits, where
    /// the controllers are the same as in the old process.
    pub(crate) fn inform(&self, shared: &Shared) {
        for ControlledServer { name, server, control, .. } in &shared.servers {
            let Some(known) = self.servers.iter().find(|it| it.name == *name) else { continue };
            if known.control == control.choice().to_string() {
                let limit = control.setting.bounds.clamp(Mpl::at_least_one(known.limit));
                server.gate.set_limit(limit, Instant::now());
            }
            if let Some(unreserved) = known.connections_max
                && shared.accounts.asks(server.index)
            {
                shared.accounts.learn(server.index, Some(ConnectionLimits { unreserved }));
                shared.accounts.tell_gate(server.index, &server.gate);
            }
        }
    }

    /// Takes the listening socket for an address, and where it really listens.
    pub(crate) fn take_listener(
        &mut self,
        wanted: &ListenAddress,
    ) -> Option<(OwnedFd, ListenAddress)> {
        let position = self.listeners.iter().position(|(own, ..)| own == wanted)?;
        let (_, taken, socket) = self.listeners.remove(position);
        Some((socket, taken))
    }

    /// Takes the listening socket of the admin interface, if it has this address.
    pub(crate) fn take_admin(&mut self, wanted: SocketAddr) -> Option<OwnedFd> {
        self.admin.take_if(|(own, _)| *own == wanted).map(|(_, socket)| socket)
    }

    /// Returns what the process knows of hand-overs from now on.
    pub(crate) fn handover(&self) -> Arc<Handover> {
        let channel = Arc::clone(&self.channel);
        Arc::new(Handover::from_predecessor(self.generation + 1, channel))
    }

    /// Says that this process is ready, and adopts what comes, on a thread of its own.
    pub(crate) fn accept(
        self,
        shared: Arc<Shared>,
        listeners: Vec<(usize, Listener)>,
        health: Arc<Health>,
    ) -> std::io::Result<()> {
        let channel = self.channel;
        channel.send(&Answer::Ready, &[])?;
        let thread = std::thread::Builder::new().name("tidegate-adopting".into());
        let mut adopting = Adopting { shared, listeners, clients: 0, has_begun: false };
        thread.spawn(move || {
            health.supervise("the hand-over", || {
                let is_complete = adopting.run(&channel);
                adopting.end(is_complete)
            });
        })?;
        Ok(())
    }
}

struct Adopting {
    shared: Arc<Shared>,
    /// To accept on as soon as the old process does not any more.
    listeners: Vec<(usize, Listener)>,
    clients: u64,
    has_begun: bool,
}

impl Adopting {
    /// Adopts until the old process has nothing left. Returns whether it has said so.
    fn run(&mut self, channel: &Channel) -> bool {
        loop {
            match channel.receive() {
                Ok(Some((Told::Done, _))) => return true,
                Ok(Some((told, sockets))) => self.handle(told, sockets),
                Ok(None) => return false,
                Err(error) => {
                    tracing::warn!(%error, "the channel to the old process has failed");
                    return false;
                }
            }
        }
    }

    fn handle(&mut self, told: Told, sockets: Vec<OwnedFd>) {
        match told {
            Told::Begin(held) => {
                self.hold(&held);
                self.has_begun = true;
                let listeners = std::mem::take(&mut self.listeners);
                let message = Message::Listeners { opened: listeners, closed: Vec::new() };
                self.shared.mailboxes[0].post(message);
            }
            Told::Held(held) => self.hold(&held),
            Told::Statement { worker, statement } => {
                self.post(worker, Adoption::Statement(statement));
            }
            Told::Client { worker, number, client } => {
                self.clients += 1;
                self.post(worker, Adoption::Client { number, client, sockets });
            }
            Told::Upstream { worker, number, upstream } => {
                self.post(worker, Adoption::Upstream { number, upstream, sockets });
            }
            Told::Connection => {
                for stream in sockets.into_iter().filter_map(|socket| Stream::adopt(socket).ok()) {
                    self.shared.mailboxes[0].post(Message::Forwarded(stream));
                }
            }
            Told::Hello(_) | Told::Done => {}
        }
    }

    fn post(&self, worker: usize, adoption: Adoption) {
        let mailboxes = &self.shared.mailboxes;
        mailboxes[worker % mailboxes.len()].post(Message::Adopt(Box::new(adoption)));
    }

    /// Counts what the old process still has.
    fn hold(&self, held: &[Held]) {
        for ControlledServer { name, server, .. } in &self.shared.servers {
            let of_server = held.iter().find(|held| held.server == *name);
            let (permits, connections) =
                of_server.map_or((0, 0), |it| (it.permits, it.connections));
            server.gate.set_elsewhere(permits, Instant::now());
            let bound = Bound::Server(server.index);
            self.shared.accounts.upstreams.set_elsewhere(&bound, connections);
        }
    }

    /// The old process has nothing any more.
    ///
    /// # Errors
    /// It never was to be replaced by this one, which has to end.
    fn end(&mut self, is_complete: bool) -> Result<(), &'static str> {
        self.hold(&[]);
        self.shared.handover.forget_predecessor();
        for mailbox in &self.shared.mailboxes {
            mailbox.post(Message::Arrived);
        }
        let clients = self.clients;
        if is_complete {
            tracing::info!(clients, "has taken over from the process before");
        } else if self.has_begun {
            let words = "the process before has ended before it had passed everything";
            tracing::warn!(clients, "{words}");
        } else {
            return Err("the process before has ended, or refused, before it handed over");
        }
        Ok(())
    }
}
