//! A PostgreSQL server for the tests that run at the same time, and a proxy for each test.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_proxy::config::ListenAddress;
use tidegate_proxy::config_file::ConfigFile;
use tidegate_proxy::handover::{HandoverError, Inheritance, Leave, Left};
use tidegate_proxy::{ReloadError, ReloadReport, Running, start, take_over};
use tidegate_subject::client::BlockingClient;
use tidegate_subject::postgres::{Authentication, Options, Postgres};

use super::Wire;

/// Both ways to share upstream connections.
pub(crate) const MODES: [&str; 2] = ["transaction", "session"];

/// No test waits longer than this for anything.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// Clients the shared server has room for.
const CONNECTIONS_MAX: usize = 1_200;

static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

/// The shared server, or one of the test's own.
pub(crate) type Server = Arc<Postgres>;

/// The server of the tests that run now; it stops with the last of them.
pub(crate) fn server() -> Server {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let server = Arc::new(own_server(Authentication::Trust));
    *shared = Arc::downgrade(&server);
    server
}

/// A server that only one test uses.
pub(crate) fn own_server(authentication: Authentication) -> Postgres {
    start_server(authentication, None)
}

/// A standby of a server, which may take a moment to have what that has.
pub(crate) fn standby_of(primary: &Postgres) -> Postgres {
    start_server(Authentication::Trust, Some(primary.port()))
}

fn start_server(authentication: Authentication, standby_of: Option<u16>) -> Postgres {
    let connections = CONNECTIONS_MAX.to_string();
    start_with(&[("max_connections", &*connections)], authentication, standby_of)
}

/// A server that only one test uses, with settings of its own.
pub(crate) fn server_with(own: &[(&str, &str)], authentication: Authentication) -> Postgres {
    start_with(own, authentication, None)
}

fn start_with(
    own: &[(&str, &str)],
    authentication: Authentication,
    standby_of: Option<u16>,
) -> Postgres {
    let settings = [("fsync", "off"), ("shared_buffers", "64MB")];
    let settings = settings.iter().chain(own).copied().collect::<Vec<_>>();
    Postgres::start(Options {
        settings: settings.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
        authentication,
        standby_of,
    })
    .unwrap()
}

/// Repeats `attempt` until it gives a value; fails the test if it never does.
pub(crate) fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + BOUND;
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The lines of a configuration file, apart from addresses.
pub(crate) struct Setup {
    top: String,
    threads: usize,
    database: String,
    sections: String,
    /// Names and contents of files beside the configuration.
    files: Vec<(&'static str, String)>,
    is_local: bool,
    name: &'static str,
    upstream: String,
    server: Option<Server>,
}

/// A proxy to the shared server, which runs at least as long as the proxy.
pub(crate) fn shared(mode: &str) -> Setup {
    let server = server();
    Setup { server: Some(Arc::clone(&server)), ..setup(&server, mode) }
}

/// A proxy to `server` in this mode.
pub(crate) fn setup(server: &Postgres, mode: &str) -> Setup {
    Setup {
        top: String::new(),
        threads: 1,
        database: format!("mode = \"{mode}\"\n"),
        sections: String::new(),
        files: Vec::new(),
        is_local: false,
        name: "*",
        upstream: format!("postgres://127.0.0.1:{}", server.port()),
        server: None,
    }
}

impl Setup {
    /// With this many transactions at once, however long they take.
    pub(crate) fn limit(self, limit: u32) -> Self {
        self.database_line(&format!("control = \"fixed:{limit}\"\nmax_mpl = {limit}"))
    }

    /// With this many event loops instead of one, in which every client can meet every other.
    pub(crate) fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// With one more line of the file's top level.
    pub(crate) fn line(mut self, line: &str) -> Self {
        writeln!(self.top, "{line}").unwrap();
        self
    }

    /// With one more line of the database's section.
    pub(crate) fn database_line(mut self, line: &str) -> Self {
        writeln!(self.database, "{line}").unwrap();
        self
    }

    /// With one more section of the file, or several.
    pub(crate) fn section(mut self, text: &str) -> Self {
        writeln!(self.sections, "{text}").unwrap();
        self
    }

    /// With these lines as the user file.
    pub(crate) fn users(self, users: &str) -> Self {
        self.file("users.txt", users).line("users_file = \"users.txt\"")
    }

    /// With a file beside the configuration.
    pub(crate) fn file(mut self, name: &'static str, text: &str) -> Self {
        self.files.push((name, text.to_owned()));
        self
    }

    /// Also on a Unix-domain socket, in the directory of the configuration.
    pub(crate) fn with_socket(mut self) -> Self {
        self.is_local = true;
        self
    }

    /// Serving one database of this name instead of every name.
    pub(crate) fn only(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// To another server, or to the same one in another way.
    pub(crate) fn upstream(mut self, url: &str) -> Self {
        url.clone_into(&mut self.upstream);
        self
    }

    pub(crate) fn start(self) -> Proxy {
        let Setup { top, threads, database, sections, files, is_local, name, upstream, server } =
            self;
        let directory = TempDir::new().unwrap();
        let socket = directory.path().join(".s.PGSQL.6432");
        let local = if is_local { format!(", \"{}\"", socket.display()) } else { String::new() };
        let text = format!(
            "listen = [\"127.0.0.1:0\"{local}]\nadmin_listen = \"127.0.0.1:0\"\n\
             threads = {threads}\n{top}\n\
             [databases.\"{name}\"]\nupstream = \"{upstream}\"\n{database}\n{sections}"
        );
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let path = directory.path().join("tidegate.toml");
        std::fs::write(&path, &text).unwrap();
        let config = ConfigFile::read(&path).unwrap().into_config().unwrap_or_else(|error| {
            panic!("{error}\n{text}");
        });
        let running = start(config).unwrap();
        let [ListenAddress::Tcp(address), ..] = *running.local_addresses() else {
            panic!("one TCP address was asked for");
        };
        running.on_reload(move |over| {
            let config = ConfigFile::read_with(&path, over).and_then(ConfigFile::into_config);
            config.map_err(|error| error.to_string())
        });
        let admin = running.admin_address().unwrap();
        Proxy { running, address, admin, directory, _server: server }
    }
}

/// A proxy in this process; it stops when dropped.
pub(crate) struct Proxy {
    running: Running,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    /// Where the configuration, the files beside it and the socket are.
    pub(crate) directory: TempDir,
    _server: Option<Server>,
}

/// A hand-over that is under way.
pub(crate) struct HandingOver {
    ended: JoinHandle<Result<Left, HandoverError>>,
    old: Running,
}

impl HandingOver {
    /// Waits until the old proxy has nothing left, and ends it.
    pub(crate) fn end(self) -> Left {
        let left = self.ended.join().unwrap().unwrap();
        self.old.shutdown(Duration::ZERO);
        left
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_finished()
    }
}

impl Deref for Proxy {
    type Target = SocketAddr;

    fn deref(&self) -> &SocketAddr {
        &self.address
    }
}

impl Proxy {
    /// Replaces the configuration file; [`Proxy::reload`] puts it in force.
    pub(crate) fn write(&self, text: &str) {
        std::fs::write(self.directory.path().join("tidegate.toml"), text).unwrap();
    }

    pub(crate) fn reload(&self) -> Result<ReloadReport, ReloadError> {
        self.running.reload()()
    }

    pub(crate) fn local_addresses(&self) -> Vec<ListenAddress> {
        self.running.local_addresses()
    }

    pub(crate) fn admin_address(&self) -> Option<SocketAddr> {
        self.running.admin_address()
    }

    pub(crate) fn connect(&self) -> Wire {
        Wire::connect(self.address)
    }

    /// A client as the laboratory uses it.
    pub(crate) fn client(&self) -> BlockingClient {
        let client = BlockingClient::connect(&self.url("")).unwrap();
        client.set_timeout(Some(BOUND)).unwrap();
        client
    }

    /// The URL of database `postgres` as user `postgres`; `password` begins with a colon.
    pub(crate) fn url(&self, password: &str) -> String {
        format!("postgres://postgres{password}@{}/postgres", self.address)
    }

    /// Lets another proxy in this process take over, with the configuration of its file as it is.
    /// Returns how the old one ends.
    pub(crate) fn begin_hand_over(&mut self) -> HandingOver {
        let (near, far) = UnixStream::pair().unwrap();
        let path = self.directory.path().join("tidegate.toml");
        let successor = std::thread::spawn(move || {
            let inheritance = Inheritance::receive(far.into()).unwrap();
            let config = ConfigFile::read(&path).unwrap().into_config().unwrap();
            take_over(config, inheritance).unwrap()
        });
        let leave = self.running.leave();
        let ended = std::thread::spawn(move || leave.hand_over(near.into(), || (), || ()));
        let old = std::mem::replace(&mut self.running, successor.join().unwrap());
        HandingOver { ended, old }
    }

    /// The right to hand over.
    pub(crate) fn leave(&self) -> Leave {
        self.running.leave()
    }

    /// Lets another proxy in this process take over; everything is its own when this returns.
    pub(crate) fn hand_over(&mut self) -> Left {
        self.begin_hand_over().end()
    }

    pub(crate) fn shutdown(self, grace: Duration) {
        self.running.shutdown(grace);
    }

    /// A metric's value, summed over its labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let page = self.get("/metrics");
        let mut samples = page
            .lines()
            .filter_map(|line| {
                let (labelled, value) = line.rsplit_once(' ')?;
                let is_it = labelled.split('{').next() == Some(name);
                is_it.then(|| value.parse::<u64>().unwrap())
            })
            .peekable();
        assert!(samples.peek().is_some(), "no metric {name}:\n{page}");
        samples.sum()
    }

    pub(crate) fn get(&self, path: &str) -> String {
        // A reload may have moved it.
        let admin = self.admin_address().unwrap_or(self.admin);
        let mut stream = TcpStream::connect(admin).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Waits until a metric has this value.
    pub(crate) fn wait_for(&self, name: &str, value: u64) {
        eventually(&format!("{name} = {value}, not {}", self.metric(name)), || {
            (self.metric(name) == value).then_some(())
        });
    }

    /// Waits until nothing runs and nothing waits: no permit has leaked, and no connection is held.
    pub(crate) fn comes_to_rest(&self) {
        for name in ["tidegate_permits_out", "tidegate_waiting", "tidegate_upstreams_busy"] {
            self.wait_for(name, 0);
        }
    }

    /// Ends the test: all clients have gone, nothing is left but idle upstream connections, and
    /// each of these has its place.
    pub(crate) fn is_left_clean(&self) {
        self.wait_for("tidegate_clients", 0);
        self.comes_to_rest();
        eventually("every upstream connection idle", || {
            let open = self.metric("tidegate_upstreams_open");
            (open == self.metric("tidegate_upstreams_idle")).then_some(())
        });
        eventually("a place for every upstream connection", || {
            let places = self.metric("tidegate_server_connections");
            (places == self.metric("tidegate_upstreams_open")).then_some(())
        });
        self.wait_for("tidegate_server_connections_awaited", 0);
    }
}
