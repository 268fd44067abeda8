//! Chains of crashes: after each the document and its indexes are the last ones that were
//! committed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use tidegate_engine::disk::{Crash, Faults, SimulatedDisk};
use tidegate_random::SplitMix64;
use tidegate_xml::store::{DocumentOptions, InnerNodes, LoadOptions, XmlStore, XmlStoreError};

use super::indexes::DEFINITIONS;
use super::model::Model;
use super::{in_memory, load, new_disk, open, plain, seeds};

pub(super) const CRASHES: [Crash; 4] = [Crash::Kept, Crash::Lost, Crash::Random, Crash::Weak];

/// How far an index of the document is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Built {
    Whole,
    Partly,
    /// It was being made or dropped when something failed: it may also be gone.
    Unknown,
}

/// The document, if there is one, with its indexes.
#[derive(Debug, Clone, Default)]
struct State {
    model: Option<Model>,
    indexes: BTreeMap<String, Built>,
}

impl State {
    fn of(model: Model) -> State {
        State { model: Some(model), indexes: BTreeMap::new() }
    }
}

/// What the store has to hold.
#[derive(Default)]
struct Expected {
    sure: State,
    /// The same with the last change, of which nobody knows whether it is durable.
    doubt: Option<State>,
}

impl Expected {
    /// The change that was in doubt is done.
    fn is_done(&mut self) {
        self.sure = self.doubt.take().unwrap();
    }
}

/// Crashes of chains, by what they ended.
#[derive(Debug, Default)]
struct Crashes {
    in_recovery: u32,
    at_work: u32,
    /// Between two operations, or after a failure that closed the store.
    between: u32,
}

/// A store that lives, ends, and lives again on what is left.
struct Chain {
    random: SplitMix64,
    disk: Arc<SimulatedDisk>,
    expected: Expected,
    /// Elements that a loaded document has in its root. With enough of them the building of an
    /// index takes several transactions.
    filling: usize,
    /// How documents are stored.
    options: DocumentOptions,
    story: String,
}

impl Chain {
    fn new(seed: u64) -> Chain {
        let mut random = SplitMix64::new(seed);
        let filling = if random.next_chance(0.1) { 1_300 } else { 0 };
        let label_max = [500, 9][random.next_below(2) as usize];
        let inner_nodes = [InnerNodes::Stored, InnerNodes::Virtual][random.next_below(2) as usize];
        let options = DocumentOptions { label_max, inner_nodes, ..DocumentOptions::default() };
        let disk = new_disk(seed);
        let (expected, story) = (Expected::default(), format!("seed {seed}"));
        Chain { random, disk, expected, filling, options, story }
    }

    /// Draws what will fail in a life.
    fn faults(&mut self) -> Faults {
        let none = Faults::default();
        let scale = [40, 100, 200, 400][self.random.next_below(4) as usize];
        let after = Some(u64::from(self.random.next_below(scale)));
        let probability = [0.003, 0.03, 0.3][self.random.next_below(3) as usize];
        match self.random.next_below(12) {
            0 => Faults { fail_after: after, ..none },
            1 => Faults { sync_error: probability, ..none },
            2 => Faults { write_error: probability, ..none },
            3 => Faults { read_error: probability, ..none },
            _ => Faults { crash_after: after, ..none },
        }
    }

    fn live(&mut self, crashes: &mut Crashes) {
        let faults = self.faults();
        let how = CRASHES[self.random.next_below(4) as usize];
        self.story = format!("{}; {faults:?}, then {how:?}", self.story);
        let is_faulty = faults.crash_after.is_none();
        self.disk.set_faults(faults);
        match open(&self.disk) {
            Ok(store) => {
                let lived = self.work(&store);
                let may_fail = is_faulty || self.disk.is_off();
                assert!(lived.is_ok() || may_fail, "{}: {lived:?}", self.story);
                let count =
                    if self.disk.is_off() { &mut crashes.at_work } else { &mut crashes.between };
                *count += 1;
            }
            Err(error) => {
                let may_fail = is_faulty || self.disk.is_off();
                assert!(may_fail, "{}: {error}", self.story);
                crashes.in_recovery += 1;
            }
        }
        self.disk = Arc::new(self.disk.crash(how));
    }

    /// Reads the document and its indexes and compares them with what has to be there. From then
    /// on they have to stay.
    fn resolve(&mut self, store: &XmlStore) -> Result<(), XmlStoreError> {
        let mut found = None;
        let mut indexes = BTreeMap::new();
        if !store.documents()?.is_empty() {
            for index in store.indexes("d")? {
                let built = if index.is_ready { Built::Whole } else { Built::Partly };
                indexes.insert(index.name, built);
            }
            let transaction = store.begin();
            let document = transaction.document("d")?;
            assert_eq!(document.check()?, [], "{}", self.story);
            found = Some(in_memory(&plain(&document)?));
        }
        let tree = |model: &Option<Model>| format!("{:?}", model.as_ref().map(Model::tree));
        let text = format!("{found:?}");
        let doubt = self.expected.doubt.take().filter(|state| tree(&state.model) == text);
        let state = doubt.unwrap_or_else(|| self.expected.sure.clone());
        assert_eq!(tree(&state.model), text, "{}: this was not committed", self.story);
        for (name, built) in &state.indexes {
            let is_right = *built == Built::Unknown || indexes.get(name) == Some(built);
            assert!(is_right, "{}: {name} was {built:?}: {indexes:?}", self.story);
        }
        let mut names = indexes.keys();
        assert!(names.all(|name| state.indexes.contains_key(name)), "{}: {indexes:?}", self.story);
        let trees = 4 + usize::from(found.is_some()) + indexes.len();
        assert_eq!(store.engine().trees().len(), trees, "{}: no stray trees", self.story);
        self.expected.sure = State { model: state.model, indexes };
        Ok(())
    }

    /// Loads, changes, indexes and drops the document until something fails or there was enough.
    fn work(&mut self, store: &XmlStore) -> Result<(), XmlStoreError> {
        self.resolve(store)?;
        let operations = if self.filling > 0 { 12 } else { 40 };
        for _ in 0..self.random.next_below(operations) {
            if self.expected.sure.model.is_none() {
                self.load(store)?;
                continue;
            }
            match self.random.next_below(24) {
                0 => {
                    self.expected.doubt = Some(State::default());
                    store.drop_document("d")?;
                    self.expected.is_done();
                }
                1..5 => self.create_index(store)?,
                5 => self.drop_index(store)?,
                6 => store.engine().checkpoint()?,
                7 => {
                    let text = format!("<s>{}<unended>", "<t k='v'/>".repeat(200));
                    let refused = load(store, "e", &text);
                    match refused {
                        Err(XmlStoreError::Parse(_)) => {}
                        Err(error) => return Err(error),
                        Ok(_) => panic!("{text} was loaded"),
                    }
                }
                _ => self.transact(store)?,
            }
        }
        Ok(())
    }

    fn load(&mut self, store: &XmlStore) -> Result<(), XmlStoreError> {
        let mut state = State::of(Model::filled(self.filling));
        let mut options = LoadOptions::from(self.options);
        for definition in DEFINITIONS.iter().filter(|_| self.random.next_chance(0.2)) {
            options = options.index(definition, definition.parse().unwrap());
            state.indexes.insert((*definition).to_owned(), Built::Whole);
        }
        self.expected.doubt = Some(state);
        let text = Model::filled_text(self.filling);
        store.load("d", options, text.as_bytes(), |_| ControlFlow::Continue(()))?;
        self.expected.is_done();
        Ok(())
    }

    /// A transaction with changes, of which it takes back some.
    fn transact(&mut self, store: &XmlStore) -> Result<(), XmlStoreError> {
        let mut state = self.expected.sure.clone();
        let Some(model) = &mut state.model else { return Ok(()) };
        let transaction = store.begin();
        let document = transaction.document_to_update("d")?;
        let steps = if self.filling > 0 { 3 } else { 12 };
        for _ in 0..self.random.next_below(steps) {
            model.step_within_limits(&mut self.random, &document)?;
        }
        let (savepoint, kept) = (transaction.savepoint(), model.clone());
        if self.random.next_chance(0.3) {
            for _ in 0..self.random.next_below(steps) {
                model.step_within_limits(&mut self.random, &document)?;
            }
            transaction.roll_back_to(savepoint)?;
            *model = kept;
        }
        drop(document);
        if self.random.next_chance(0.2) {
            return Ok(());
        }
        self.expected.doubt = Some(state);
        transaction.commit()?;
        self.expected.is_done();
        Ok(())
    }

    /// Makes an index, or goes on with the building of one, with changes of the document between
    /// its transactions.
    fn create_index(&mut self, store: &XmlStore) -> Result<(), XmlStoreError> {
        let name = DEFINITIONS[self.random.next_below(6) as usize];
        let before = self.expected.sure.indexes.insert(name.to_owned(), Built::Unknown);
        let mut failed = None;
        let cancels = self.random.next_chance(0.2);
        let definition = name.parse().unwrap();
        let made = store.create_index("d", name, &definition, |_| {
            if let Err(error) = self.transact(store) {
                failed = Some(error);
            }
            if cancels { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match made {
            Err(XmlStoreError::IndexExists(_)) => {
                assert_eq!(before, Some(Built::Whole), "{}: {name}", self.story);
                self.expected.sure.indexes.insert(name.to_owned(), Built::Whole);
            }
            Err(XmlStoreError::IndexCancelled) => drop(self.expected.sure.indexes.remove(name)),
            made => {
                made?;
                self.expected.sure.indexes.insert(name.to_owned(), Built::Whole);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn drop_index(&mut self, store: &XmlStore) -> Result<(), XmlStoreError> {
        let name = DEFINITIONS[self.random.next_below(6) as usize];
        let before = self.expected.sure.indexes.insert(name.to_owned(), Built::Unknown);
        let was_there = store.drop_index("d", name)?;
        assert_eq!(was_there, before.is_some(), "{}: {name}", self.story);
        self.expected.sure.indexes.remove(name);
        Ok(())
    }

    fn run(seed: u64, crashes: &mut Crashes) {
        let mut chain = Chain::new(seed);
        for _ in 0..3 {
            chain.live(crashes);
        }
        let store = open(&chain.disk).unwrap();
        chain.resolve(&store).unwrap();
        store.engine().check().unwrap();
    }
}

#[test]
fn after_each_crash_document_and_indexes_are_the_committed_ones() {
    let mut crashes = Crashes::default();
    (1..=25).for_each(|seed| Chain::run(seed, &mut crashes));
    assert!(crashes.in_recovery > 0 && crashes.at_work > 0, "{crashes:?}");
}

#[test]
#[ignore = "soak: 2,000 chains of crashes"]
fn after_each_of_many_crashes_document_and_indexes_are_the_committed_ones() {
    let mut crashes = Crashes::default();
    let seeds = seeds(1_000..3_000);
    for seed in seeds.clone() {
        Chain::run(seed, &mut crashes);
        if seed % 20 == 19 {
            println!("seeds {} to {seed}: {crashes:?}", seeds.start);
        }
    }
}
