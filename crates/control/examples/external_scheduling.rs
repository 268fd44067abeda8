//! scratch
#![allow(missing_docs, clippy::all, clippy::pedantic, clippy::print_stdout)]
use std::time::Instant;
use tidegate_control::Mpl;
use tidegate_control::models::hyperexponential::Hyperexponential;
use tidegate_control::models::response_time::LimitedSharing;
fn main() {
    for load in [0.7, 0.9] {
        for mpl in [1u32, 2,3,4,5,6,7,8,10,12,15,20,25,30,35] {
            print!("{load} {mpl}:");
            for c2 in [1.0, 2.0,5.0,10.0,15.0] {
                let s = LimitedSharing::new(load, Hyperexponential::new(1.0, c2).unwrap()).unwrap();
                    let a = s.at(Mpl::at_least_one(mpl)).unwrap();
                    print!(" {:.3}", a.mean_response_s / s.unlimited_response_s());
            }
            println!();
        }
    }
    for (mpl, c2) in [(35,15.0),(60,15.0),(100, 15.0), (200, 15.0)] {
                let s = LimitedSharing::new(0.99, Hyperexponential::new(1.0, c2).unwrap()).unwrap();
                let t = Instant::now();
                    let a = s.at(Mpl::at_least_one(mpl)).unwrap();
                    println!("{mpl} {:?}", t.elapsed());
    }
}
