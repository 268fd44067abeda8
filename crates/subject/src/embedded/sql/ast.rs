//! Statements as the parser reads them and the planner takes them apart.
//!
//! An expression is over columns of a kind `C`: the parser's are [`Name`]s, the planner's places in
//! a row.

use tidegate_workload::Value;

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Select(Select),
    Update(Update),
    Insert(Insert),
    Delete(Delete),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Select {
    pub(super) items: Vec<Item>,
    pub(super) from: Vec<Source>,
    pub(super) filter: Vec<Predicate<Name>>,
    pub(super) group_by: Vec<Expression<Name>>,
    pub(super) order_by: Vec<Order<Name>>,
    pub(super) limit: Option<Expression<Name>>,
    pub(super) is_for_update: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) table: Source,
    pub(super) set: Vec<(Name, Expression<Name>)>,
    pub(super) filter: Vec<Predicate<Name>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Insert {
    pub(super) table: Source,
    pub(super) columns: Vec<Name>,
    pub(super) rows: Vec<Vec<Expression<Name>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delete {
    pub(super) table: Source,
    pub(super) filter: Vec<Predicate<Name>>,
}

/// What is selected, and the name it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) expression: Expression<Name>,
    pub(super) alias: Option<String>,
}

/// A table and the name it has in the statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) table: String,
    pub(super) alias: String,
    /// Which character of the text it is, counted from 1.
    pub(super) at: usize,
}

/// A column as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) table: Option<String>,
    pub(super) column: String,
    /// Which character of the text it is, counted from 1.
    pub(super) at: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order<C> {
    pub(super) expression: Expression<C>,
    pub(super) is_descending: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression<C> {
    Column(C),
    /// The value for the `?` of this number, counted from 0.
    Parameter(usize),
    Literal(Value<'static>),
    /// `CURRENT_TIMESTAMP`.
    Now,
    Arithmetic(Box<Expression<C>>, Operator, Box<Expression<C>>),
    Aggregate(Box<Aggregate<C>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Aggregate<C> {
    pub(super) function: Function,
    /// `None` for `COUNT(*)`.
    pub(super) argument: Option<Expression<C>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Count,
    CountDistinct,
    Sum,
    Min,
    Max,
}

/// One of the conditions that hold together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Predicate<C> {
    Compare(Expression<C>, Comparison, Expression<C>),
    In(Expression<C>, Vec<Expression<C>>),
    Like(Expression<C>, Expression<C>),
    IsNull(Expression<C>),
    IsNotNull(Expression<C>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// The same with its sides exchanged.
    pub(super) fn turned(self) -> Comparison {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::LessOrEqual => Comparison::GreaterOrEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::LessOrEqual,
            same => same,
        }
    }
}

impl<C> Expression<C> {
    /// The same over other columns.
    pub(super) fn try_map<D, E>(
        &self,
        column: &mut dyn FnMut(&C) -> Result<D, E>,
    ) -> Result<Expression<D>, E> {
        Ok(match self {
            Expression::Column(name) => Expression::Column(column(name)?),
            Expression::Parameter(number) => Expression::Parameter(*number),
            Expression::Literal(value) => Expression::Literal(value.clone()),
            Expression::Now => Expression::Now,
            Expression::Arithmetic(left, operator, right) => Expression::Arithmetic(
                Box::new(left.try_map(column)?),
                *operator,
                Box::new(right.try_map(column)?),
            ),
            Expression::Aggregate(aggregate) => Expression::Aggregate(Box::new(Aggregate {
                function: aggregate.function,
                argument: match &aggregate.argument {
                    Some(argument) => Some(argument.try_map(column)?),
                    None => None,
                },
            })),
        })
    }

    /// Calls `visit` with each column.
    pub(super) fn for_each_column(&self, visit: &mut dyn FnMut(&C)) {
        match self {
            Expression::Column(column) => visit(column),
            Expression::Parameter(_) | Expression::Literal(_) | Expression::Now => {}
            Expression::Arithmetic(left, _, right) => {
                left.for_each_column(visit);
                right.for_each_column(visit);
            }
            Expression::Aggregate(aggregate) => {
                if let Some(argument) = &aggregate.argument {
                    argument.for_each_column(visit);
                }
            }
        }
    }

    /// Whether there is an aggregate in it.
    pub(super) fn has_aggregate(&self) -> bool {
        match self {
            Expression::Aggregate(_) => true,
            Expression::Arithmetic(left, _, right) => left.has_aggregate() || right.has_aggregate(),
            _ => false,
        }
    }
}

impl<C> Predicate<C> {
    /// Its expressions.
    pub(super) fn expressions(&self) -> Vec<&Expression<C>> {
        match self {
            Predicate::Compare(left, _, right) | Predicate::Like(left, right) => vec![left, right],
            Predicate::In(left, list) => std::iter::once(left).chain(list).collect(),
            Predicate::IsNull(of) | Predicate::IsNotNull(of) => vec![of],
        }
    }

    /// The same over other columns.
    pub(super) fn try_map<D, E>(
        &self,
        column: &mut dyn FnMut(&C) -> Result<D, E>,
    ) -> Result<Predicate<D>, E> {
        Ok(match self {
            Predicate::Compare(left, comparison, right) => {
                Predicate::Compare(left.try_map(column)?, *comparison, right.try_map(column)?)
            }
            Predicate::In(left, list) => {
                let list = list.iter().map(|one| one.try_map(column)).collect::<Result<_, E>>()?;
                Predicate::In(left.try_map(column)?, list)
            }
            Predicate::Like(left, right) => {
                Predicate::Like(left.try_map(column)?, right.try_map(column)?)
            }
            Predicate::IsNull(of) => Predicate::IsNull(of.try_map(column)?),
            Predicate::IsNotNull(of) => Predicate::IsNotNull(of.try_map(column)?),
        })
    }
}
