//! The fuzz targets with drawn bytes, for every `make test`; `make fuzz` looks for better ones.

use super::targets::random::Random;
use super::targets::{recovery, tree};

fn inputs(count: u64, len_max: u64, run: fn(&[u8])) {
    println!("seeds 0 to {}", count - 1);
    for seed in 0..count {
        // The last one shown is the one that fails.
        println!("seed {seed}");
        let random = &mut Random::new(seed);
        let len = random.below(len_max);
        run(&random.bytes(len));
    }
}

#[test]
fn a_tree_is_its_map_whatever_is_done_to_it() {
    inputs(60, 500, tree::run);
}

/// A checkpoint began where a full segment ended, and then that segment was given up.
#[test]
fn recovery_begins_where_a_segment_does() {
    let random = &mut Random::new(17_679);
    let len = random.below(2_000);
    tree::run(&random.bytes(len));
}

#[test]
fn damaged_files_are_right_or_refused() {
    inputs(250, 40, recovery::run);
}

#[test]
#[ignore = "soak: twenty thousand inputs of each target"]
fn many_inputs_do_no_harm() {
    inputs(20_000, 2_000, tree::run);
    inputs(20_000, 40, recovery::run);
}
