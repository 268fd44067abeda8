//! Chains of faults, drawn from a seed, under a load that is verified.
//!
//! An episode is a server, a relay to it, a proxy in a process of its own, and clients that check
//! every answer. Faults come in batches. In a gentle batch clients go wrong, and no other client
//! may notice anything but that it waits; in a harsh one the server or the way to it goes wrong,
//! and connections may be lost. After each batch the clients pause, and nothing may be left of it:
//! no permit, no client that waits, no connection, no descriptor, no backend. Twice in an episode,
//! and at its end, the ledger is compared with the table: what was acknowledged is there once, what
//! was refused is not. Memory may not grow after the first third.
//!
//! `TIDEGATE_FAULTS_SEED` and `TIDEGATE_FAULTS` set the seed and the number of faults. A failure
//! prints both, and the batch; the chain is the same for a seed, what runs between is not.

mod child;
mod fault;
mod load;
mod relay;
mod talk;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use tidegate_control::SplitMix64;
use tidegate_subject::postgres::{Authentication, Postgres};

use self::child::Child;
use self::fault::{Fault, World};
use self::load::{CLIENTS, Load};
use self::relay::Relay;
use self::talk::Target;
use crate::support::server::{BOUND, own_server};
use crate::support::{MODES, eventually};
use crate::tls::Authority;

/// Faults of a batch.
const BATCH: usize = 20;

/// Faults that happen at once.
const THREADS: usize = 4;

/// One batch in so many ends only when the proxy has ended every client that stays silent.
const PATIENT: usize = 12;

/// Episodes that share the faults: both modes, plain and with TLS.
const EPISODES: usize = 4;

/// Clients that never log in, once in a long episode.
const STORM: u32 = 10_000;

/// Resident memory that may come after the first third of an episode, KiB.
const GROWTH_MAX: u64 = 8 * 1024;

/// An episode: how clients reach the proxy, and what is drawn.
struct Episode {
    mode: &'static str,
    has_tls: bool,
    faults: usize,
    /// One seed makes another chain for each episode.
    seed: u64,
    number: u64,
}

/// Names what fails.
struct Chain<'a> {
    episode: &'a Episode,
    child: &'a Child,
    done: usize,
    batch: Vec<Fault>,
}

impl Drop for Chain<'_> {
    #[expect(clippy::print_stdout, reason = "shown when a test fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Episode { mode, has_tls, faults, seed, .. } = self.episode;
            println!(
                "{mode} mode, TLS {has_tls}: failed after {} faults. Repeat it with \
                 TIDEGATE_FAULTS_SEED={seed} TIDEGATE_FAULTS={}. The last batch:",
                self.done,
                faults * EPISODES
            );
            for fault in &self.batch {
                println!("  {fault:?}");
            }
            println!("The proxy's log ends with:\n{}", self.child.log());
        }
    }
}

/// The configuration: bounds are short, because clients that stay silent are waited for.
fn configuration(episode: &Episode, upstream: u16, authority: &Authority) -> String {
    let tls = if episode.has_tls {
        authority.section("proxy", "mode = \"prefer\"")
    } else {
        String::new()
    };
    format!(
        "listen = [\"127.0.0.1:0\"]\nadmin_listen = \"127.0.0.1:0\"\nthreads = 2\n{tls}\
         [timeouts]\nlogin = \"6s\"\nmessage = \"4s\"\nidle_in_transaction = \"4s\"\n\
         connect = \"3s\"\nabandoned = \"2s\"\nqueue = \"60s\"\n\
         [databases.\"*\"]\nupstream = \"postgres://127.0.0.1:{upstream}?sslmode=disable\"\n\
         mode = \"{}\"\ncontrol = \"fixed:12\"\nmax_mpl = 200\n",
        episode.mode
    )
}

fn encryption(authority: &Authority) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.path("ca.crt")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

impl Episode {
    fn run(&self, server: &Mutex<Postgres>) {
        let authority = Authority::new();
        authority.issue("proxy", "proxy", &["localhost"]);
        let port = {
            let server = server.lock().unwrap_or_else(PoisonError::into_inner);
            let mut admin = server.connect().unwrap();
            for sql in [
                "DROP TABLE IF EXISTS ledger, unfinished",
                "CREATE TABLE ledger (token text)",
                "CREATE INDEX ON ledger (token)",
                "CREATE TABLE unfinished (a int)",
            ] {
                admin.query(sql).unwrap();
            }
            server.port()
        };
        let relay = Relay::start(port);
        let child = Child::start(&configuration(self, relay.address.port(), &authority));
        let tls = self.has_tls.then(|| encryption(&authority));
        let target = Target { address: child.address, tls };
        let load = Load::new(target.clone());
        let world = World::new(server, &relay, &child, &load, target);
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let load = &load;
                scope.spawn(move || load.work(number, self.seed));
            }
            // The clients end with this block, also when it panics.
            let _end = Ends(&load);
            self.batches(&world);
        });
    }

    /// Inflicts all batches, and looks after each what is left of it.
    fn batches(&self, world: &World<'_>) {
        let mut draws = SplitMix64::new(self.seed + (self.number << 32));
        let mut chain = Chain { episode: self, child: world.child, done: 0, batch: Vec::new() };
        let rest = Rest::new(world);
        let (started, mut shown) = (Instant::now(), Instant::now());
        let batches = self.faults.div_ceil(BATCH);
        let mut warm = None;
        for number in 0..batches {
            let is_gentle = number % 2 == 0;
            let fault = if is_gentle { Fault::gentle } else { Fault::harsh };
            chain.batch =
                (0..BATCH.min(self.faults - chain.done)).map(|_| fault(&mut draws)).collect();
            if number + 1 == batches / 4 && self.faults > 1_000 {
                chain.batch.push(Fault::NeverLogIn { count: STORM });
            }
            world.load.go_on(is_gentle);
            inflict(world, &chain.batch);
            world.end_silence(number % PATIENT == PATIENT - 1);
            world.load.pause();
            rest.is_reached(world, self.mode);
            chain.done += chain.batch.len();
            if number == batches / 2 || number + 1 == batches {
                self.audit(world);
            }
            let found = world.load.violations();
            assert!(found.is_empty(), "{found:#?}");
            if number + 1 == batches.div_ceil(3) {
                warm = Some(world.child.resident());
            }
            if shown.elapsed() > Duration::from_secs(10) || number + 1 == batches {
                shown = Instant::now();
                self.show(world, chain.done, started.elapsed());
            }
        }
        let (warm, end) = (warm.unwrap_or_default(), world.child.resident());
        assert!(end <= warm + GROWTH_MAX, "{warm} KiB after a third, {end} KiB at the end");
        assert_eq!(world.child.panics(), [""; 0]);
        assert!(world.child.get("/healthz").starts_with("HTTP/1.1 200"));
    }

    fn audit(&self, world: &World<'_>) {
        let server = world.server.lock().unwrap_or_else(PoisonError::into_inner);
        let mut admin = server.connect().unwrap();
        world.load.audit(&mut admin);
        // 1 is of a batch without its Sync, 2 of a transaction, 3 of a COPY without its end.
        let left = admin.value("SELECT array_agg(a) FROM unfinished").unwrap();
        assert_eq!(left, "", "{} mode: committed without its client", self.mode);
    }

    #[expect(clippy::print_stdout, reason = "a soak test prints its progress")]
    fn show(&self, world: &World<'_>, done: usize, time: Duration) {
        let left = time.as_secs_f64() / done as f64 * (self.faults.saturating_sub(done)) as f64;
        println!(
            "seed {}, {} mode{}: {done} of {} faults; {} operations verified, {} connections \
             lost with the server; {} KiB resident, {} descriptors; {:.0} s, about {left:.0} s \
             left",
            self.seed,
            self.mode,
            if self.has_tls { ", TLS" } else { "" },
            self.faults,
            world.load.operations.load(Ordering::Relaxed),
            world.load.losses.load(Ordering::Relaxed),
            world.child.resident(),
            world.child.descriptors(),
            time.as_secs_f64(),
        );
    }
}

/// Ends the load when the faults have ended, in whatever way.
struct Ends<'a>(&'a Load);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Makes the faults of a batch happen, several at once.
fn inflict(world: &World<'_>, batch: &[Fault]) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(&fault) = batch.get(next.fetch_add(1, Ordering::Relaxed)) {
                    world.inflict(fault);
                }
            });
        }
    });
}

/// What a proxy holds that has nothing to do.
struct Rest {
    /// Descriptors beside those of clients and of connections to the server.
    descriptors: u64,
}

impl Rest {
    fn new(world: &World<'_>) -> Rest {
        // Before the metrics are asked for, which takes a descriptor for a moment.
        let descriptors = world.child.descriptors();
        let metrics = world.child.metrics();
        assert_eq!(metrics["tidegate_clients"] + metrics["tidegate_upstreams_open"], 0);
        Rest { descriptors }
    }

    /// Waits until nothing is left of a batch.
    fn is_reached(&self, world: &World<'_>, mode: &str) {
        let deadline = Instant::now() + BOUND;
        while let Err(found) = self.look(world, mode) {
            assert!(Instant::now() < deadline, "never at rest: {found}");
            std::thread::sleep(Duration::from_millis(5));
        }
        // It serves a client that has nothing to do with what went wrong.
        let token = world.load.token();
        let rows = eventually("a new client is served", || {
            let asked = world
                .target
                .connect()
                .and_then(|mut talk| talk.ask(&format!("SELECT '{token}'"))?.rows());
            asked.ok()
        });
        assert_eq!(rows, [token]);
    }

    /// Compares what the proxy holds with what its clients need.
    fn look(&self, world: &World<'_>, mode: &str) -> Result<(), String> {
        let metrics = world.child.metrics();
        let of = |name: &str| metrics[&format!("tidegate_{name}")];
        let clients = world.load.held();
        // In session mode each client keeps one.
        let kept = if mode == "session" { clients } else { 0 };
        let open = of("upstreams_open");
        let backends = {
            let server = world.server.lock().unwrap_or_else(PoisonError::into_inner);
            let sql = "SELECT count(*) FROM pg_stat_activity \
                       WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
            server.connect().and_then(|mut admin| admin.value(sql)).unwrap_or_default()
        };
        let compared = [
            ("clients", of("clients"), clients),
            ("permits out", of("permits_out"), 0),
            ("waiting", of("waiting"), 0),
            ("upstreams busy", of("upstreams_busy"), 0),
            ("upstreams open", open, of("upstreams_idle") + kept),
            ("descriptors", world.child.descriptors(), self.descriptors + clients + open),
            ("backends", backends.parse().unwrap_or(u64::MAX), open),
        ];
        let mut found = String::new();
        for (what, is, should) in compared {
            if is != should {
                let _ = write!(found, "{what} {is} instead of {should}; ");
            }
        }
        if found.is_empty() { Ok(()) } else { Err(found) }
    }
}

/// A number of the environment, or a default.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Both modes, plain and with TLS, each with its share of the faults.
fn episodes(faults: u64, seed: u64) {
    let server = Mutex::new(own_server(Authentication::Trust));
    let faults = usize::try_from(setting("TIDEGATE_FAULTS", faults)).unwrap();
    let seed = setting("TIDEGATE_FAULTS_SEED", seed);
    let ways = MODES.iter().flat_map(|mode| [(mode, false), (mode, true)]);
    for ((mode, has_tls), number) in ways.zip(0..) {
        Episode { mode, has_tls, faults: faults / EPISODES, seed, number }.run(&server);
    }
}

#[test]
fn two_hundred_faults_leave_nothing_behind() {
    episodes(200, 18);
}

#[test]
#[ignore = "soak: 10,000 faults"]
fn ten_thousand_faults_leave_nothing_behind() {
    episodes(10_000, 1_800);
}
