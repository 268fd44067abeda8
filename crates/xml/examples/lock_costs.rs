//! What a lock costs when nobody is in the way: `lock_costs ROUNDS`.
//!
//! Each transaction locks one node with eight ancestors, then the sibling of it, then the first
//! again. Printed are nanoseconds of each request, as quartiles, less what the clock takes, by
//! protocol; and the locks that it makes.

#![expect(clippy::print_stdout, reason = "it prints what it measures")]

use std::error::Error;
use std::ops::ControlFlow;
use std::time::Instant;

use tidegate_engine::TxnOptions;
use tidegate_xml::label::Label;
use tidegate_xml::store::{Claim, DocumentOptions, LockProtocol, Locking, XmlStore};

/// Lists of leaves, so that the paths of transactions that follow each other are different ones.
const LISTS: usize = 64;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let rounds: usize = std::env::args().nth(1).ok_or("give a number of rounds")?.parse()?;
    let directory = tempfile::tempdir()?;
    let store = XmlStore::open_or_create(directory.path().join("store"))?;
    // A leaf on level 8 has eight ancestors that are nodes, and the document above them.
    let deep = (0..6).fold("<x/><x/>".to_owned(), |inner, _| format!("<l>{inner}</l>"));
    let text = format!("<r>{}</r>", format!("<s>{deep}</s>").repeat(LISTS));
    store.load("d", DocumentOptions::default(), text.as_bytes(), |_| ControlFlow::Continue(()))?;
    let leaves = leaves(&store)?;
    println!("| protocol | mode | first: locks | ns | sibling: locks | ns | again: ns |");
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
    for protocol in [LockProtocol::mgl(), LockProtocol::tadom()] {
        for is_write in [false, true] {
            let line = measured(&store, &protocol, is_write, &leaves, rounds)?;
            let mode = if is_write { "write" } else { "read" };
            println!("| {} | {mode} | {line} |", protocol.name());
        }
    }
    Ok(())
}

fn leaves(store: &XmlStore) -> Outcome<Vec<[Label; 2]>> {
    let transaction = store.begin();
    let document = transaction.document("d")?;
    let mut leaves = Vec::new();
    for list in document.children(&Label::root())? {
        let below: Vec<Label> = document.descendants(&list?)?.collect::<Result<_, _>>()?;
        let [.., one, other] = &below[..] else { return Err("a list has two leaves".into()) };
        leaves.push([one.clone(), other.clone()]);
    }
    Ok(leaves)
}

fn measured(
    store: &XmlStore,
    protocol: &LockProtocol,
    is_write: bool,
    leaves: &[[Label; 2]],
    rounds: usize,
) -> Outcome<String> {
    let mut times = [const { Vec::new() }; 3];
    let mut locks = [0; 2];
    let mut clock = Vec::new();
    for [one, other] in leaves.iter().cycle().take(rounds * leaves.len()) {
        let locking = Locking::by(protocol.clone());
        let transaction = store.begin_locking(locking, TxnOptions::default());
        let document = transaction.document_to_update("d")?;
        let before = transaction.lock_figures().locks;
        for (at, leaf) in [one, other, one].into_iter().enumerate() {
            let claim = if is_write { Claim::WriteNode(leaf) } else { Claim::ReadNode(leaf) };
            let start = Instant::now();
            document.claim(claim)?;
            times[at].push(start.elapsed().as_nanos());
            let start = Instant::now();
            clock.push(start.elapsed().as_nanos());
            if let Some(of) = locks.get_mut(at) {
                *of = transaction.lock_figures().locks - before;
            }
        }
    }
    clock.sort_unstable();
    let clock = clock[clock.len() / 2];
    let quartiles = times.map(|mut times| {
        times.sort_unstable();
        let at = |part: usize| times[times.len() * part / 4].saturating_sub(clock);
        format!("{} {} {}", at(1), at(2), at(3))
    });
    let [first, sibling, again] = quartiles;
    Ok(format!("{} | {first} | {} | {sibling} | {again}", locks[0], locks[1] - locks[0]))
}
