//! Parts of the lock manager: how a wait ends, and how intents and strong requests meet.

mod modes;
mod queues;
mod table;

#[path = "../../../../crates/engine/src/lock/intents.rs"]
mod intents;
#[path = "../../../../crates/engine/src/lock/locker_state.rs"]
mod locker_state;

use std::fmt::Debug;
use std::hash::Hash;

/// What can be locked.
pub(crate) trait Resource: Eq + Hash + Clone + Debug + Send + Sync + 'static {}

impl<T: Eq + Hash + Clone + Debug + Send + Sync + 'static> Resource for T {}

/// The priority of a locker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Priority(pub(crate) u8);

/// On cache lines of its own in the engine.
struct Padded<T>(T);

#[cfg(test)]
mod models {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicU32, Ordering};

    use super::Priority;
    use super::intents::Intents;
    use super::locker_state::{BucketNumber, LockerId, LockerState, Outcome, RequestIndex, Woken};
    use super::modes::{Mode, ModeSet};
    use super::queues::NewRequest;
    use crate::sync::Mutex;
    use crate::thread;

    fn locker() -> Arc<LockerState> {
        Arc::new(LockerState::new(LockerId(1), Priority::default(), 0))
    }

    /// Waits as a locker does.
    fn wait(state: &LockerState) -> Outcome {
        loop {
            match state.outcome() {
                Outcome::Waiting => thread::park(),
                outcome => return outcome,
            }
        }
    }

    #[test]
    fn who_is_granted_sees_what_the_holder_did() {
        loom::model(|| {
            let (state, bucket) = (locker(), loom::sync::Arc::new(Mutex::new(())));
            let data = loom::sync::Arc::new(AtomicU32::new(0));
            let place = RequestIndex { bucket: BucketNumber::new(0, 0), request: 0 };
            let latch = bucket.lock();
            state.begin_wait(place);
            drop(latch);
            let (theirs, its_bucket, its_data) =
                (Arc::clone(&state), loom::sync::Arc::clone(&bucket), data.clone());
            let holder = loom::thread::spawn(move || {
                its_data.store(1, Ordering::Relaxed);
                let mut woken = Woken::default();
                let latch = its_bucket.lock();
                theirs.end_wait(Outcome::Granted, &mut woken);
                drop(latch);
                woken.wake();
            });
            assert_eq!(wait(&state), Outcome::Granted);
            assert_eq!(data.load(Ordering::Relaxed), 1, "what the holder did is seen");
            holder.join().expect("no assertion failed");
        });
    }

    const INTENT: Mode = Mode(0);

    /// A strong request and one for an intent meet: the strong one finds the other, or counts for
    /// it, and an intent that comes after a strong lock sees what its holder did.
    #[test]
    fn an_intent_is_found_or_refused_and_sees_a_strong_holder() {
        // Each of the 32 stripes is a point of the model.
        let mut model = loom::model::Builder::new();
        model.max_branches = 5_000;
        model.check(|| {
            let intents = Intents::<u32>::new(ModeSet::of(INTENT), |_| true);
            let intents = loom::sync::Arc::new(intents);
            let data = loom::sync::Arc::new(AtomicU32::new(0));
            let (theirs, its_data) = (intents.clone(), data.clone());
            let strong = loom::thread::spawn(move || {
                let adopted = std::cell::Cell::new(false);
                theirs.begin_strong(7, &1, |_| adopted.set(true));
                if !adopted.get() {
                    // It is granted at once, and given up.
                    its_data.store(1, Ordering::Relaxed);
                }
                theirs.end_strong(7);
                adopted.get()
            });
            let state = locker();
            let ask = NewRequest { hash: 7, resource: &1, mode: INTENT, locker: &state };
            let is_granted = intents.grant(&ask);
            let seen = data.load(Ordering::Relaxed);
            let was_adopted = strong.join().expect("no assertion failed");
            assert!(is_granted || !was_adopted, "only what is there is found");
            assert!(!is_granted || was_adopted || seen == 1, "neither found nor seeing");
        });
    }
}
