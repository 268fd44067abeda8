//! Expressions and conditions on a row.
//!
//! NULL makes an expression NULL and a comparison neither true nor false, so that a row is not
//! chosen by it. In an order NULL comes first.

use std::borrow::Cow;
use std::cmp::Ordering;

use tidegate_workload::Value;

use super::ast::{Comparison, Expression, Operator, Predicate};
use super::encode::shorten;
use super::error::SqlError;

/// What expressions are evaluated with, apart from the row.
#[derive(Clone, Copy)]
pub(super) struct Given<'v> {
    /// A value for each `?`.
    pub(super) values: &'v [Value<'v>],
    /// The moment the statement began.
    pub(super) now: i64,
}

/// A value that borrows its text.
pub(super) fn borrow<'v>(value: &'v Value<'_>) -> Value<'v> {
    match value {
        Value::Null => Value::Null,
        Value::Int(number) => Value::Int(*number),
        Value::Text(text) => Value::Text(Cow::Borrowed(text)),
    }
}

/// A value that owns its text.
pub(super) fn own(value: &Value<'_>) -> Value<'static> {
    match value {
        Value::Null => Value::Null,
        Value::Int(number) => Value::Int(*number),
        Value::Text(text) => Value::Text(Cow::Owned(text.clone().into_owned())),
    }
}

impl<'v> Given<'v> {
    /// The value of an expression on a row.
    pub(super) fn evaluate(
        &self,
        expression: &'v Expression<usize>,
        row: &'v [Value<'_>],
    ) -> Result<Value<'v>, SqlError> {
        match expression {
            Expression::Column(slot) => Ok(borrow(&row[*slot])),
            Expression::Literal(value) => Ok(borrow(value)),
            Expression::Now => Ok(Value::Int(self.now)),
            Expression::Parameter(number) => self
                .values
                .get(*number)
                .map(borrow)
                .ok_or(SqlError::MissingValue { given: self.values.len(), asked: number + 1 }),
            Expression::Arithmetic(left, operator, right) => {
                calculate(&self.evaluate(left, row)?, *operator, &self.evaluate(right, row)?)
            }
            Expression::Aggregate(_) => unreachable!("the planner puts a column in its place"),
        }
    }

    /// Whether a condition holds for a row.
    pub(super) fn holds(
        &self,
        predicate: &'v Predicate<usize>,
        row: &'v [Value<'_>],
    ) -> Result<bool, SqlError> {
        match predicate {
            Predicate::Compare(left, comparison, right) => {
                let (left, right) = (self.evaluate(left, row)?, self.evaluate(right, row)?);
                Ok(compare(&left, &right)?.is_some_and(|order| comparison.is(order)))
            }
            Predicate::In(left, list) => {
                let left = self.evaluate(left, row)?;
                for one in list {
                    if compare(&left, &self.evaluate(one, row)?)? == Some(Ordering::Equal) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Predicate::Like(left, pattern) => {
                match (self.evaluate(left, row)?, self.evaluate(pattern, row)?) {
                    (Value::Text(text), Value::Text(pattern)) => Ok(is_like(&text, &pattern)),
                    (Value::Null, _) | (_, Value::Null) => Ok(false),
                    (one, _) => Err(wrong_type(&one, "matched with LIKE")),
                }
            }
            Predicate::IsNull(of) => Ok(self.evaluate(of, row)? == Value::Null),
            Predicate::IsNotNull(of) => Ok(self.evaluate(of, row)? != Value::Null),
        }
    }
}

impl Comparison {
    fn is(self, order: Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// The order of two values, `None` when one is NULL.
fn compare(left: &Value<'_>, right: &Value<'_>) -> Result<Option<Ordering>, SqlError> {
    match (left, right) {
        (Value::Null, _) | (_, Value::Null) => Ok(None),
        (Value::Int(_), Value::Text(_)) => Err(wrong_type(right, "compared with a number")),
        (Value::Text(_), Value::Int(_)) => Err(wrong_type(left, "compared with a number")),
        _ => Ok(Some(order(left, right))),
    }
}

/// The order of values in keys and in ORDER BY: NULL, numbers, texts by their bytes.
pub(super) fn order(left: &Value<'_>, right: &Value<'_>) -> Ordering {
    let rank = |value: &Value<'_>| match value {
        Value::Null => 0,
        Value::Int(_) => 1,
        Value::Text(_) => 2,
    };
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.cmp(right),
        (Value::Text(left), Value::Text(right)) => left.as_bytes().cmp(right.as_bytes()),
        _ => rank(left).cmp(&rank(right)),
    }
}

fn calculate(
    left: &Value<'_>,
    operator: Operator,
    right: &Value<'_>,
) -> Result<Value<'static>, SqlError> {
    let (left, right) = match (left, right) {
        (Value::Null, _) | (_, Value::Null) => return Ok(Value::Null),
        (Value::Int(left), Value::Int(right)) => (*left, *right),
        (Value::Text(_), _) => return Err(wrong_type(left, "calculated with")),
        (_, Value::Text(_)) => return Err(wrong_type(right, "calculated with")),
    };
    let (result, sign) = match operator {
        Operator::Add => (left.checked_add(right), '+'),
        Operator::Subtract => (left.checked_sub(right), '-'),
        Operator::Multiply => (left.checked_mul(right), '*'),
    };
    let too_large = || SqlError::OutOfRange {
        what: format!("{left} {sign} {right}"),
        place: "64 bits".to_owned(),
    };
    result.map(Value::Int).ok_or_else(too_large)
}

/// That a value is not of the type that is needed.
pub(super) fn wrong_type(value: &Value<'_>, done: &'static str) -> SqlError {
    let what = match value {
        Value::Null => "NULL".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => format!("'{}'", shorten(text)),
    };
    SqlError::WrongType { what, done }
}

/// Whether a text is like a pattern, in which `%` stands for any characters and `_` for one.
///
/// Where a `%` was passed, a mismatch behind it lets it stand for one character more. An earlier
/// `%` need not be tried again: what it could take, the later one can.
fn is_like(text: &str, pattern: &str) -> bool {
    let (mut text, mut pattern) = (text.chars(), pattern.chars());
    let mut passed: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let before = text.clone();
        match (pattern.next(), text.next()) {
            (Some('%'), _) => {
                text = before;
                passed = Some((text.clone(), pattern.clone()));
            }
            (None, None) => return true,
            (Some(wanted), Some(letter)) if wanted == '_' || wanted == letter => {}
            _ => {
                let Some((from, behind)) = &mut passed else { return false };
                if from.next().is_none() {
                    return false;
                }
                (text, pattern) = (from.clone(), behind.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_sql_says() {
        for (text, pattern, expected) in [
            ("", "", true),
            ("", "%", true),
            ("", "_", false),
            ("abc", "abc", true),
            ("abc", "ABC", false),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "%b%", true),
            ("abc", "a_c", true),
            ("abc", "__", false),
            ("aXbXc", "a%b_c", true),
            ("aab", "a%ab", true),
            ("mississippi", "m%iss%pi", true),
            ("mississippi", "m%iss%ps", false),
            ("é", "_", true),
            ("a%b", "a%%b", true),
        ] {
            assert_eq!(is_like(text, pattern), expected, "{text} LIKE {pattern}");
        }
    }

    #[test]
    fn null_is_neither_equal_nor_less_and_types_do_not_mix() {
        assert_eq!(compare(&Value::Null, &Value::Null).unwrap(), None);
        assert_eq!(compare(&1.into(), &2.into()).unwrap(), Some(Ordering::Less));
        assert_eq!(compare(&"b".into(), &"a".into()).unwrap(), Some(Ordering::Greater));
        assert_eq!(compare(&"1".into(), &1.into()).unwrap_err().code(), "42804");
        let sum = |left, right| calculate(&left, Operator::Add, &right);
        assert_eq!(sum(Value::Null, 1.into()).unwrap(), Value::Null);
        assert_eq!(sum(i64::MAX.into(), 1.into()).unwrap_err().code(), "22003");
        assert_eq!(sum("1".into(), 1.into()).unwrap_err().code(), "42804");
    }
}
