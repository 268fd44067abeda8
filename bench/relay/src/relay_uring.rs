//! The relay on `io_uring`: completions instead of readiness, many operations per system call.
//!
//! - One multishot receive per socket stays armed; its data lands in a buffer the kernel picks from
//!   a ring of provided buffers, so there is no read call and no buffer per idle connection.
//! - Sends of one round of completions are queued and go to the kernel together with the wait for
//!   the next round: one `io_uring_enter` per round.
//! - A send that succeeds reports nothing (`SKIP_SUCCESS`). It is made non-blocking and whole
//!   (`MSG_DONTWAIT | MSG_WAITALL`), so it has ended when `io_uring_enter` returns, and any other
//!   outcome is reported.
//! - Sockets are direct descriptors: they live in the ring's table and skip the process's.
//! - One thread submits and waits (`SINGLE_ISSUER`, `DEFER_TASKRUN`): the kernel does its part only
//!   inside our own calls.
//!
//! A waiting client's request holds its buffer, so there must be more buffers than clients: a price
//! the readiness loop does not pay, as it leaves the request in the socket.
//!
//! # Memory shared with the kernel
//!
//! The buffers and their ring are allocated once and never freed, and no Rust reference to either
//! is ever made after set-up: the relay passes buffers on by address without looking into them. So
//! whatever the kernel writes, and whenever, it can neither reach freed memory nor alias a
//! reference. A buffer goes back to the ring only after the call that submitted its send, so its
//! bytes are not overwritten while they are sent.
#![allow(unsafe_code)] // The kernel is given addresses; see above.

use std::alloc::{Layout, alloc_zeroed};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fixed};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::net::{self, REPLY, REQUEST};

/// Provided buffers; a power of two, more than clients and upstream connections together.
const BUFFERS: u16 = 8192;
const BUFFER_BYTES: u16 = 256;
const BUFFER_GROUP: u16 = 0;
/// Direct descriptors: upstream connections first, the rest for accepted clients.
const SLOTS: usize = 8192;
const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL;

/// Relays until the process is ended by a signal.
pub(crate) fn run(listener: &TcpListener, upstream: SocketAddr, pool: usize) -> io::Result<()> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(16_384)
        .build(4096)?;
    ring.submitter().register_files_sparse(u32::try_from(SLOTS).map_err(io::Error::other)?)?;
    let buffers = Buffers::provide(&ring)?;
    let mut relay = Relay {
        ring,
        buffers,
        upstreams: Vec::with_capacity(pool),
        open: vec![false; SLOTS],
        free: (0..pool).collect(),
        waiting: VecDeque::new(),
        sent: Vec::new(),
    };
    for slot in 0..pool {
        let socket = net::connect_tcp(upstream)?.into_raw_fd();
        relay.ring.submitter().register_files_update(index(slot)?, &[socket])?;
        relay.upstreams.push(Upstream { client: None, received: 0 });
        relay.receive(slot)?;
    }
    relay.accept(listener)?;
    relay.serve(listener)
}

fn index(slot: usize) -> io::Result<u32> {
    u32::try_from(slot).map_err(io::Error::other)
}

// What a completion belongs to, packed into its 64 bits of user data: the kind above, the slot
// below.
const ACCEPT: u64 = 0 << 32;
const RECEIVE: u64 = 1 << 32;
const SEND: u64 = 2 << 32;
const CLOSE: u64 = 3 << 32;
const SLOT: u64 = 0xffff_ffff;

struct Upstream {
    /// The slot of the client whose round trip this connection is on.
    client: Option<usize>,
    /// Bytes of the reply that have come.
    received: usize,
}

/// Bytes received: a provided buffer that is ours until it is given back.
#[derive(Clone, Copy)]
struct Piece {
    buffer: u16,
    bytes: u32,
}

struct Relay {
    ring: IoUring,
    buffers: Buffers,
    /// By slot; slots from its length on are clients.
    upstreams: Vec<Upstream>,
    /// By slot: whether a client is connected there.
    open: Vec<bool>,
    free: Vec<usize>,
    waiting: VecDeque<(usize, Piece)>,
    /// Buffers whose sends are queued, to be given back after the next submission.
    sent: Vec<u16>,
}

impl Relay {
    fn serve(&mut self, listener: &TcpListener) -> io::Result<()> {
        let mut round = Vec::with_capacity(1024);
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            self.buffers.give_back(&mut self.sent);
            round.extend(self.ring.completion());
            for completion in round.drain(..) {
                self.handle(&completion, listener)?;
            }
        }
    }

    fn handle(&mut self, completion: &cqueue::Entry, listener: &TcpListener) -> io::Result<()> {
        let slot = usize::try_from(completion.user_data() & SLOT).map_err(io::Error::other)?;
        match completion.user_data() & !SLOT {
            ACCEPT => {
                let slot = usize::try_from(result(completion)?).map_err(io::Error::other)?;
                self.open[slot] = true;
                self.receive(slot)?;
                if cqueue::more(completion.flags()) { Ok(()) } else { self.accept(listener) }
            }
            RECEIVE => self.received(slot, completion),
            // Only failures are reported; one to a client that has left is no error of ours.
            SEND if slot < self.upstreams.len() => result(completion).map(drop),
            SEND => {
                self.open[slot] = false;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn received(&mut self, slot: usize, completion: &cqueue::Entry) -> io::Result<()> {
        let is_client = slot >= self.upstreams.len();
        let rearm = !cqueue::more(completion.flags());
        match (completion.result(), cqueue::buffer_select(completion.flags())) {
            (bytes @ 1.., Some(buffer)) => {
                let piece = Piece { buffer, bytes: bytes.unsigned_abs() };
                if is_client {
                    self.request(slot, piece)?;
                } else {
                    self.reply(slot, piece)?;
                }
                if rearm { self.receive(slot) } else { Ok(()) }
            }
            (error, _) if -error == libc::ENOBUFS => self.receive(slot),
            _ if is_client => self.close(slot),
            _ => Err(io::Error::other("the echo server closed a connection")),
        }
    }

    /// Starts a round trip, or queues for one.
    fn request(&mut self, client: usize, piece: Piece) -> io::Result<()> {
        if usize::try_from(piece.bytes) != Ok(REQUEST) {
            return Err(io::Error::other("a request came in pieces or was not awaited"));
        }
        if let Some(upstream) = self.free.pop() {
            return self.start(client, upstream, piece);
        }
        self.waiting.push_back((client, piece));
        Ok(())
    }

    fn start(&mut self, client: usize, upstream: usize, piece: Piece) -> io::Result<()> {
        self.upstreams[upstream] = Upstream { client: Some(client), received: 0 };
        self.send(upstream, piece)
    }

    /// Passes on what has come of a reply; a whole reply ends the round trip.
    fn reply(&mut self, slot: usize, piece: Piece) -> io::Result<()> {
        let upstream = &mut self.upstreams[slot];
        upstream.received += usize::try_from(piece.bytes).map_err(io::Error::other)?;
        let complete = upstream.received == REPLY;
        match upstream.client {
            Some(client) if self.open[client] => self.send(client, piece)?,
            _ => self.sent.push(piece.buffer),
        }
        if !complete {
            return Ok(());
        }
        if let Some((client, piece)) = self.waiting.pop_front() {
            return self.start(client, slot, piece);
        }
        self.free.push(slot);
        Ok(())
    }

    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        let accept = opcode::AcceptMulti::new(io_uring::types::Fd(listener.as_raw_fd()))
            .allocate_file_index(true)
            .build()
            .user_data(ACCEPT);
        self.push(&accept)
    }

    fn receive(&mut self, slot: usize) -> io::Result<()> {
        let receive = opcode::RecvMulti::new(Fixed(index(slot)?), BUFFER_GROUP)
            .build()
            .user_data(RECEIVE | slot as u64);
        self.push(&receive)
    }

    fn send(&mut self, slot: usize, piece: Piece) -> io::Result<()> {
        self.sent.push(piece.buffer);
        let address = self.buffers.address(piece.buffer);
        let send = opcode::Send::new(Fixed(index(slot)?), address, piece.bytes)
            .flags(SEND_FLAGS)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(SEND | slot as u64);
        self.push(&send)
    }

    fn close(&mut self, client: usize) -> io::Result<()> {
        self.open[client] = false;
        let close = opcode::Close::new(Fixed(index(client)?)).build().user_data(CLOSE);
        self.push(&close)
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: every address in an entry is that of a provided buffer, which is never freed.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }
}

fn result(completion: &cqueue::Entry) -> io::Result<i32> {
    match completion.result() {
        error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        value => Ok(value),
    }
}

/// The provided buffers and the ring by which the kernel is told of them.
struct Buffers {
    ring: *mut BufRingEntry,
    bytes: *mut u8,
    tail: u16,
}

impl Buffers {
    fn provide(ring: &IoUring) -> io::Result<Self> {
        let entries = usize::from(BUFFERS) * size_of::<BufRingEntry>();
        let mut buffers = Self {
            ring: allocate(entries, 4096)?.cast(),
            bytes: allocate(usize::from(BUFFERS) * usize::from(BUFFER_BYTES), 64)?,
            tail: 0,
        };
        let address = buffers.ring as u64;
        // SAFETY: the ring is page-aligned, has room for `BUFFERS` entries, and is never freed.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(address, BUFFERS, BUFFER_GROUP, 0)?;
        }
        buffers.give_back(&mut (0..BUFFERS).collect());
        Ok(buffers)
    }

    fn address(&self, buffer: u16) -> *mut u8 {
        // SAFETY: buffer numbers come from the kernel, which was given those below `BUFFERS` only.
        unsafe { self.bytes.add(usize::from(buffer) * usize::from(BUFFER_BYTES)) }
    }

    /// Makes buffers the kernel's again.
    fn give_back(&mut self, buffers: &mut Vec<u16>) {
        for buffer in buffers.drain(..) {
            let place = usize::from(self.tail & (BUFFERS - 1));
            let address = self.address(buffer) as u64;
            // SAFETY: `place` is below `BUFFERS`. The kernel reads this entry only after the tail
            // has passed it, and writes none; so this reference is the only one while it lives.
            let entry = unsafe { &mut *self.ring.add(place) };
            entry.set_addr(address);
            entry.set_len(u32::from(BUFFER_BYTES));
            entry.set_bid(buffer);
            self.tail = self.tail.wrapping_add(1);
        }
        // SAFETY: the tail lies inside the first entry, aligned, and lives as long as the process;
        // the kernel only reads it.
        unsafe {
            let tail = BufRingEntry::tail(self.ring).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }
}

/// Zeroed memory that is never freed.
fn allocate(bytes: usize, align: usize) -> io::Result<*mut u8> {
    let layout = Layout::from_size_align(bytes, align).map_err(io::Error::other)?;
    // SAFETY: the layout is not of size zero.
    let address = unsafe { alloc_zeroed(layout) };
    if address.is_null() { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(address) }
}
