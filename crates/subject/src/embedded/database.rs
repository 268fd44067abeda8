//! The embedded engine as a DBMS.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_engine::disk::IoMode;
use tidegate_engine::lock::LockSettings;
use tidegate_engine::{FORMAT_VERSION, Store, StoreOptions};
use tidegate_workload::Dialect;
use tidegate_workload::workload::Workload;

use super::service::{Service, Serving};
use super::{
    Embedded, EmbeddedError, EngineDatabase, Isolation, LockPriorities, Options, Probe, requests,
    transactions,
};
use crate::connection::Transactional;
use crate::database::{Clients, Database, DatabaseError, Dbms, Gate, distinct};
use crate::settings::{SettingError, Settings, unknown, wrong};

/// See [`Dbms`].
pub static DBMS: Dbms = Dbms {
    name: "embedded",
    title: "the embedded engine",
    dialect: Some(Dialect::Embedded),
    gate: Gate::Own,
    is_in_process: true,
    connections: None,
    programs: &[],
    scheme: None,
    after_load: None,
    version: |_| Ok(format!("{}, format {FORMAT_VERSION}", env!("CARGO_PKG_VERSION"))),
    find: || Ok(None),
    validate: |settings| Options::new(settings).map(drop),
    start: |settings| Ok(Box::new(Embedded::start(Options::new(settings)?)?)),
    start_at: |url, _| Err(DatabaseError::Other(format!("embedded is not at {url}, but here"))),
};

impl Default for Options {
    fn default() -> Self {
        Options {
            // Small next to the usual tables, so that pages compete for it.
            buffer_bytes: 8 << 20,
            isolation: Isolation::Serializable,
            lock_priorities: LockPriorities::Ignored,
        }
    }
}

impl Options {
    /// Returns the options that settings say.
    pub(crate) fn new(settings: &Settings) -> Result<Self, SettingError> {
        let mut options = Options::default();
        options.isolation = settings.isolation()?.unwrap_or(options.isolation);
        for (name, value) in &settings.named {
            if name != "buffer_bytes" {
                return Err(unknown("the embedded engine", name, "buffer_bytes"));
            }
            options.buffer_bytes =
                value.parse().map_err(|_| wrong(name, value, "a number of bytes"))?;
        }
        if settings.preempt_on_wait {
            options.lock_priorities = LockPriorities::PreemptOnWait;
        }
        Ok(options)
    }

    /// Returns the engine's options for a store with these.
    pub(super) fn of_store(self) -> StoreOptions {
        let StoreOptions { locks, buffer_bytes_max, .. } = StoreOptions::default();
        StoreOptions::default()
            .locks(LockSettings { priorities: self.lock_priorities, ..locks })
            .buffer_bytes(self.buffer_bytes)
            .buffer_bytes_max(self.buffer_bytes.max(buffer_bytes_max))
    }

    /// Returns them with names, in words.
    pub(super) fn described(self, io: IoMode) -> Vec<(String, String)> {
        let isolation = self.isolation.to_string().to_lowercase();
        let io = match io {
            IoMode::Direct => "direct",
            IoMode::Buffered => "buffered",
        };
        let buffer = format!("{} KiB", self.buffer_bytes / 1024);
        let settings = [
            ("buffer", buffer.as_str()),
            ("isolation", isolation.as_str()),
            ("durability", "synced"),
            ("lock_priorities", self.lock_priorities_name()),
            ("io", io),
        ];
        settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    /// Returns what priorities do in lock queues, in a word.
    #[must_use]
    pub fn lock_priorities_name(self) -> &'static str {
        match self.lock_priorities {
            LockPriorities::Ignored => "ignored",
            LockPriorities::PreemptOnWait => "preempt-on-wait",
        }
    }
}

impl Database for Embedded {
    fn dbms(&self) -> &'static Dbms {
        &DBMS
    }

    fn clients(&self) -> Clients<'_> {
        Clients::Engine(self)
    }

    fn session(&self) -> Result<Box<dyn Transactional>, DatabaseError> {
        Ok(Box::new(self.connect()))
    }

    /// Makes the store anew, too: it has these tables alone afterwards.
    fn load(
        &mut self,
        workloads: &[Arc<dyn Workload>],
        cancel: &AtomicBool,
    ) -> Result<(), DatabaseError> {
        *self = Embedded::start(self.options)?;
        Ok(self.fill(workloads, cancel)?)
    }

    /// Writes all changed pages and takes a checkpoint.
    fn level(&self, _: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
        Ok(self.store.flush().map_err(EmbeddedError::from)?)
    }

    /// A call was answered or given up when its load ended.
    fn end_others(&self, _: Duration) -> Result<usize, DatabaseError> {
        Ok(0)
    }

    /// What it was made with, in words.
    fn settings(&self) -> Result<Vec<(String, String)>, DatabaseError> {
        Ok(self.options.described(self.io))
    }

    fn probe(&self) -> Option<Probe> {
        Some(Embedded::probe(self))
    }

    fn stop(self: Box<Self>) -> Result<(), DatabaseError> {
        Ok(Embedded::stop(*self)?)
    }
}

impl EngineDatabase for Embedded {
    fn serve(&self, serving: Serving<'_>) -> Result<Service<'_>, EmbeddedError> {
        if !serving.arms.is_empty() {
            return Err(EmbeddedError::NoNodes);
        }
        let catalog = Arc::clone(&self.catalog);
        let handler = |requests| requests::procedure(catalog, requests);
        Ok(Service::start(&self.store, transactions(self.options), serving, handler)?)
    }

    fn engine(&self) -> &Arc<Store> {
        &self.store
    }

    fn fill(
        &mut self,
        workloads: &[Arc<dyn Workload>],
        cancel: &AtomicBool,
    ) -> Result<(), EmbeddedError> {
        let mut new = distinct(workloads).into_iter();
        new.try_for_each(|workload| Embedded::load(self, &**workload, cancel))
    }

    fn close(self: Box<Self>) -> Result<(), EmbeddedError> {
        let Embedded { catalog, store, .. } = *self;
        drop(catalog);
        let store = Arc::into_inner(store).expect("nobody else has the store");
        Ok(store.close()?)
    }
}
