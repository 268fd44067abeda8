//! The relay as a task per client on tokio, for both of its schedulers.
//!
//! The pool is a fair semaphore, which is the FIFO queue, around a list of idle connections. One
//! text serves both schedulers: on one thread its locks are never contended and cost a few
//! nanoseconds each, less than a `LocalSet` for `!Send` tasks would.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;

use crate::net::{self, REPLY, REQUEST};

/// Relays until the process is ended by a signal.
pub(crate) fn run(
    mut runtime: Builder,
    listener: TcpListener,
    upstream: SocketAddr,
    pool: usize,
) -> io::Result<()> {
    runtime.enable_io().build()?.block_on(async {
        let connect = |_| TcpStream::from_std(net::connect_tcp(upstream)?);
        let idle = (0..pool).map(connect).collect::<io::Result<Vec<_>>>()?;
        let pool = Arc::new(Pool { permits: Semaphore::new(pool), idle: Mutex::new(idle) });
        let listener = tokio::net::TcpListener::from_std(listener)?;
        // Accepting in a spawned task: on the multi-thread scheduler `block_on` itself runs on a
        // thread that is not a worker, and everything it spawns would cross threads.
        tokio::spawn(accept(listener, pool)).await?
    })
}

struct Pool {
    permits: Semaphore,
    /// At least as many connections as there are permits to be had.
    idle: Mutex<Vec<TcpStream>>,
}

impl Pool {
    fn take(&self) -> Option<TcpStream> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn put(&self, upstream: TcpStream) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(upstream);
    }
}

async fn accept(listener: tokio::net::TcpListener, pool: Arc<Pool>) -> io::Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        let pool = Arc::clone(&pool);
        tokio::spawn(async move {
            // A client's end is not an error of the relay; the client reports what it misses.
            let _ = serve(client, &pool).await;
        });
    }
}

async fn serve(mut client: TcpStream, pool: &Pool) -> io::Result<()> {
    let mut buffer = [0; 256];
    loop {
        match client.read(&mut buffer).await? {
            REQUEST => {}
            0 => return Ok(()),
            _ => {
                return Err(io::Error::other("a request came in pieces or was not awaited"));
            }
        }
        let permit = pool.permits.acquire().await.map_err(io::Error::other)?;
        let mut upstream = pool.take().ok_or_else(|| io::Error::other("a permit without one"))?;
        upstream.write_all(&buffer[..REQUEST]).await?;
        let mut received = 0;
        while received < REPLY {
            let read = upstream.read(&mut buffer).await?;
            if read == 0 {
                return Err(io::Error::other("the echo server closed a connection"));
            }
            received += read;
            client.write_all(&buffer[..read]).await?;
        }
        pool.put(upstream);
        drop(permit);
    }
}
