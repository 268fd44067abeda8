//! What must be gone once a server is.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use tidegate_subject::database::Database;
use tidegate_subject::server::{Program, ServerProcess};
use tidegate_workload::Failure;

use super::run;

pub(crate) struct Traces {
    directory: PathBuf,
    process_id: u32,
    port: u16,
}

impl Traces {
    pub(crate) fn of<P: Program>(server: &ServerProcess<P>) -> Self {
        Traces {
            directory: server.directory().to_owned(),
            process_id: server.process_id(),
            port: server.port(),
        }
    }

    pub(crate) fn assert_gone(&self) {
        assert!(!self.directory.exists());
        assert!(!Path::new(&format!("/proc/{}", self.process_id)).exists());
        assert!(TcpStream::connect(("127.0.0.1", self.port)).is_err());
    }
}

/// A server restarts on its port with its tables, and leaves nothing behind.
pub(crate) fn assert_restarts_and_stops<P: Program>(mut server: ServerProcess<P>)
where
    ServerProcess<P>: Database,
{
    let before = Traces::of(&server);
    let mut broken = server.session().unwrap();
    run(&mut *broken, "CREATE TABLE kept (x integer)", &[]).unwrap();
    run(&mut *broken, "INSERT INTO kept (x) VALUES (7)", &[]).unwrap();
    server.restart().unwrap();
    let after = Traces::of(&server);
    assert_eq!(after.port, before.port);
    assert_ne!(after.process_id, before.process_id);
    assert!(run(&mut *broken, "SELECT x FROM kept", &[]).is_err());
    let lost = run(&mut *broken, "SELECT x FROM kept", &[]);
    assert!(matches!(lost, Err(Failure::Lost(_))), "{lost:?}");
    let kept = run(&mut *server.session().unwrap(), "SELECT x FROM kept", &[]).unwrap();
    assert_eq!(kept.rows.int(0, 0), Some(7));
    server.stop().unwrap();
    before.assert_gone();
    after.assert_gone();
}

/// A panic stops the server and removes its directory.
pub(crate) fn assert_gone_after_panic<P: Program>(
    start: impl FnOnce() -> Option<ServerProcess<P>> + Send + 'static,
) where
    ServerProcess<P>: Database,
{
    let (sender, receiver) = mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let server = start();
        sender.send(server.as_ref().map(Traces::of)).unwrap();
        let _session = server.as_ref().map(|server| server.session().unwrap());
        panic!("on purpose");
    })
    .join();
    assert!(panicked.is_err());
    if let Some(traces) = receiver.recv().unwrap() {
        traces.assert_gone();
    }
}
