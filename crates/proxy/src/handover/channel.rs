//! The socket between two processes: frames, and sockets that go with them.
//!
//! ```text
//! length, 4 bytes | number of sockets, 1 byte | JSON of that length
//! ```
//!
//! Sockets travel with the first bytes of their frame, whose header is read by itself, so that the
//! kernel gives them with the frame that they belong to.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::lock;

const HEADER_LEN: usize = 5;

/// Sockets with one frame, at most; the kernel takes 253.
pub(crate) const SOCKETS_MAX: usize = 128;

/// The longest frame: a client's state is mostly a message that has not arrived to its end.
const FRAME_MAX: usize = 256 << 20;

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: UnixStream,
    /// Frames are written one after the other.
    writing: Mutex<()>,
}

/// A frame as it is written.
pub(crate) fn frame(message: &impl Serialize, sockets: usize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEADER_LEN];
    serde_json::to_writer(&mut frame, message)?;
    let len = u32::try_from(frame.len() - HEADER_LEN).map_err(io::Error::other)?;
    frame[..4].copy_from_slice(&len.to_le_bytes());
    frame[4] = u8::try_from(sockets).map_err(io::Error::other)?;
    Ok(frame)
}

impl Channel {
    /// Takes one end of a socket pair.
    ///
    /// # Errors
    /// It is no socket.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Channel> {
        rustix::net::sockopt::socket_type(&socket)?;
        rustix::io::ioctl_fionbio(&socket, false)?;
        Ok(Channel { socket: UnixStream::from(socket), writing: Mutex::new(()) })
    }

    /// Sets how long [`Channel::receive`] waits; `None` is for ever.
    pub(crate) fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(patience)
    }

    /// Ends both directions: who waits for a frame finds the end.
    pub(crate) fn shut_down(&self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Writes a frame with these sockets, which the other process then has too.
    ///
    /// # Errors
    /// The other process has gone.
    pub(crate) fn send(&self, message: &impl Serialize, sockets: &[OwnedFd]) -> io::Result<()> {
        self.write(&frame(message, sockets.len())?, sockets)
    }

    /// Writes what [`frame`] has made.
    ///
    /// # Errors
    /// The other process has gone.
    pub(crate) fn write(&self, frame: &[u8], sockets: &[OwnedFd]) -> io::Result<()> {
        let _one_at_a_time = lock(&self.writing);
        let mut sent = 0;
        if !sockets.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
            if !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
                return Err(io::Error::other("too many sockets for one frame"));
            }
            let bytes = [IoSlice::new(frame)];
            sent = retry(|| sendmsg(&self.socket, &bytes, &mut control, SendFlags::NOSIGNAL))?;
        }
        let mut rest = &frame[sent..];
        while !rest.is_empty() {
            let count = retry(|| rustix::net::send(&self.socket, rest, SendFlags::NOSIGNAL))?;
            rest = &rest[count..];
        }
        (&self.socket).flush()
    }

    /// Waits for a frame. Returns `None` at the end of the channel.
    ///
    /// # Errors
    /// The time is over, or the bytes make no sense.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let (mut header, mut sockets) = ([0; HEADER_LEN], Vec::new());
        let mut read = 0;
        while read < HEADER_LEN {
            let count = self.read_with_sockets(&mut header[read..], &mut sockets)?;
            if count == 0 {
                return Ok(None);
            }
            read += count;
        }
        let [a, b, c, d, count] = header;
        let len = u32::from_le_bytes([a, b, c, d]) as usize;
        if len > FRAME_MAX || sockets.len() != usize::from(count) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // Memory is taken as the bytes arrive.
        let mut json = Vec::new();
        (&self.socket).take(len as u64).read_to_end(&mut json)?;
        if json.len() < len {
            return Ok(None);
        }
        Ok(Some((serde_json::from_slice(&json)?, sockets)))
    }

    fn read_with_sockets(&self, bytes: &mut [u8], sockets: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = retry(|| recvmsg(&self.socket, &mut into, &mut control, flags))?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                sockets.extend(received);
            }
        }
        Ok(received.bytes)
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_arrive_with_their_frame() {
        let (near, far) = UnixStream::pair().unwrap();
        let (near, far) = (Channel::new(near.into()).unwrap(), Channel::new(far.into()).unwrap());
        let sender = std::thread::spawn(move || {
            for round in 0..50_usize {
                let pairs: Vec<_> = (0..round % 4).map(|_| UnixStream::pair().unwrap()).collect();
                let mut kept = Vec::new();
                let mut sockets = Vec::new();
                for (own, passed) in pairs {
                    kept.push(own);
                    sockets.push(OwnedFd::from(passed));
                }
                near.send(&vec![round; round * 1_000], &sockets).unwrap();
                for (index, mut own) in kept.into_iter().enumerate() {
                    writeln!(own, "{round} {index}").unwrap();
                }
            }
        });
        for round in 0..50_usize {
            let (numbers, sockets) = far.receive::<Vec<usize>>().unwrap().unwrap();
            assert_eq!(numbers, vec![round; round * 1_000]);
            assert_eq!(sockets.len(), round % 4);
            for (index, socket) in sockets.into_iter().enumerate() {
                let mut text = String::new();
                UnixStream::from(socket).read_to_string(&mut text).unwrap();
                assert_eq!(text, format!("{round} {index}\n"));
            }
        }
        sender.join().unwrap();
        assert!(far.receive::<Vec<usize>>().unwrap().is_none());
    }
}
