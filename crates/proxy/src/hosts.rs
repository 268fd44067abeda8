//! Which hosts a server has, which of them is in use, and whether it can be reached.
//!
//! # Mechanism
//!
//! All event loops ask one [`Hosts`] before they open a connection. It is in one of two states:
//!
//! - *Settled*: a host is known to do. Connections to it are opened as needed; where a name has
//!   several addresses, to each in turn. An address that fails is left alone for [`AVOIDED`].
//! - *Searching*: no known host does. One attempt at a time is made, at each address of each host
//!   in the order of the list. When all have failed there is a pause before the next round: a
//!   random part of 50 ms, then of twice as long, up to 2 s. The first attempt that succeeds
//!   settles the matter, and everybody may open connections again.
//!
//! ```text
//! h1 in use:   h1 refuses                      -> searching, round 1: h1 has been tried
//!              h2: a standby, not read-write   -> round 1 is over, pause of 0 to 50 ms
//!              h1 refuses; h2: promoted        -> settled on h2; connections to h1 end at rest
//! ```
//!
//! A server of one host begins settled; one of several begins with a search, unless connections are
//! spread over all of them at random, each of which is then in use as long as it does.
//!
//! While the search lasts the gate is told of an outage: how much the database can do is unknown
//! then, and no more permits are granted than have connections.
//!
//! # What an attempt may end in
//!
//! | end | consequence |
//! | --- | --- |
//! | [`Attempt::reached`] | the host does |
//! | [`Attempt::failed`] | the host cannot be reached, or is not what was asked for |
//! | [`Attempt::answered`] | the host refuses this user or database: it can be reached |
//! | dropped | nothing is known, such as when the client has gone for which it was made |

use std::net::IpAddr;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_control::SplitMix64;
use tidegate_gate::Gate;
use tidegate_wire::error_response::SqlState;

use crate::config::{LoadBalance, ServerAddress, ServerHosts, SessionAttributes};
use crate::handshake::UpstreamError;
use crate::log_limit::LogLimit;
use crate::tls::TlsError;

/// The longest pause after the first failed round, and after any.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// For how long an address that has failed is left alone while another one does.
const AVOIDED: Duration = Duration::from_secs(10);

/// With `prefer-standby`, a host that is none is in use for so long before another is tried.
const REVIEWED: Duration = Duration::from_secs(30);

/// `read_only_sql_transaction`.
const READ_ONLY: SqlState<'static> = SqlState("25006");

/// Where a connection leads, which is where its cancel requests have to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The number of the host in the server's list.
    pub(crate) host: usize,
    /// The address; `None` is that of a Unix-domain socket, or of a name that has none.
    pub(crate) address: Option<SocketAddr>,
}

/// What a server says of itself, as far as it decides whether it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    /// It is a standby.
    pub(crate) is_standby: bool,
    /// Transactions are read-only unless they ask for more.
    pub(crate) is_read_only: bool,
}

impl SessionAttributes {
    /// Returns whether a server of this role does.
    fn fit(self, role: Role) -> bool {
        match self {
            SessionAttributes::Any => true,
            SessionAttributes::ReadWrite => !role.is_standby && !role.is_read_only,
            SessionAttributes::ReadOnly => role.is_standby || role.is_read_only,
            SessionAttributes::Primary => !role.is_standby,
            SessionAttributes::Standby | SessionAttributes::PreferStandby => role.is_standby,
        }
    }
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Unknown,
    /// It did, last at this time.
    Good(Instant),
    /// It failed, or was not what was asked for, at this time.
    Bad {
        at: Instant,
        is_unfit: bool,
    },
}

/// An address of a host.
#[derive(Clone, Copy, Debug)]
struct Target {
    peer: Peer,
    standing: Standing,
}

impl Target {
    fn new(peer: Peer) -> Target {
        Target { peer, standing: Standing::Unknown }
    }

    /// Returns whether a connection may be opened to it while nothing is searched.
    fn is_usable(&self, now: Instant) -> bool {
        match self.standing {
            Standing::Unknown | Standing::Good(_) => true,
            Standing::Bad { at, .. } => now.saturating_duration_since(at) >= AVOIDED,
        }
    }
}

/// Why there was no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastError {
    /// Its SQLSTATE.
    pub(crate) code: String,
    /// The host and what happened.
    pub(crate) text: String,
}

/// A search for a host that does.
///
/// - `tried` has an entry for each target.
/// - `probe` is the number of the one attempt that is under way.
#[derive(Debug)]
struct Search {
    since: Instant,
    tried: Vec<bool>,
    /// With `prefer-standby`: there is no standby, so any host does.
    takes_any: bool,
    has_seen_unfit: bool,
    rounds: u32,
    next_try: Instant,
    probe: Option<u64>,
    last: Option<(LastError, Instant)>,
}

/// - While nothing is searched, a target of a host in use is usable.
struct HostsState {
    targets: Vec<Target>,
    /// The host in use; `None` at the beginning, and where all are.
    in_use: Option<usize>,
    /// With `prefer-standby`: when another host than the one in use, which is none, is tried.
    review_at: Option<Instant>,
    search: Option<Search>,
    random: SplitMix64,
    turn: usize,
    attempts: u64,
    failures: u64,
    outages: u64,
    log_limit: LogLimit,
}

/// An outage as it is told to clients.
#[derive(Clone, Debug)]
pub(crate) struct OutageReport {
    /// When the first attempt failed.
    pub(crate) since: Instant,
    /// When the last attempt failed.
    pub(crate) failed_at: Instant,
    /// Why the last attempt failed.
    pub(crate) last: LastError,
}

/// The hosts of a server, as metrics show them.
#[derive(Clone, Debug)]
pub(crate) struct HostsMetrics {
    /// Whether connections can be opened, as far as is known.
    pub(crate) is_up: bool,
    /// Each host, and whether it is in use.
    pub(crate) hosts: Vec<(String, bool)>,
    pub(crate) attempts: u64,
    pub(crate) failures: u64,
    pub(crate) outages: u64,
}

/// May a connection be opened?
pub(crate) enum Opening {
    /// Yes, there.
    Now(Attempt),
    /// Not now; at this time perhaps, or when another attempt has ended.
    Later(Option<Instant>),
}

/// The hosts of a server, for all event loops.
pub(crate) struct Hosts {
    list: ServerHosts,
    gate: Gate,
    /// Connections that are logged in.
    connected: AtomicU32,
    /// Grows whenever connections that are open may no longer do.
    generation: AtomicU64,
    /// Every host has failed, and none has done since.
    is_down: AtomicBool,
    state: Mutex<HostsState>,
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Hosts").field("list", &self.list).finish_non_exhaustive()
    }
}

impl Hosts {
    /// Makes the list, without addresses: [`Hosts::resolve`] has to follow.
    pub(crate) fn new(list: ServerHosts, gate: Gate, seed: u64, now: Instant) -> Hosts {
        let unresolved = |host| Target::new(Peer { host, address: None });
        let state = HostsState {
            targets: (0..list.hosts.len()).map(unresolved).collect(),
            in_use: (list.hosts.len() == 1).then_some(0),
            review_at: None,
            search: None,
            random: SplitMix64::new(seed),
            turn: 0,
            attempts: 0,
            failures: 0,
            outages: 0,
            log_limit: LogLimit::new(now),
        };
        Hosts {
            list,
            gate,
            connected: AtomicU32::new(0),
            generation: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HostsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the hosts as they were configured.
    pub(crate) fn list(&self) -> &ServerHosts {
        &self.list
    }

    /// Returns the address of a host as it was configured.
    pub(crate) fn address(&self, host: usize) -> &ServerAddress {
        &self.list.hosts[host]
    }

    /// Returns the addresses that a host's name means.
    pub(crate) fn addresses(&self, host: usize) -> Vec<IpAddr> {
        let state = self.lock();
        let of_host = state.targets.iter().filter(|target| target.peer.host == host);
        of_host.filter_map(|target| Some(target.peer.address?.ip())).collect()
    }

    /// Returns what is asked of a host.
    pub(crate) fn attributes(&self) -> SessionAttributes {
        self.list.attributes
    }

    /// Returns whether one of the hosts is a name whose meaning may change.
    pub(crate) fn is_named(&self) -> bool {
        self.list.hosts.iter().any(ServerAddress::is_named)
    }

    /// Looks the hosts' names up. Blocks, so no event loop may call it. Returns the hosts that were
    /// not found, and why; they keep the addresses they had.
    pub(crate) fn resolve(&self, now: Instant) -> Vec<(usize, std::io::Error)> {
        let mut failed = Vec::new();
        for (host, address) in self.list.hosts.iter().enumerate() {
            let ServerAddress::Tcp(name, port) = address else { continue };
            match (name.as_str(), *port).to_socket_addrs() {
                Ok(found) => self.set_addresses(host, &found.collect::<Vec<_>>(), now),
                Err(error) => failed.push((host, error)),
            }
        }
        failed
    }

    /// Notes what a host's name means now. What is known of addresses that stay is kept, and new
    /// ones are tried at once.
    fn set_addresses(&self, host: usize, found: &[SocketAddr], now: Instant) {
        let mut state = self.lock();
        let before = |target: &&Target| target.peer.host == host;
        let known: Vec<SocketAddr> =
            state.targets.iter().filter(before).filter_map(|it| it.peer.address).collect();
        let is_same = known.len() == found.len() && known.iter().all(|it| found.contains(it));
        if found.is_empty() || is_same {
            return;
        }
        let targets = std::mem::take(&mut state.targets);
        let new = |address: &SocketAddr| {
            let peer = Peer { host, address: Some(*address) };
            let known = targets.iter().find(|target| target.peer == peer);
            known.copied().unwrap_or_else(|| Target::new(peer))
        };
        let is_before = |target: &&Target| target.peer.host < host;
        let is_behind = |target: &&Target| target.peer.host > host;
        let (head, tail) = (targets.iter().filter(is_before), targets.iter().filter(is_behind));
        let middle: Vec<Target> = found.iter().map(new).collect();
        let all = head.copied().chain(middle).chain(tail.copied()).collect::<Vec<_>>();
        let count = all.len();
        state.targets = all;
        if let Some(search) = &mut state.search {
            search.tried = vec![false; count];
            search.next_try = now;
        }
        drop(state);
        if !known.is_empty() {
            let (name, addresses) = (self.address(host), found);
            tracing::info!(%name, ?addresses, "the host name has other addresses");
        }
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns a number that grows whenever open connections may no longer do.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns whether a connection to this peer is still one that would be opened.
    pub(crate) fn accepts(&self, peer: Peer) -> bool {
        let state = self.lock();
        let target = state.targets.iter().find(|target| target.peer == peer);
        let is_fit =
            target.is_some_and(|it| !matches!(it.standing, Standing::Bad { is_unfit: true, .. }));
        is_fit && (self.is_balanced() || state.in_use.is_none_or(|in_use| in_use == peer.host))
    }

    /// Notes what a server has become while a connection to it was open.
    pub(crate) fn report(&self, peer: Peer, is_standby: bool, now: Instant) {
        // Of a session alone it says nothing whether it only reads.
        let role = Role { is_standby, is_read_only: is_standby };
        if self.list.attributes.fit(role) {
            return;
        }
        let mut state = self.lock();
        if self.list.attributes == SessionAttributes::PreferStandby {
            state.review_at = Some(now);
            return;
        }
        if let Some(target) = state.targets.iter_mut().find(|target| target.peer == peer) {
            target.standing = Standing::Bad { at: now, is_unfit: true };
        }
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn is_balanced(&self) -> bool {
        self.list.balance == LoadBalance::Random
    }

    /// Returns whether no host can be reached, as far as is known.
    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Returns the outage, if an attempt has failed in one.
    pub(crate) fn outage(&self) -> Option<OutageReport> {
        let state = self.lock();
        let search = state.search.as_ref()?;
        let (last, failed_at) = search.last.clone()?;
        Some(OutageReport { since: search.since, failed_at, last })
    }

    /// Returns where a connection beside those of clients is to be opened: to the host in use, or
    /// to each in turn.
    pub(crate) fn observed_peer(&self, attempt: usize) -> Peer {
        let state = self.lock();
        let is_in_use = |target: &&Target| state.in_use.is_none_or(|host| target.peer.host == host);
        let targets: Vec<Peer> =
            state.targets.iter().filter(is_in_use).map(|target| target.peer).collect();
        // A host has one target at least.
        targets.get(attempt % targets.len().max(1)).copied().unwrap_or(state.targets[0].peer)
    }

    /// Asks for the right to open a connection.
    pub(crate) fn begin(self: &Arc<Hosts>, now: Instant) -> Opening {
        let mut state = self.lock();
        if state.search.is_none()
            && let Some(target) = self.choose_usable(&mut state, now)
        {
            return Opening::Now(self.attempt(&mut state, target, false, now));
        }
        if state.search.is_none() {
            self.begin_search(&mut state, now);
        }
        let target = match &state.search {
            Some(Search { probe: Some(_), .. }) => return Opening::Later(None),
            Some(search) if now < search.next_try => return Opening::Later(Some(search.next_try)),
            _ => self.choose_untried(&mut state),
        };
        Opening::Now(self.attempt(&mut state, target, true, now))
    }

    fn attempt(
        self: &Arc<Hosts>,
        state: &mut HostsState,
        target: usize,
        is_probe: bool,
        now: Instant,
    ) -> Attempt {
        state.attempts += 1;
        let number = state.attempts;
        let mut takes_any = self.list.attributes != SessionAttributes::PreferStandby;
        if let Some(search) = &mut state.search {
            takes_any |= search.takes_any;
            if is_probe {
                search.probe = Some(number);
            }
        }
        // The host in use has been found to do, also if it is no standby.
        let peer = state.targets[target].peer;
        takes_any |= state.in_use == Some(peer.host) && state.search.is_none();
        Attempt { hosts: Arc::clone(self), peer, number, takes_any, begun: now, is_open: true }
    }

    /// Returns the target for a connection while nothing is searched, if one is usable.
    fn choose_usable(&self, state: &mut HostsState, now: Instant) -> Option<usize> {
        let mut usable = self.usable(state, true, now);
        if state.review_at.is_some_and(|at| at <= now) {
            state.review_at = Some(now + REVIEWED);
            let others = self.usable(state, false, now);
            if !others.is_empty() && !usable.is_empty() {
                usable = others;
            }
        }
        let target = self.choose(state, &usable)?;
        if let Standing::Bad { at, .. } = &mut state.targets[target].standing {
            // The others leave it alone until this attempt has ended.
            *at = now;
        }
        Some(target)
    }

    /// Returns the usable targets of hosts that are in use, or of those that are not.
    fn usable(&self, state: &HostsState, is_in_use: bool, now: Instant) -> Vec<usize> {
        let is_chosen = |target: &Target| {
            let is_used = self.is_balanced() || state.in_use == Some(target.peer.host);
            is_used == is_in_use && target.is_usable(now)
        };
        let targets = state.targets.iter().enumerate();
        targets.filter(|(_, target)| is_chosen(target)).map(|(index, _)| index).collect()
    }

    /// Returns one of these targets: each in turn, or one at random.
    fn choose(&self, state: &mut HostsState, targets: &[usize]) -> Option<usize> {
        state.turn = state.turn.wrapping_add(1);
        let turn = if self.is_balanced() {
            let count = u32::try_from(targets.len()).unwrap_or(u32::MAX);
            state.random.next_below(count) as usize
        } else {
            state.turn.checked_rem(targets.len())?
        };
        targets.get(turn).copied()
    }

    /// Returns the target for the next attempt of a search: the first of the list, or any.
    fn choose_untried(&self, state: &mut HostsState) -> usize {
        let is_untried = |index: &usize| match &state.search {
            Some(search) => !search.tried[*index],
            None => true,
        };
        let untried: Vec<usize> = (0..state.targets.len()).filter(is_untried).collect();
        let chosen = if self.is_balanced() { self.choose(state, &untried) } else { None };
        let chosen = chosen.or(untried.first().copied());
        debug_assert!(chosen.is_some(), "a round ends when all have been tried");
        chosen.unwrap_or(0)
    }

    fn begin_search(&self, state: &mut HostsState, now: Instant) {
        state.search = Some(Search {
            since: now,
            tried: vec![false; state.targets.len()],
            takes_any: false,
            has_seen_unfit: false,
            rounds: 0,
            next_try: now,
            probe: None,
            last: None,
        });
        self.tell_gate(now);
    }

    fn tell_gate(&self, now: Instant) {
        self.gate.begin_outage(self.connected.load(Ordering::Relaxed), now);
    }

    /// An attempt of a search at this target has ended, and the target does not do.
    fn end_probe(&self, state: &mut HostsState, number: u64, target: Option<usize>, now: Instant) {
        let Some(search) = &mut state.search else { return };
        if search.probe != Some(number) {
            return;
        }
        search.probe = None;
        if let Some(tried) = target.and_then(|index| search.tried.get_mut(index)) {
            *tried = true;
        }
        if search.tried.iter().all(|&tried| tried) {
            self.end_round(state, now);
        }
    }

    /// Every target has been tried in vain.
    fn end_round(&self, state: &mut HostsState, now: Instant) {
        let Some(search) = &mut state.search else { return };
        search.tried.fill(false);
        search.next_try = now;
        let prefers = self.list.attributes == SessionAttributes::PreferStandby;
        if prefers && search.has_seen_unfit && !search.takes_any {
            search.takes_any = true;
            return;
        }
        (search.takes_any, search.has_seen_unfit) = (false, false);
        let doubled = PAUSE.0.saturating_mul(1 << search.rounds.min(16));
        search.rounds += 1;
        search.next_try = now + doubled.min(PAUSE.1).mul_f64(state.random.next_draw().value());
        if search.rounds > 1 {
            return;
        }
        state.outages += 1;
        self.is_down.store(true, Ordering::Relaxed);
        let last = search.last.as_ref().map(|(last, _)| last.text.clone());
        let error = last.unwrap_or_default();
        if let Some(left_out) = state.log_limit.admit(now) {
            let server = &self.list;
            tracing::warn!(
                %server,
                error,
                left_out,
                "the server cannot be reached; transactions that have sent nothing wait for it"
            );
        }
    }

    /// Returns the state for metrics.
    pub(crate) fn metrics(&self) -> HostsMetrics {
        let state = self.lock();
        let is_good = |host| {
            let of_host = |target: &&Target| target.peer.host == host;
            let good = |target: &Target| matches!(target.standing, Standing::Good(_));
            state.targets.iter().filter(of_host).any(good)
        };
        let is_used = |host: usize| match state.in_use {
            Some(in_use) => in_use == host,
            None => self.is_balanced() && is_good(host),
        };
        let shown = |(host, address): (usize, &ServerAddress)| (address.to_string(), is_used(host));
        HostsMetrics {
            is_up: !self.is_down(),
            hosts: self.list.hosts.iter().enumerate().map(shown).collect(),
            attempts: state.attempts,
            failures: state.failures,
            outages: state.outages,
        }
    }
}

/// The right to open one connection, and the duty to say what came of it.
pub(crate) struct Attempt {
    hosts: Arc<Hosts>,
    peer: Peer,
    number: u64,
    /// Whether any host does where a standby is preferred.
    takes_any: bool,
    begun: Instant,
    is_open: bool,
}

impl Attempt {
    /// Returns where the connection is to lead.
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// Checks whether the server is what was asked for.
    ///
    /// # Errors
    /// [`UpstreamError::Unfit`] if another host may do. If the host in use does for others and only
    /// the user or database of this connection is read-only, no other will:
    /// [`UpstreamError::ReadOnly`].
    pub(crate) fn check(&self, role: Role) -> Result<(), UpstreamError> {
        let wanted = self.hosts.list.attributes;
        if wanted.fit(role) || (wanted == SessionAttributes::PreferStandby && self.takes_any) {
            return Ok(());
        }
        let is_primary = !role.is_standby;
        let state = self.hosts.lock();
        let does_for_others = state.in_use == Some(self.peer.host) && state.search.is_none();
        if wanted == SessionAttributes::ReadWrite && is_primary && does_for_others {
            return Err(UpstreamError::ReadOnly);
        }
        let is = match role {
            Role { is_standby: true, .. } => "a standby",
            Role { is_read_only: true, .. } => "a primary with default_transaction_read_only",
            _ => "a primary",
        };
        Err(UpstreamError::Unfit { is, wanted })
    }

    /// Ends the attempt: the server can be used. Returns whether others have been waiting for it.
    pub(crate) fn reached(mut self, role: Option<Role>, now: Instant) -> bool {
        self.is_open = false;
        let hosts = &*self.hosts;
        let mut state = hosts.lock();
        if let Some(target) = state.targets.iter_mut().find(|it| it.peer == self.peer) {
            target.standing = Standing::Good(now);
        }
        let is_other = !hosts.is_balanced() && state.in_use != Some(self.peer.host);
        if is_other {
            let before = state.in_use.replace(self.peer.host);
            if before.is_some() || hosts.list.hosts.len() > 1 {
                let (server, host) = (&hosts.list, hosts.address(self.peer.host));
                tracing::info!(%server, %host, "the host in use");
            }
            hosts.generation.fetch_add(1, Ordering::Release);
        }
        let prefers = hosts.list.attributes == SessionAttributes::PreferStandby;
        let is_makeshift = prefers && role.is_some_and(|role| !role.is_standby);
        if is_other || !is_makeshift {
            state.review_at = is_makeshift.then(|| now + REVIEWED);
        }
        let search = state.search.take();
        hosts.is_down.store(false, Ordering::Relaxed);
        hosts.gate.end_outage(now);
        let Some(search) = search else { return false };
        if search.rounds > 0 {
            let down_ms = now.saturating_duration_since(search.since).as_millis();
            let (server, rounds) = (&hosts.list, search.rounds);
            tracing::info!(%server, down_ms, rounds, "the server is reached again");
        }
        true
    }

    /// Ends the attempt: the server has refused this user or database, and so can be reached.
    /// Returns whether others have been waiting for it.
    pub(crate) fn answered(mut self, now: Instant) -> bool {
        let hosts = Arc::clone(&self.hosts);
        let mut state = hosts.lock();
        let does_for_all = hosts.list.attributes == SessionAttributes::Any;
        if does_for_all || state.in_use == Some(self.peer.host) {
            drop(state);
            return self.reached(None, now);
        }
        // What it is is not known: the others are asked next.
        self.is_open = false;
        let index = state.targets.iter().position(|target| target.peer == self.peer);
        hosts.end_probe(&mut state, self.number, index, now);
        false
    }

    /// Ends the attempt: there is no connection, and a later attempt may find one.
    pub(crate) fn failed(mut self, error: &UpstreamError, now: Instant) {
        self.is_open = false;
        let hosts = &*self.hosts;
        let mut state = hosts.lock();
        state.failures += 1;
        let is_unfit = matches!(error, UpstreamError::Unfit { .. });
        let index = state.targets.iter().position(|target| target.peer == self.peer);
        if let Some(index) = index {
            let standing = &mut state.targets[index].standing;
            if matches!(*standing, Standing::Good(at) if at > self.begun) {
                // It has done meanwhile.
                return;
            }
            *standing = Standing::Bad { at: now, is_unfit };
        }
        if is_unfit && hosts.is_balanced() {
            hosts.generation.fetch_add(1, Ordering::Release);
        }
        if state.search.is_none() {
            if !hosts.usable(&state, true, now).is_empty() {
                return;
            }
            hosts.begin_search(&mut state, now);
        } else if state.search.as_ref().and_then(|search| search.probe) != Some(self.number) {
            // It was begun before the search.
            return;
        }
        let Some(search) = &mut state.search else { return };
        let text = format!("{}: {error}", hosts.address(self.peer.host));
        search.last = Some((LastError { code: sql_state(error).to_owned(), text }, now));
        search.has_seen_unfit |= is_unfit;
        // A search that this attempt has begun has no other one.
        search.probe = Some(self.number);
        hosts.end_probe(&mut state, self.number, index, now);
        hosts.tell_gate(now);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        if let Some(search) = &mut self.hosts.lock().search
            && search.probe == Some(self.number)
        {
            search.probe = None;
        }
    }
}

/// A connection that is logged in, as long as it is.
pub(crate) struct Connected(Arc<Hosts>);

impl Connected {
    pub(crate) fn to(hosts: &Arc<Hosts>) -> Connected {
        hosts.connected.fetch_add(1, Ordering::Relaxed);
        Connected(Arc::clone(hosts))
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connected.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns whether a later attempt may succeed where this one has failed, with nothing changed by
/// an administrator.
pub(crate) fn may_pass(error: &UpstreamError) -> bool {
    match error {
        UpstreamError::Io(error) => error.kind() != std::io::ErrorKind::PermissionDenied,
        UpstreamError::TimedOut | UpstreamError::Closed | UpstreamError::Unfit { .. } => true,
        UpstreamError::Tls(error) => matches!(error, TlsError::Io(_)),
        // It shuts down, has crashed, or starts.
        UpstreamError::Refused { code, .. } => matches!(&**code, "57P01" | "57P02" | "57P03"),
        _ => false,
    }
}

/// Returns the SQLSTATE in which a client is told of an error.
pub(crate) fn sql_state(error: &UpstreamError) -> &str {
    match error {
        UpstreamError::Refused { code, .. } => code,
        UpstreamError::ReadOnly => READ_ONLY.0,
        _ => SqlState::CONNECTION_FAILURE.0,
    }
}

#[cfg(test)]
mod tests;
