//! A relay between the proxy and its server: it stalls, slows down and breaks connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How soon a pump sees that its link has to break.
const TICK: Duration = Duration::from_millis(20);

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    Fin,
    Reset,
}

/// A connection of the proxy and the relay's own to the server.
struct Link {
    ends: [TcpStream; 2],
    is_over: AtomicBool,
    /// Nothing passes before this.
    stalled_until: Mutex<Instant>,
}

impl Link {
    fn wait_for_stall(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let until = *self.stalled_until.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(left) = until.checked_duration_since(Instant::now()) else { return };
            std::thread::sleep(left.min(TICK));
        }
    }

    /// Writes all to one end; `None` when that end is closed or the link breaks.
    fn write(&self, to: usize, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() && !self.is_over.load(Ordering::Relaxed) {
            match (&self.ends[to]).write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_early(error.kind()) => {}
                Err(_) => return None,
            }
        }
        bytes.is_empty().then_some(())
    }

    /// Passes on what comes from one end, until either end is closed or the link breaks.
    fn pump(&self, from: usize) {
        let mut source = &self.ends[from];
        let mut chunk = [0; 16 * 1024];
        while !self.is_over.load(Ordering::Relaxed) {
            let count = match source.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if is_early(error.kind()) => continue,
                Err(_) => break,
            };
            self.wait_for_stall();
            if self.write(1 - from, &chunk[..count]).is_none() {
                break;
            }
        }
        if !self.is_over.load(Ordering::Relaxed) {
            let _ = self.ends[1 - from].shutdown(Shutdown::Write);
        }
    }
}

fn is_early(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Accepts until it is dropped; its links end with it.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    links: Arc<Mutex<Vec<Arc<Link>>>>,
    is_over: Arc<AtomicBool>,
}

impl Relay {
    /// Starts a relay to the server on this port.
    pub(super) fn start(port: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (links, is_over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let relay = Relay { address, links: Arc::clone(&links), is_over: Arc::clone(&is_over) };
        std::thread::spawn(move || {
            for accepted in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // A server that restarts refuses; the proxy sees an end without a word.
                if let Ok(near) = accepted
                    && let Ok(far) = TcpStream::connect(("127.0.0.1", port))
                {
                    link(near, far, &links);
                }
            }
        });
        relay
    }

    fn links(&self) -> Vec<Arc<Link>> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        // The list and a pump on each side hold a link that is in use.
        links.retain(|link| Arc::strong_count(link) > 1);
        links.clone()
    }

    /// Breaks every `step`th link; 1 is all.
    pub(super) fn break_links(&self, step: usize, how: Break) {
        for link in self.links().iter().step_by(step) {
            if how == Break::Reset {
                for end in &link.ends {
                    let _ = rustix::net::sockopt::set_socket_linger(end, Some(Duration::ZERO));
                }
            }
            link.is_over.store(true, Ordering::Relaxed);
            if how == Break::Fin {
                for end in &link.ends {
                    let _ = end.shutdown(Shutdown::Both);
                }
            }
        }
        // Whoever drops it last closes it, which sends the reset.
        self.links
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|link| !link.is_over.load(Ordering::Relaxed));
    }

    /// Lets nothing pass for a while on every `step`th link.
    pub(super) fn stall(&self, step: usize, time: Duration) {
        let until = Instant::now() + time;
        for link in self.links().iter().step_by(step) {
            *link.stalled_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.break_links(1, Break::Fin);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn link(near: TcpStream, far: TcpStream, links: &Mutex<Vec<Arc<Link>>>) {
    for end in [&near, &far] {
        end.set_nodelay(true).unwrap();
        end.set_read_timeout(Some(TICK)).unwrap();
        end.set_write_timeout(Some(TICK)).unwrap();
    }
    let link = Arc::new(Link {
        ends: [near, far],
        is_over: AtomicBool::new(false),
        stalled_until: Mutex::new(Instant::now()),
    });
    for from in [0, 1] {
        let link = Arc::clone(&link);
        std::thread::spawn(move || link.pump(from));
    }
    links.lock().unwrap_or_else(PoisonError::into_inner).push(link);
}
