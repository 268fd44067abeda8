//! stub
#![allow(missing_docs, clippy::all, clippy::pedantic)]
use crate::connection::Transactional;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidegate_engine::{Store, Transaction, TxnError};
use tidegate_workload::workload::Workload;
use tidegate_workload::{Connection, Dialect, Failure, Reply, Statement, Value, Wants};
#[derive(Clone, Default)]
pub struct Catalog;
impl Catalog {
    pub fn load(
        &mut self,
        _: &Store,
        _: &dyn Workload,
        _: &AtomicBool,
    ) -> Result<(), super::EmbeddedError> {
        Ok(())
    }
}
pub struct SqlConnection<'t> {
    pub transaction: &'t mut Transaction,
    pub catalog: &'t Catalog,
}
impl<'t> SqlConnection<'t> {
    pub fn new(transaction: &'t mut Transaction, catalog: &'t Catalog) -> Self {
        SqlConnection { transaction, catalog }
    }
    pub fn take_error(&mut self) -> Option<TxnError> {
        None
    }
}
impl Connection for SqlConnection<'_> {
    fn run(&mut self, _: &Statement, _: &[Value<'_>], _: Wants) -> Result<Reply, Failure> {
        Err(Failure::Stopped)
    }
}
pub struct StoreConnection {
    pub store: Arc<Store>,
    pub catalog: Arc<Catalog>,
}
impl StoreConnection {
    pub fn new(store: Arc<Store>, catalog: Arc<Catalog>) -> Self {
        StoreConnection { store, catalog }
    }
}
impl Connection for StoreConnection {
    fn run(&mut self, _: &Statement, _: &[Value<'_>], _: Wants) -> Result<Reply, Failure> {
        Err(Failure::Stopped)
    }
}
impl Transactional for StoreConnection {
    fn begin(&mut self) -> Result<(), Failure> {
        Ok(())
    }
    fn commit(&mut self) -> Result<(), Failure> {
        Ok(())
    }
    fn rollback(&mut self) -> Result<(), Failure> {
        Ok(())
    }
    fn dialect(&self) -> Dialect {
        Dialect::Embedded
    }
}
