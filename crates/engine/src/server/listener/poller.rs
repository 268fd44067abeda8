//! Which sockets can be read or written: `epoll`, level-triggered.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::server::socket::timespec;

/// Events that are fetched at once; what else there is comes the next time.
const EVENTS_MAX: usize = 256;

/// What a socket is called. No name is used twice, so that an event for one that is gone finds
/// nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Token(pub(super) u64);

/// What is waited for. That a connection has broken is told in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interest {
    pub(super) receive: bool,
    pub(super) send: bool,
}

impl Interest {
    pub(super) const NONE: Interest = Interest { receive: false, send: false };
    pub(super) const RECEIVE: Interest = Interest { receive: true, send: false };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.receive);
        flags.set(EventFlags::OUT, self.send);
        flags
    }
}

/// What happened to a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) token: Token,
    /// There is something to receive, if only the end.
    pub(super) can_receive: bool,
    /// Nothing can be sent any more: the connection is broken, or closed by both sides.
    pub(super) is_over: bool,
}

impl Event {
    fn of(event: epoll::Event) -> Event {
        let (flags, data) = (event.flags, event.data);
        Event {
            token: Token(data.u64()),
            can_receive: flags.contains(EventFlags::IN),
            is_over: flags.intersects(EventFlags::ERR | EventFlags::HUP),
        }
    }
}

/// Events fetched, in memory that is used again.
pub(super) struct Events(Vec<epoll::Event>);

impl Events {
    pub(super) fn new() -> Events {
        Events(Vec::with_capacity(EVENTS_MAX))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Event> {
        self.0.iter().map(|event| Event::of(*event))
    }
}

/// The system's list of what is watched. A socket leaves it when it is closed.
pub(super) struct Poller(OwnedFd);

impl Poller {
    pub(super) fn new() -> io::Result<Poller> {
        Ok(Poller(epoll::create(CreateFlags::CLOEXEC)?))
    }

    pub(super) fn add(&self, who: impl AsFd, token: Token, what: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.0, who, EventData::new_u64(token.0), what.flags())?)
    }

    /// Watches a bell: each ring is told once, and its number need not be read.
    pub(super) fn add_bell(&self, who: impl AsFd, token: Token) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(&self.0, who, EventData::new_u64(token.0), flags)?)
    }

    pub(super) fn change(&self, who: impl AsFd, token: Token, what: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.0, who, EventData::new_u64(token.0), what.flags())?)
    }

    /// Waits until there are events, or for as long as `timeout`; `None` is for ever. A signal ends
    /// it early.
    pub(super) fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.0.clear();
        let timeout = timeout.map(timespec);
        match epoll::wait(&self.0, spare_capacity(&mut events.0), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
