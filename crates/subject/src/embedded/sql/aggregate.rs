//! Groups of rows: counts, sums, lowest and highest values.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use tidegate_workload::Value;

use super::ast::Function;
use super::encode::append_key;
use super::error::SqlError;
use super::evaluate::{Given, order, own, wrong_type};
use super::plan::Grouping;

/// The groups so far, by what they are grouped by.
pub(super) struct Groups<'g> {
    grouping: &'g Grouping,
    given: Given<'g>,
    known: BTreeMap<Vec<u8>, Group>,
    key: Vec<u8>,
}

struct Group {
    by: Vec<Value<'static>>,
    states: Vec<State>,
}

/// What an aggregate knows so far.
enum State {
    Count(i64),
    Distinct(HashSet<Vec<u8>>),
    /// Wide enough for any number of 64-bit numbers.
    Sum(Option<i128>),
    Extreme(Value<'static>),
}

impl<'g> Groups<'g> {
    pub(super) fn new(grouping: &'g Grouping, given: Given<'g>) -> Self {
        let mut groups = Groups { grouping, given, known: BTreeMap::new(), key: Vec::new() };
        if grouping.by.is_empty() {
            // All rows are one group, also when there are none.
            groups.known.insert(Vec::new(), grouping.begin(Vec::new()));
        }
        groups
    }

    /// Takes a row; whether more are needed.
    pub(super) fn take(&mut self, row: &[Value<'static>]) -> Result<ControlFlow<()>, SqlError> {
        self.key.clear();
        for by in &self.grouping.by {
            append_key(&mut self.key, &self.given.evaluate(by, row)?);
        }
        if !self.known.contains_key(&self.key) {
            let by = self.grouping.by.iter();
            let by = by.map(|by| self.given.evaluate(by, row).map(|value| own(&value)));
            let group = self.grouping.begin(by.collect::<Result<_, _>>()?);
            self.known.insert(self.key.clone(), group);
        }
        let group = self.known.get_mut(&self.key).expect("a group that is not there was made");
        let mut is_done = self.grouping.takes_first;
        for (aggregate, state) in self.grouping.aggregates.iter().zip(&mut group.states) {
            let value = match &aggregate.argument {
                Some(argument) => self.given.evaluate(argument, row)?,
                // COUNT(*) counts whatever there is.
                None => Value::Int(0),
            };
            is_done &= value != Value::Null;
            state.take(aggregate.function, &value)?;
        }
        Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// Gives each group's row to `visit`, in the order of what they are grouped by.
    pub(super) fn end(
        self,
        mut visit: impl FnMut(&[Value<'static>]) -> Result<ControlFlow<()>, SqlError>,
    ) -> Result<(), SqlError> {
        for group in self.known.into_values() {
            let mut row = group.by;
            for state in group.states {
                row.push(state.end()?);
            }
            if visit(&row)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Grouping {
    fn begin(&self, by: Vec<Value<'static>>) -> Group {
        let states = self.aggregates.iter().map(|aggregate| match aggregate.function {
            Function::Count => State::Count(0),
            Function::CountDistinct => State::Distinct(HashSet::new()),
            Function::Sum => State::Sum(None),
            Function::Min | Function::Max => State::Extreme(Value::Null),
        });
        Group { by, states: states.collect() }
    }
}

impl State {
    fn take(&mut self, function: Function, value: &Value<'_>) -> Result<(), SqlError> {
        if *value == Value::Null {
            return Ok(());
        }
        match self {
            State::Count(count) => *count += 1,
            State::Distinct(values) => {
                let mut key = Vec::new();
                append_key(&mut key, value);
                values.insert(key);
            }
            State::Sum(sum) => match value {
                Value::Int(number) => *sum = Some(sum.unwrap_or(0) + i128::from(*number)),
                _ => return Err(wrong_type(value, "added up")),
            },
            State::Extreme(extreme) => {
                let is_beyond = match function {
                    Function::Max => order(value, extreme).is_gt(),
                    _ => order(value, extreme).is_lt(),
                };
                if is_beyond || *extreme == Value::Null {
                    *extreme = own(value);
                }
            }
        }
        Ok(())
    }

    fn end(self) -> Result<Value<'static>, SqlError> {
        let too_large = |sum| SqlError::OutOfRange {
            what: format!("the aggregate {sum}"),
            place: "64 bits".to_owned(),
        };
        match self {
            State::Count(count) => Ok(Value::Int(count)),
            State::Distinct(values) => {
                Ok(Value::Int(i64::try_from(values.len()).expect("memory holds fewer than 2^63")))
            }
            State::Sum(None) => Ok(Value::Null),
            State::Sum(Some(sum)) => i64::try_from(sum).map(Value::Int).map_err(|_| too_large(sum)),
            State::Extreme(extreme) => Ok(extreme),
        }
    }
}
