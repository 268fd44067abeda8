//! The names and path classes that a load has met last, without locks and hashing.
//!
//! The reader gives the same name as the same object, as a rule. So a place in a small table is
//! found by the object's address and the class above. What is there is compared as a whole, and
//! the vocabulary and the synopsis are asked if it is something else.

use std::sync::Arc;

use crate::name::QName;
use crate::store::paths::Pcr;
use crate::store::record::{Record, RecordKind};
use crate::store::vocabulary::NameId;

/// Places in the table, a power of two: for the classes of most documents, in 48 KiB.
const PLACES: usize = 1 << 10;

/// What was met last, by its place.
#[derive(Default)]
pub(super) struct KnownClasses {
    places: Vec<Option<Known>>,
}

struct Known {
    /// It is kept, so that its address is not that of another name.
    name: Arc<QName>,
    above: Pcr,
    kind: RecordKind,
    number: NameId,
    pcr: Pcr,
}

const _: () = assert!(size_of::<Option<Known>>() <= 48);

impl KnownClasses {
    /// Returns the record of a name below a class, without content, from `make` if it is not known.
    pub(super) fn record<E>(
        &mut self,
        kind: RecordKind,
        above: Pcr,
        name: &Arc<QName>,
        make: impl FnOnce() -> Result<Record, E>,
    ) -> Result<Record, E> {
        if self.places.is_empty() {
            self.places.resize_with(PLACES, || None);
        }
        // Objects are at multiples of 16.
        let address = Arc::as_ptr(name).addr() >> 4;
        let mixed = address ^ (above.0 as usize).wrapping_mul(0x9e37_79b1) ^ kind.code() as usize;
        let place = &mut self.places[mixed % PLACES];
        if let Some(known) = place
            && known.above == above
            && known.kind == kind
            && Arc::ptr_eq(&known.name, name)
        {
            let (name, pcr) = (Some(known.number), known.pcr);
            return Ok(Record { kind, is_id: false, name, pcr, content: String::new() });
        }
        let record = make()?;
        *place = record.name.map(|number| Known {
            name: Arc::clone(name),
            above,
            kind,
            number,
            pcr: record.pcr,
        });
        Ok(record)
    }
}
