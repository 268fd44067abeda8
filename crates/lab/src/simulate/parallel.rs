//! Independent work on several threads, with results that do not depend on how many.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// The results of `work` on 0, 1, … below `count`, in that order, on so many `threads`; `None` when
/// `cancel` was raised before all was done. `observe` hears after each how many are done, and of
/// how many.
pub(super) fn in_parallel<T: Send>(
    threads: NonZero<usize>,
    count: usize,
    cancel: &AtomicBool,
    work: impl Fn(usize) -> T + Sync,
    mut observe: impl FnMut(usize, usize),
) -> Option<Vec<T>> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    let mut results: Vec<Option<T>> = (0..count).map(|_| None).collect();
    thread::scope(|scope| {
        for _ in 0..threads.get().min(count) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                while !cancel.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || sender.send((index, work(index))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (done, (index, result)) in (1..).zip(receiver) {
            results[index] = Some(result);
            observe(done, count);
        }
    });
    results.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREADS: [usize; 3] = [1, 2, 7];

    fn threads(number: usize) -> NonZero<usize> {
        NonZero::new(number).expect("not zero")
    }

    #[test]
    fn results_are_in_order_whatever_the_number_of_threads() {
        for number in THREADS {
            for count in [0, 1, 5, 100] {
                let mut observed = Vec::new();
                let never = AtomicBool::new(false);
                let square = |index: usize| index * index;
                let results = in_parallel(threads(number), count, &never, square, |done, of| {
                    observed.push((done, of));
                });
                assert_eq!(results, Some((0..count).map(square).collect()));
                assert_eq!(observed, (1..=count).map(|done| (done, count)).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn cancelled_work_has_no_results() {
        for number in THREADS {
            let cancelled = AtomicBool::new(true);
            assert_eq!(
                in_parallel(threads(number), 10, &cancelled, |index| index, |_, _| ()),
                None
            );
        }
    }

    #[test]
    fn nothing_is_begun_after_cancellation() {
        let cancel = AtomicBool::new(false);
        let mut done = 0;
        let work = |index| cancel.store(index == 3, Ordering::Relaxed);
        let results = in_parallel(threads(1), 10, &cancel, work, |now, _| done = now);
        assert_eq!((results, done), (None, 4));
    }
}
