//! Attempts in synthetic time.

use std::io::ErrorKind;
use std::net::Ipv4Addr;

use super::*;
use tidegate_control::Mpl;
use tidegate_gate::Limits;

const STANDBY: Role = Role { is_standby: true, is_read_only: true };
const PRIMARY: Role = Role { is_standby: false, is_read_only: false };
const READ_ONLY: Role = Role { is_standby: false, is_read_only: true };

fn address(number: u8) -> SocketAddr {
    (Ipv4Addr::new(127, 0, 0, number), 5432).into()
}

/// Hosts at 127.0.0.1, 127.0.0.2 and so on.
fn hosts(count: u8, attributes: SessionAttributes, balance: LoadBalance) -> (Arc<Hosts>, Instant) {
    let now = Instant::now();
    let limits = Limits { mpl: Mpl::ONE, mpl_max: Mpl::ONE, waiting_max: 1 };
    let host = |number| ServerAddress::Tcp(format!("127.0.0.{number}"), 5432);
    let list = ServerHosts { hosts: (1..=count).map(host).collect(), attributes, balance };
    let hosts = Arc::new(Hosts::new(list, Gate::new(limits, now), 7, now));
    assert!(hosts.resolve(now).is_empty());
    (hosts, now)
}

fn one() -> (Arc<Hosts>, Instant) {
    hosts(1, SessionAttributes::Any, LoadBalance::Disable)
}

fn list(count: u8, attributes: SessionAttributes) -> (Arc<Hosts>, Instant) {
    hosts(count, attributes, LoadBalance::Disable)
}

fn refused() -> UpstreamError {
    UpstreamError::Io(ErrorKind::ConnectionRefused.into())
}

impl Hosts {
    fn now(self: &Arc<Hosts>, now: Instant) -> Attempt {
        match self.begin(now) {
            Opening::Now(attempt) => attempt,
            Opening::Later(at) => panic!("not before {at:?}"),
        }
    }

    fn later(self: &Arc<Hosts>, now: Instant) -> Option<Instant> {
        match self.begin(now) {
            Opening::Now(_) => panic!("an attempt may be made"),
            Opening::Later(at) => at,
        }
    }

    /// Attempts as a server of these roles answers them, `None` by a refusal, until one succeeds or
    /// a round is over. Returns the hosts tried, from 1.
    fn round(self: &Arc<Hosts>, now: Instant, roles: &[Option<Role>]) -> Vec<usize> {
        let mut tried = Vec::new();
        while let Opening::Now(attempt) = self.begin(now) {
            let host = attempt.peer().host;
            tried.push(host + 1);
            match roles[host].map(|role| (role, attempt.check(role))) {
                None => attempt.failed(&refused(), now),
                Some((_, Err(error))) => attempt.failed(&error, now),
                Some((role, Ok(()))) => {
                    attempt.reached(Some(role), now);
                    break;
                }
            }
        }
        tried
    }
}

#[test]
fn one_attempt_at_a_time_is_made_while_a_server_is_down() {
    let (hosts, now) = one();
    let many: Vec<Attempt> = (0..20).map(|_| hosts.now(now)).collect();
    for attempt in many {
        attempt.failed(&refused(), now);
    }
    assert!(hosts.is_down());
    let at = hosts.later(now).expect("there is a pause");
    assert!(at <= now + PAUSE.0, "20 failures of one moment are one");
    let probe = hosts.now(at);
    assert_eq!(hosts.later(at), None, "until the first has ended");
    drop(probe);
    let probe = hosts.now(at);
    assert!(probe.reached(None, at), "others have been waiting");
    assert!(!hosts.is_down());
    let all: Vec<Attempt> = (0..20).map(|_| hosts.now(at)).collect();
    assert!(all.into_iter().all(|attempt| !attempt.reached(None, at)));
}

#[test]
fn pauses_grow_up_to_two_seconds_and_are_random() {
    let (hosts, start) = one();
    let (mut now, mut pauses) = (start, Vec::new());
    while now < start + Duration::from_secs(600) {
        hosts.now(now).failed(&refused(), now);
        let next = hosts.later(now).expect("a pause");
        pauses.push((next - now).as_secs_f64());
        now = next;
    }
    assert!(pauses.iter().take(3).all(|pause| *pause <= 0.2), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= 2.0));
    assert!((400..900).contains(&pauses.len()), "about one a second: {}", pauses.len());
    let halves = pauses.iter().filter(|pause| **pause > 1.0).count();
    assert!((halves as f64 / pauses.len() as f64 - 0.5).abs() < 0.1, "spread evenly: {halves}");
}

#[test]
fn an_attempt_of_before_does_not_undo_a_success() {
    let (hosts, now) = one();
    let (late, later) = (hosts.now(now), now + Duration::from_secs(5));
    hosts.now(now).failed(&refused(), now);
    let probe = hosts.now(later);
    probe.reached(None, later);
    late.failed(&UpstreamError::TimedOut, later);
    assert!(!hosts.is_down());
}

#[test]
fn a_server_that_refuses_a_user_can_be_reached() {
    let (hosts, now) = one();
    hosts.now(now).failed(&refused(), now);
    let at = hosts.later(now).expect("a pause");
    assert!(hosts.now(at).answered(at));
    assert!(!hosts.is_down());
}

#[test]
fn a_list_for_writing_follows_the_primary() {
    let (hosts, now) = list(3, SessionAttributes::ReadWrite);
    assert_eq!(hosts.round(now, &[None, Some(STANDBY), Some(PRIMARY)]), [1, 2, 3]);
    let old = hosts.now(now).peer();
    assert_eq!(old.host, 2);
    let generation = hosts.generation();
    // The primary dies; both others are no primary yet.
    hosts.now(now).failed(&refused(), now);
    assert_eq!(hosts.round(now, &[Some(STANDBY), Some(STANDBY), None]), [1, 2]);
    assert!(hosts.is_down());
    assert!(hosts.outage().expect("all have failed").last.text.contains("standby"));
    assert!(hosts.accepts(old), "until there is another one");
    let at = hosts.later(now).expect("a pause");
    assert_eq!(hosts.round(at, &[Some(STANDBY), Some(PRIMARY), None]), [1, 2]);
    assert_eq!(hosts.now(at).peer().host, 1);
    assert!(hosts.generation() > generation);
    assert!(!hosts.accepts(old));
    assert_eq!(hosts.observed_peer(5).host, 1, "the watch follows");
}

#[test]
fn each_word_asks_for_its_roles() {
    use SessionAttributes::{Any, PreferStandby, Primary, ReadOnly, ReadWrite, Standby};
    for (attributes, fits) in [
        (Any, [true, true, true]),
        (ReadWrite, [true, false, false]),
        (ReadOnly, [false, true, true]),
        (Primary, [true, false, true]),
        (Standby, [false, true, false]),
        (PreferStandby, [false, true, false]),
    ] {
        let found = [PRIMARY, STANDBY, READ_ONLY].map(|role| attributes.fit(role));
        assert_eq!(found, fits, "{attributes}");
    }
}

#[test]
fn a_standby_is_preferred_and_a_primary_does_until_there_is_one() {
    let (hosts, now) = list(2, SessionAttributes::PreferStandby);
    assert_eq!(hosts.round(now, &[Some(PRIMARY), None]), [1, 2, 1]);
    assert_eq!(hosts.now(now).peer().host, 0);
    let later = now + REVIEWED;
    let review = hosts.now(later);
    assert_eq!(review.peer().host, 1, "now and then the other one is tried");
    assert_eq!(hosts.now(later).peer().host, 0, "meanwhile the first is in use");
    review.check(STANDBY).expect("it is what is preferred");
    review.reached(Some(STANDBY), later);
    assert_eq!(hosts.now(later).peer().host, 1);
}

/// One user's default must not take the primary away from all others.
#[test]
fn a_user_who_only_reads_is_refused_and_the_host_stays_in_use() {
    let (hosts, now) = list(2, SessionAttributes::ReadWrite);
    hosts.round(now, &[Some(PRIMARY), None]);
    let error = hosts.now(now).check(READ_ONLY).expect_err("it cannot write");
    assert!(matches!(error, UpstreamError::ReadOnly) && !may_pass(&error), "{error}");
    // A host that nothing is known of may have been fenced.
    let (hosts, now) = list(2, SessionAttributes::ReadWrite);
    let error = hosts.now(now).check(READ_ONLY).expect_err("it cannot write");
    assert!(may_pass(&error), "{error}");
}

#[test]
fn connections_are_spread_and_hosts_that_fail_are_left_alone() {
    let (hosts, now) = hosts(3, SessionAttributes::Any, LoadBalance::Random);
    let counts = |now| {
        let mut counts = [0; 3];
        for _ in 0..600 {
            let attempt = hosts.now(now);
            counts[attempt.peer().host] += 1;
            attempt.reached(None, now);
        }
        counts
    };
    assert!(counts(now).iter().all(|count| (150..250).contains(count)), "{:?}", counts(now));
    let attempt = std::iter::repeat_with(|| hosts.now(now)).find(|it| it.peer().host == 1);
    attempt.expect("some attempt").failed(&refused(), now + PAUSE.0);
    let now = now + PAUSE.0;
    assert!(!hosts.is_down());
    assert_eq!(counts(now)[1], 0);
    assert!(counts(now + AVOIDED)[1] > 0, "it is tried again");
}

#[test]
fn a_name_that_means_another_address_is_followed() {
    let (hosts, now) = one();
    let attempt = hosts.now(now);
    let old = attempt.peer();
    attempt.reached(None, now);
    hosts.now(now).failed(&refused(), now + PAUSE.0);
    let now = now + PAUSE.0;
    assert!(hosts.later(now).is_some());
    let generation = hosts.generation();
    hosts.set_addresses(0, &[address(9)], now);
    assert!(hosts.generation() > generation && !hosts.accepts(old));
    let attempt = hosts.now(now);
    assert_eq!(attempt.peer().address, Some(address(9)), "at once");
    attempt.reached(None, now);
    assert!(hosts.accepts(Peer { host: 0, address: Some(address(9)) }));
}

#[test]
fn an_address_that_fails_is_left_alone_while_another_one_does() {
    let (hosts, now) = one();
    hosts.set_addresses(0, &[address(1), address(2)], now);
    let bad = std::iter::repeat_with(|| hosts.now(now))
        .find(|attempt| attempt.peer().address == Some(address(2)));
    bad.expect("each in turn").failed(&UpstreamError::TimedOut, now);
    assert!(!hosts.is_down());
    for _ in 0..10 {
        assert_eq!(hosts.now(now).peer().address, Some(address(1)));
    }
}
