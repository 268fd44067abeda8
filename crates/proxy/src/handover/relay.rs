//! Clients, and connections to servers, whose TLS is this process's and which are another's.
//!
//! A TLS session cannot be moved. So the process that began it stays its end: what it decrypts goes
//! through a socket pair to the process that has taken over, and what comes from there is
//! encrypted. Either side that ends ends the other, once that has taken what was sent. One thread
//! does this for all.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use mio::{Events, Poll, Token, Waker};

use super::lock;
use crate::net::{Connection, ReadOutcome, Stream};
use crate::slots::{Slot, Slots};

const READ_LEN: usize = 16 * 1024;

const WAKER: Token = Token(usize::MAX);

/// A session whose TLS is done here.
struct Relay {
    /// With TLS.
    outer: Connection,
    /// To the other process.
    inner: Connection,
    /// One of them has ended: the other one is closed when it has taken what was sent.
    is_ending: bool,
}

#[derive(Default)]
struct State {
    arrived: Vec<(Connection, Stream)>,
    /// Those that have arrived, and those at work.
    present: usize,
    waker: Option<Waker>,
    is_stopped: bool,
}

/// The relays of a process, and their thread once there are some.
#[derive(Default)]
pub(crate) struct Relays {
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Relays {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Relays").field("present", &self.present()).finish()
    }
}

impl Relays {
    /// Returns how many there are.
    pub(crate) fn present(&self) -> usize {
        lock(&self.state).present
    }

    /// Relays between a connection with TLS and a socket of another process. Neither may be
    /// registered anywhere.
    pub(crate) fn add(self: &Arc<Self>, outer: Connection, inner: Stream) {
        let mut state = lock(&self.state);
        state.arrived.push((outer, inner));
        state.present += 1;
        let started = match &state.waker {
            Some(waker) => waker.wake(),
            None => self.start(&mut state),
        };
        if let Err(error) = started {
            tracing::error!(%error, "clients with TLS cannot be served on");
            state.present -= state.arrived.len();
            state.arrived.clear();
        }
    }

    fn start(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let poll = Poll::new()?;
        state.waker = Some(Waker::new(poll.registry(), WAKER)?);
        let relays = Arc::clone(self);
        let thread = std::thread::Builder::new().name("tidegate-relay".into());
        thread.spawn(move || {
            if let Err(error) = relays.run(poll) {
                tracing::error!(%error, "clients with TLS are not served on");
                relays.end();
            }
        })?;
        Ok(())
    }

    /// Waits until there are none any more, or until they are stopped.
    pub(crate) fn wait(&self) {
        let mut state = lock(&self.state);
        while state.present > 0 && !state.is_stopped {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Ends the waiting for them; they end with the process.
    pub(crate) fn end(&self) {
        lock(&self.state).is_stopped = true;
        self.changed.notify_all();
    }

    fn run(&self, mut poll: Poll) -> io::Result<()> {
        let (mut events, mut relays) = (Events::with_capacity(256), Slots::<Relay>::new());
        let mut buffer = vec![0; READ_LEN];
        loop {
            match poll.poll(&mut events, Some(Duration::from_secs(1))) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for (outer, inner) in std::mem::take(&mut lock(&self.state).arrived) {
                match register(&mut relays, (outer, inner), &poll) {
                    Ok(slot) => self.advance(&mut relays, slot, &mut buffer),
                    Err(error) => {
                        tracing::warn!(%error, "a client with TLS cannot be served on");
                        self.gone();
                    }
                }
            }
            for event in events.iter().filter(|event| event.token() != WAKER) {
                let (slot, is_outer) = place(event.token());
                let Some(relay) = relays.get_mut(slot) else { continue };
                let connection = if is_outer { &mut relay.outer } else { &mut relay.inner };
                let is_closed = event.is_read_closed() || event.is_error();
                if event.is_readable() || is_closed {
                    connection.set_readable(is_closed);
                }
                self.advance(&mut relays, slot, &mut buffer);
            }
        }
    }

    fn advance(&self, relays: &mut Slots<Relay>, slot: Slot<Relay>, buffer: &mut [u8]) {
        if relays.get_mut(slot).is_some_and(|relay| relay.has_ended(buffer)) {
            relays.remove(slot);
            self.gone();
        }
    }

    fn gone(&self) {
        lock(&self.state).present -= 1;
        self.changed.notify_all();
    }
}

fn token(slot: Slot<Relay>, is_outer: bool) -> io::Result<Token> {
    let bits = usize::try_from(slot.to_bits()).map_err(io::Error::other)?;
    Ok(Token(bits << 1 | usize::from(is_outer)))
}

fn place(token: Token) -> (Slot<Relay>, bool) {
    (Slot::from_bits((token.0 >> 1) as u64), token.0 & 1 == 1)
}

fn register(
    relays: &mut Slots<Relay>,
    (mut outer, inner): (Connection, Stream),
    poll: &Poll,
) -> io::Result<Slot<Relay>> {
    relays.insert_with(|slot| {
        let mut inner = Connection::new(inner);
        outer.register(poll.registry(), token(slot, true)?)?;
        inner.register(poll.registry(), token(slot, false)?)?;
        // There may be something that was decrypted before.
        outer.set_readable(false);
        inner.set_readable(false);
        Ok(Relay { outer, inner, is_ending: false })
    })
}

impl Relay {
    /// Moves what there is to move. Returns whether both sides have ended.
    fn has_ended(&mut self, buffer: &mut [u8]) -> bool {
        let Relay { outer, inner, is_ending } = self;
        if outer.flush().is_err() || inner.flush().is_err() {
            return true;
        }
        for inwards in [true, false] {
            let (from, to) =
                if inwards { (&mut *outer, &mut *inner) } else { (&mut *inner, &mut *outer) };
            while !*is_ending && from.is_readable() && !to.has_unsent() {
                match from.read(buffer) {
                    ReadOutcome::Bytes { count, .. } => {
                        if to.send(&buffer[..count]).is_err() {
                            return true;
                        }
                    }
                    ReadOutcome::Nothing => {}
                    ReadOutcome::Closed => {
                        to.send_last(&[]);
                        *is_ending = true;
                    }
                }
            }
        }
        *is_ending && !outer.has_unsent() && !inner.has_unsent()
    }
}
