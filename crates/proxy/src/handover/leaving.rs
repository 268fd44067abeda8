//! The old process's side of a hand-over.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::channel::{Channel, frame};
use super::records::{Answer, Held, Hello, ServerRecord, Told, VERSION};
use super::{HandoverError, lock};
use crate::capacity::Bound;
use crate::control_thread::ControlledServer;
use crate::mailbox::Message;
use crate::net::Stream;
use crate::reload::{Reloader, Sockets};
use crate::shared::Shared;
use crate::slots::WorkerIndex;

/// Time for the new process to check its configuration and to get ready.
const READY_TIME: Duration = Duration::from_secs(30);

/// Time between two looks at what may be told of permits.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// What happens to the threads of a process that takes part in a hand-over as the old one.
enum Event {
    Answer(Answer, Vec<OwnedFd>),
    /// The channel has ended.
    Lost,
    /// An event loop has no clients and no connections, or has some again.
    Empty(WorkerIndex, bool),
    /// An event loop grants nothing any more.
    Obeyed,
}

/// A frame on its way to the new process.
struct Outgoing {
    frame: Vec<u8>,
    sockets: Vec<OwnedFd>,
}

/// The new process, as the event loops of the old one know it.
#[derive(Debug)]
pub(crate) struct Successor {
    outgoing: Sender<Outgoing>,
    events: Sender<Event>,
    numbers: AtomicU64,
    told: Mutex<Vec<Held>>,
}

impl Successor {
    /// Returns a number for what is passed next.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Tells the new process something, in the order of the calls. Never waits.
    pub(crate) fn tell(&self, told: &Told, sockets: Vec<OwnedFd>) {
        match frame(told, sockets.len()) {
            // One that has gone is noticed elsewhere.
            Ok(frame) => drop(self.outgoing.send(Outgoing { frame, sockets })),
            Err(error) => tracing::error!(%error, "the new process is not told something"),
        }
    }

    /// Notes that an event loop grants nothing any more.
    pub(crate) fn obeyed(&self) {
        let _ = self.events.send(Event::Obeyed);
    }

    /// Notes whether an event loop has anything left.
    pub(crate) fn empty(&self, worker: WorkerIndex, is_empty: bool) {
        let _ = self.events.send(Event::Empty(worker, is_empty));
    }

    /// Tells the new process to begin.
    fn begin(&self, shared: &Shared) {
        let mut told = lock(&self.told);
        *told = held(shared);
        self.tell(&Told::Begin(told.clone()), Vec::new());
    }

    /// Tells the new process what this one holds, if that has changed.
    pub(crate) fn tell_held(&self, shared: &Shared) {
        let mut before = lock(&self.told);
        let now = held(shared);
        if *before != now {
            self.tell(&Told::Held(now.clone()), Vec::new());
            *before = now;
        }
    }
}

/// Returns what this process holds of each server.
fn held(shared: &Shared) -> Vec<Held> {
    let of = |ControlledServer { name, server, .. }: &ControlledServer| {
        let bound = Bound::Server(server.index);
        Held {
            server: name.clone(),
            permits: server.gate.snapshot().active(),
            connections: shared.accounts.upstreams.occupancy(&bound).map_or(0, |it| it.taken),
        }
    };
    shared.servers.iter().map(of).collect()
}

/// How a hand-over has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Everything is the new process's, but for the TLS of this number of clients: the process
    /// ends when these have gone.
    All {
        /// The number of clients.
        relayed: usize,
    },
    /// The new process is being stopped by its administrator; so is this one.
    Stopped,
}

/// The right to hand over, which any thread may use.
#[derive(Clone, Debug)]
pub struct Leave {
    /// The configuration that is in force when it is asked for.
    pub(crate) shared: Arc<Shared>,
    pub(crate) reloader: Arc<Reloader>,
}

impl Leave {
    /// Returns whether a hand-over can begin now.
    ///
    /// # Errors
    /// Another one has not ended.
    pub fn check(&self) -> Result<(), HandoverError> {
        if self.shared.handover.may_begin() { Ok(()) } else { Err(HandoverError::UnderWay) }
    }

    /// Hands over to the process at the other end of `socket`. Returns when that has everything, or
    /// an error when this process goes on as before. `ready` is called in between: from then on the
    /// new process accepts clients, and a supervisor should take it for the service. `end` has to
    /// end the new process; it is called before anything is taken back from one that has failed.
    ///
    /// # Errors
    /// See [`HandoverError`].
    pub fn hand_over(
        &self,
        socket: OwnedFd,
        ready: impl FnOnce(),
        end: impl FnOnce(),
    ) -> Result<Left, HandoverError> {
        self.check()?;
        let handover = &self.shared.handover;
        if handover.has_begun.swap(true, Ordering::SeqCst) {
            return Err(HandoverError::UnderWay);
        }
        let left = self.hand_over_now(socket, ready, end);
        if left.is_err() {
            handover.has_begun.store(false, Ordering::SeqCst);
        }
        left
    }

    fn hand_over_now(
        &self,
        socket: OwnedFd,
        ready: impl FnOnce(),
        end: impl FnOnce(),
    ) -> Result<Left, HandoverError> {
        let handover = &self.shared.handover;
        let channel = Arc::new(Channel::new(socket)?);
        self.introduce(&channel)?;
        let (outgoing, to_write) = mpsc::channel();
        let (events, happened) = mpsc::channel();
        let writer = Arc::clone(&channel);
        spawn("tidegate-handing", move || write_all(&writer, to_write))?;
        let (reader, read) = (Arc::clone(&channel), events.clone());
        spawn("tidegate-handed", move || read_all(&reader, &read))?;
        let successor = Arc::new(Successor {
            outgoing,
            events,
            numbers: AtomicU64::new(1),
            told: Mutex::default(),
        });
        handover.set_successor(Some(Arc::clone(&successor)));
        let started = Instant::now();
        self.tell_event_loops(|| Message::Leave(Arc::clone(&successor)));
        let mut handing = Handing::new(&self.shared, happened);
        if handing.wait_for_event_loops() {
            self.reloader.give();
            successor.begin(&self.shared);
            self.tell_event_loops(|| Message::PassOn);
            ready();
        }
        let ended = handing.wait_for_end(&successor);
        if let Some(Left::All { .. }) = ended {
            if let Err(error) = channel.send(&Told::Done, &[]) {
                tracing::debug!(%error, "the new process has ended since");
            }
            let relayed = handover.relays.present();
            tracing::info!(took = ?started.elapsed(), relayed, "handed over");
            return Ok(Left::All { relayed });
        }
        channel.shut_down();
        if ended.is_none() {
            end();
        }
        self.reloader.take_back();
        handover.set_successor(None);
        self.tell_event_loops(|| Message::Stay);
        ended.ok_or(HandoverError::Lost)
    }

    fn tell_event_loops(&self, message: impl Fn() -> Message) {
        for mailbox in &self.shared.mailboxes {
            mailbox.post(message());
        }
    }

    /// Says what there is to take over, and waits until the other process is ready for it.
    fn introduce(&self, channel: &Channel) -> Result<(), HandoverError> {
        let (hello, sockets) = self.hello()?;
        channel.send(&Told::Hello(Box::new(hello)), &sockets)?;
        channel.set_patience(Some(READY_TIME))?;
        let answer = match channel.receive::<Answer>() {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return Err(HandoverError::Late(READY_TIME.as_secs()));
            }
            answer => answer?,
        };
        channel.set_patience(None)?;
        match answer {
            Some((Answer::Ready, _)) => Ok(()),
            Some((Answer::Failed { reason }, _)) => Err(HandoverError::Refused(reason)),
            Some(_) | None => Err(HandoverError::Ended),
        }
    }

    fn hello(&self) -> std::io::Result<(Hello, Vec<OwnedFd>)> {
        let Sockets { listening, admin } = self.reloader.sockets()?;
        let (mut listeners, mut sockets) = (Vec::new(), Vec::new());
        for (wanted, taken, socket) in listening {
            listeners.push(((&wanted).into(), (&taken).into()));
            sockets.push(socket);
        }
        let admin = admin.map(|(wanted, socket)| {
            sockets.push(socket);
            wanted
        });
        let shared = &self.shared;
        let of = |ControlledServer { name, server, control, .. }: &ControlledServer| ServerRecord {
            name: name.clone(),
            control: control.choice().to_string(),
            limit: server.gate.snapshot().limit.get(),
            connections_max: shared.accounts.learnt(server.index),
        };
        let hello = Hello {
            version: VERSION,
            generation: shared.handover.generation,
            listeners,
            admin,
            servers: shared.servers.iter().map(of).collect(),
            orders: shared.commands.record(),
        };
        Ok((hello, sockets))
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

fn write_all(channel: &Channel, outgoing: Receiver<Outgoing>) {
    for Outgoing { frame, sockets } in outgoing {
        // The reader notices that the other process has gone.
        if let Err(error) = channel.write(&frame, &sockets) {
            tracing::debug!(%error, "the new process does not read");
            channel.shut_down();
            return;
        }
    }
}

fn read_all(channel: &Channel, events: &Sender<Event>) {
    loop {
        match channel.receive() {
            Ok(Some((answer, sockets))) => {
                if events.send(Event::Answer(answer, sockets)).is_err() {
                    return;
                }
            }
            Ok(None) => break,
            Err(error) => {
                tracing::debug!(%error, "the channel to the new process has failed");
                channel.shut_down();
                break;
            }
        }
    }
    let _ = events.send(Event::Lost);
}

/// What the thread that hands over waits for.
struct Handing<'a> {
    shared: &'a Shared,
    happened: Receiver<Event>,
    empty: Vec<bool>,
    is_lost: bool,
    is_stopping: bool,
}

impl Handing<'_> {
    fn new(shared: &Shared, happened: Receiver<Event>) -> Handing<'_> {
        let empty = vec![false; shared.mailboxes.len()];
        Handing { shared, happened, empty, is_lost: false, is_stopping: false }
    }

    /// Waits until no event loop grants permits. Returns whether the new process is still there.
    fn wait_for_event_loops(&mut self) -> bool {
        let mut obeyed = 0;
        while obeyed < self.empty.len() {
            let Ok(event) = self.happened.recv() else { return false };
            obeyed += usize::from(matches!(event, Event::Obeyed));
            self.handle(event);
        }
        !self.is_lost
    }

    /// Waits until nothing is left; `None` if the new process has gone before.
    fn wait_for_end(&mut self, successor: &Successor) -> Option<Left> {
        while !self.is_lost && !self.is_stopping {
            if self.empty.iter().all(|&is_empty| is_empty) {
                return Some(Left::All { relayed: 0 });
            }
            match self.happened.recv_timeout(LOOK_INTERVAL) {
                Ok(event) => self.handle(event),
                // A permit may have been discounted meanwhile, which no event loop notices.
                Err(_) => successor.tell_held(self.shared),
            }
        }
        self.is_stopping.then_some(Left::Stopped)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Answer(Answer::Adopted { number }, _) => {
                // Whose it was knows; the others do not mind.
                for mailbox in &self.shared.mailboxes {
                    mailbox.post(Message::Passed { number });
                }
            }
            Event::Answer(Answer::Connection, sockets) => {
                for socket in sockets {
                    match Stream::adopt(socket) {
                        Ok(stream) => self.shared.mailboxes[0].post(Message::Forwarded(stream)),
                        Err(error) => tracing::debug!(%error, "no socket"),
                    }
                }
            }
            Event::Answer(Answer::Stopping, _) => self.is_stopping = true,
            Event::Lost => self.is_lost = true,
            Event::Empty(worker, is_empty) => self.empty[worker.0] = is_empty,
            Event::Answer(Answer::Ready | Answer::Failed { .. }, _) | Event::Obeyed => {}
        }
    }
}
