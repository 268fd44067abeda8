//! What raw clients say and hear.

use std::io;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use tidegate_engine::{Endpoint, Listener};

use crate::house::PATIENCE;

pub(crate) fn hello(version: u32) -> Vec<u8> {
    [b"tg-calls".as_slice(), &version.to_le_bytes()].concat()
}

pub(crate) fn request(id: u64, name: &str, arguments: &[u8]) -> Vec<u8> {
    let name_len = u16::try_from(name.len()).unwrap().to_le_bytes();
    let body = [&[1], &id.to_le_bytes()[..], &name_len, name.as_bytes(), arguments].concat();
    let len = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&len[..], &body].concat()
}

pub(crate) fn raw(listener: &Listener) -> UnixStream {
    let Endpoint::Unix(path) = listener.endpoint() else { panic!("no Unix socket") };
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A raw client that has been welcomed.
pub(crate) fn welcomed(listener: &Listener) -> UnixStream {
    let mut stream = raw(listener);
    stream.write_all(&hello(1)).unwrap();
    let mut welcome = [0; 24];
    stream.read_exact(&mut welcome).unwrap();
    assert_eq!(welcome[..16], *b"tg-calls\x01\0\0\0\0\0\0\0");
    stream
}

pub(crate) fn read_frame(stream: &mut UnixStream) -> Vec<u8> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut body = vec![0; usize::try_from(u32::from_le_bytes(len)).unwrap()];
    stream.read_exact(&mut body).unwrap();
    body
}

/// The number of a request that is done, and its answer.
pub(crate) fn done(frame: &[u8]) -> (u64, &[u8]) {
    assert_eq!(frame[0], 0, "{}", String::from_utf8_lossy(&frame[9..]));
    (u64::from_le_bytes(frame[1..9].try_into().unwrap()), &frame[9..])
}

pub(crate) fn assert_at_end(stream: &mut UnixStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        // A socket that is closed while something is unread is reset.
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
    assert_eq!(rest, b"");
}
