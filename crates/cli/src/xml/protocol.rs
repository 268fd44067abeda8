//! `tidegate xml protocol`.

use clap::Args;
use tidegate_xml::store::{Locking, ask_locking};

use super::output::Lines;
use super::{StoreArgument, closing, failure, open, open_to_read};
use crate::Failure;

const LOCKING: &str = "\
LOCKING is a protocol, and behind strokes a lock depth, an escalation and its reading:
  document                       each document as a whole, S to read and X to write
  X                              the root element, exclusively
  MGL                            nodes with all that is below them
  taDOM3+                        nodes, their lists of children, and subtrees
  taDOM3+/3                      nothing below level 3; the root element is level 0
  taDOM3+/3/aggressive           and a node as a whole after many requests below it; the others are
                                 none, moderate and eager
  taDOM3+/3/aggressive/sentence  by the other reading of the formula for the threshold

Examples:
  tidegate xml protocol shop
  tidegate xml protocol shop taDOM3+/3";

/// Show or exchange the protocol by which transactions lock documents
///
/// The store may be open in another process, such as `tidegate xml xmark`. Transactions that begin
/// there from then on lock by the new protocol; those under way go on as they are. The protocol is
/// kept for the next time that the store is opened.
#[derive(Debug, Args)]
#[command(after_help = LOCKING)]
pub(crate) struct ProtocolArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// How to lock from now on; without it the command shows how transactions lock
    #[arg(value_name = "LOCKING")]
    locking: Option<Locking>,
}

/// Shows or exchanges it.
pub(crate) fn run(arguments: &ProtocolArguments) -> Result<(), Failure> {
    let (store, wanted) = (&arguments.store.store, arguments.locking.as_ref());
    let locking = match (ask_locking(store, wanted).map_err(Failure::failed)?, wanted) {
        (Some(locking), _) => locking,
        (None, None) => closing(open_to_read(store)?, |store| Ok(store.locking()))?,
        (None, Some(wanted)) => closing(open(store)?, |store| {
            store.set_locking(wanted.clone());
            store.save_locking().map_err(failure)?;
            Ok(store.locking())
        })?,
    };
    let mut lines = Lines::new();
    lines.text(&locking.to_string())?;
    lines.finish()
}
