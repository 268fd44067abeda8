//! The account beside a naive model: a list of places, and a list of who waits.
//!
//! A schedule that fails is printed with the seed that makes it again (`PROPTEST_RNG_SEED`).

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const POOLS: usize = 6;

/// One move; a number names a pool, or one of the places there are.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// A pool asks for a place, or for a better position in the line.
    Ask(usize),
    /// A pool takes a place without waiting.
    Take(usize),
    TakeSpare(usize),
    /// A place begins to come back.
    Begin(usize),
    Drop(usize),
    Leave(usize),
    /// The server's maximum changes.
    Max(u32),
}

fn one_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        6 => (0..POOLS).prop_map(Move::Ask),
        1 => (0..POOLS).prop_map(Move::Take),
        1 => (0..POOLS).prop_map(Move::TakeSpare),
        2 => any::<usize>().prop_map(Move::Begin),
        5 => any::<usize>().prop_map(Move::Drop),
        1 => (0..POOLS).prop_map(Move::Leave),
        1 => (0..7_u32).prop_map(Move::Max),
    ]
}

/// The bounds of a pool: a user has one connection at most, a database two.
fn bounds(pool: usize) -> Vec<(Bound, u32)> {
    let server = (Bound::Server(ServerIndex(pool % 2)), 3);
    let user = (Bound::User((pool % 3).to_string()), 2);
    match pool {
        0 | 1 => vec![server],
        2 | 3 => vec![server, user],
        _ => vec![server, user, (Bound::Database(pool.to_string(), "d".into()), 1)],
    }
}

fn pool_of_worker(pool: usize) -> PoolOfWorker {
    PoolOfWorker { worker: WorkerIndex(pool % 2), pool: PoolIndex::from_bits(pool as u64) }
}

/// What has been given to pools that waited.
type Delivered = Arc<Mutex<Vec<(PoolOfWorker, Place)>>>;

struct World {
    capacity: Arc<Capacity>,
    delivered: Delivered,
    counts: Vec<Counts>,
    start: Instant,
    clock: u32,
    places: Vec<(usize, Place)>,
    /// Pools in the order in which they have to be served.
    line: Vec<usize>,
    max: HashMap<Bound, u32>,
}

impl World {
    fn new() -> World {
        let (start, delivered) = (Instant::now(), Delivered::default());
        let into = Arc::clone(&delivered);
        let deliver: Deliver =
            Box::new(move |pool, place| into.lock().unwrap().push((pool, place)));
        let capacity = Capacity::new(deliver, start);
        let counts = (0..POOLS).map(|pool| capacity.counts(bounds(pool))).collect();
        let max = (0..POOLS).flat_map(bounds).collect();
        let (places, line) = (Vec::new(), Vec::new());
        World { capacity, delivered, counts, start, clock: 0, places, line, max }
    }

    fn taken(&self, bound: &Bound) -> u32 {
        let has = |pool: usize| bounds(pool).iter().any(|(own, _)| own == bound);
        u32::try_from(self.places.iter().filter(|(pool, _)| has(*pool)).count()).unwrap()
    }

    fn has_room(&self, pool: usize) -> bool {
        bounds(pool).iter().all(|(bound, _)| self.taken(bound) < self.max[bound])
    }

    /// Gives places to those who wait as the model does, and compares.
    fn served(&mut self) {
        let mut delivered = std::mem::take(&mut *self.delivered.lock().unwrap()).into_iter();
        let mut position = 0;
        while let Some(&pool) = self.line.get(position) {
            if self.has_room(pool) {
                self.line.remove(position);
                let (to, place) = delivered.next().expect("who waits gets what comes back");
                assert_eq!(to, pool_of_worker(pool), "in the order of the line");
                self.places.push((pool, place));
            } else {
                position += 1;
            }
        }
        assert!(delivered.next().is_none(), "nobody else gets a place");
    }

    fn does(&mut self, step: Move) {
        let at = |number: usize, len: usize| number.checked_rem(len);
        self.clock += 1;
        let now = self.start + self.clock * Duration::from_secs(2);
        match step {
            Move::Ask(pool) => {
                self.line.retain(|&other| other != pool);
                let (key, counts) = (pool_of_worker(pool), self.counts[pool].clone());
                let asked = self.capacity.take_or_wait((key, &counts), (now, 1), now);
                assert_eq!(asked.is_ok(), self.has_room(pool));
                match asked {
                    Ok(place) => self.places.push((pool, place)),
                    Err(Wait { full, .. }) => {
                        assert!(self.taken(&full.bound) >= full.max, "{full:?} is reached");
                        self.line.push(pool);
                    }
                }
            }
            Move::Take(pool) => {
                let taken = self.capacity.take(&self.counts[pool]);
                assert_eq!(taken.is_ok(), self.has_room(pool));
                self.places.extend(taken.ok().map(|place| (pool, place)));
            }
            Move::TakeSpare(pool) => {
                let taken = self.capacity.take_spare(&self.counts[pool]);
                assert_eq!(taken.is_some(), self.has_room(pool) && self.line.is_empty());
                self.places.extend(taken.map(|place| (pool, place)));
            }
            Move::Begin(number) => {
                if let Some(index) = at(number, self.places.len()) {
                    self.places[index].1.begin_return();
                }
            }
            Move::Drop(number) => {
                if let Some(index) = at(number, self.places.len()) {
                    self.places.swap_remove(index);
                }
            }
            Move::Leave(pool) => {
                self.line.retain(|&other| other != pool);
                self.capacity.leave_line(pool_of_worker(pool));
            }
            Move::Max(max) => {
                let bound = Bound::Server(ServerIndex(0));
                self.max.insert(bound.clone(), max);
                self.capacity.set_max(&bound, max);
            }
        }
        self.served();
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.capacity.is_waited_for(), !self.line.is_empty());
        for (bound, max) in &self.max {
            let occupancy = self.capacity.occupancy(bound).unwrap();
            assert_eq!((occupancy.taken, occupancy.max), (self.taken(bound), *max), "{bound:?}");
        }
        // Whoever could be served by closing an idle connection is not left to wait.
        for (pool, place) in &self.places {
            let (key, own) = (pool_of_worker(*pool), &self.counts[*pool]);
            let is_last = place.is_returning || self.places.iter().any(|it| it.1.is_returning);
            let has_room_without = |waiter: usize| {
                bounds(waiter).iter().all(|(bound, _)| {
                    let is_shared = bounds(*pool).iter().any(|(other, _)| other == bound);
                    self.taken(bound) - u32::from(is_shared) < self.max[bound]
                })
            };
            let helps = self.line.iter().any(|&it| it != *pool && has_room_without(it));
            if !is_last {
                assert_eq!(self.capacity.yields((key, own), None), helps, "{pool} of {self:?}");
            }
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<_> = self.places.iter().map(|(pool, _)| pool).collect();
        write!(formatter, "places of {places:?}, line {:?}, {:?}", self.line, self.max)
    }
}

proptest! {
    #[test]
    fn no_place_is_lost_and_none_lies_idle(moves in prop::collection::vec(one_move(), 0..120)) {
        let mut world = World::new();
        for step in moves {
            world.does(step);
        }
        world.line.clear();
        world.capacity.close_line();
        world.places.clear();
        world.check();
    }
}

fn three_pools(max: u32) -> (Arc<Capacity>, Delivered, Counts) {
    let delivered = Delivered::default();
    let into = Arc::clone(&delivered);
    let deliver: Deliver = Box::new(move |pool, place| into.lock().unwrap().push((pool, place)));
    let capacity = Capacity::new(deliver, Instant::now());
    let counts = capacity.counts([(Bound::Server(ServerIndex(0)), max)]);
    (capacity, delivered, counts)
}

#[test]
fn one_connection_is_closed_for_each_that_waits_and_not_one_more() {
    let (capacity, delivered, counts) = three_pools(2);
    let [a, b, c] = [0, 1, 2].map(pool_of_worker);
    let now = Instant::now();
    let mut of_a = capacity.take_or_wait((a, &counts), (now, 1), now).unwrap();
    let of_b = capacity.take_or_wait((b, &counts), (now, 1), now).unwrap();
    assert!(!capacity.yields((a, &counts), None), "nobody waits");
    let later = now + Duration::from_secs(1);
    capacity.take_or_wait((c, &counts), (later, 3), later).unwrap_err();
    assert_eq!(capacity.occupancy(&Bound::Server(ServerIndex(0))).unwrap().waiting, 3);
    assert!(!capacity.yields((a, &counts), Some(now)), "a client of its own came before");
    assert!(capacity.yields((a, &counts), Some(later + Duration::from_secs(1))));
    of_a.begin_return();
    assert!(!capacity.yields((b, &counts), None), "one is being closed already");
    drop(of_a);
    assert_eq!(delivered.lock().unwrap()[0].0, c);
    assert!(!capacity.is_waited_for());
    drop(of_b);
    let of_c = std::mem::take(&mut *delivered.lock().unwrap());
    drop(of_c);
    assert_eq!(capacity.occupancy(&Bound::Server(ServerIndex(0))).unwrap().taken, 0);
}

/// Two event loops wait while each holds what the other needs: both give it up.
#[test]
fn threads_that_wait_for_each_other_all_get_their_turn() {
    let (sender, receivers): (Vec<_>, Vec<_>) =
        (0..4).map(|_| std::sync::mpsc::channel::<Place>()).unzip();
    let senders = Mutex::new(sender);
    let deliver: Deliver = Box::new(move |pool, place| {
        drop(senders.lock().unwrap()[pool.pool.index() as usize].send(place));
    });
    let capacity = Capacity::new(deliver, Instant::now());
    let counts = capacity.counts([(Bound::Server(ServerIndex(0)), 2)]);
    std::thread::scope(|scope| {
        for (pool, receiver) in receivers.into_iter().enumerate() {
            let (capacity, counts, pool) = (&capacity, &counts, pool_of_worker(pool));
            scope.spawn(move || {
                for _ in 0..2_000 {
                    let now = Instant::now();
                    let taken = capacity.take_or_wait((pool, counts), (now, 1), now);
                    drop(taken.unwrap_or_else(|_| receiver.recv().unwrap()));
                }
            });
        }
    });
    assert_eq!(capacity.occupancy(&Bound::Server(ServerIndex(0))).unwrap().taken, 0);
    assert!(!capacity.is_waited_for());
}
