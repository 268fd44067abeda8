//! Comparison (section 3.4) and arithmetic (section 3.5).

use std::collections::HashSet;

use crate::tree::Tree;
use crate::xpath::ast::Operator;
use crate::xpath::eval::{Failure, Items, Lazy, Run};
use crate::xpath::value;

/// Applies `+`, `-`, `*`, `div` or `mod`. The remainder has the sign of the dividend.
pub(crate) fn arithmetic(operator: Operator, left: f64, right: f64) -> f64 {
    match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        Operator::Modulo => left % right,
        _ => f64::NAN,
    }
}

/// Compares two values. A node-set stands for each of its nodes: one that makes the comparison
/// true suffices.
pub(crate) fn compare<'a, T: Tree>(
    run: Run<'a, T>,
    operator: Operator,
    left: Lazy<'a, T>,
    right: Lazy<'a, T>,
) -> Result<bool, Failure<T>> {
    match (left, right) {
        (Lazy::Nodes(left), Lazy::Nodes(right)) => compare_sets(run, operator, left, right),
        (Lazy::Nodes(left), right) => compare_set(run, operator, left, right),
        (left, Lazy::Nodes(right)) => compare_set(run, operator.exchanged(), right, left),
        (left, right) => compare_atoms(run, operator, left, right),
    }
}

/// Compares a node-set with a boolean, number or string.
fn compare_set<'a, T: Tree>(
    run: Run<'a, T>,
    operator: Operator,
    items: Items<'a, T>,
    other: Lazy<'a, T>,
) -> Result<bool, Failure<T>> {
    if let Lazy::Boolean(_) = other {
        let boolean = Run::<T>::boolean_of(Lazy::Nodes(items))?;
        return compare_atoms(run, operator, Lazy::Boolean(boolean), other);
    }
    if operator.is_equality()
        && let Lazy::String(text) = &other
    {
        for item in items {
            if (run.string_value(&item?)? == *text) == (operator == Operator::Equal) {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    let right = run.number_of(other)?;
    for item in items {
        let left = value::number_of(&run.string_value(&item?)?);
        if compare_numbers(operator, left, right) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Compares two node-sets in time proportional to their sizes, not to the product.
fn compare_sets<'a, T: Tree>(
    run: Run<'a, T>,
    operator: Operator,
    left: Items<'a, T>,
    right: Items<'a, T>,
) -> Result<bool, Failure<T>> {
    if operator.is_relational() {
        return compare_extremes(run, operator, left, right);
    }
    let mut strings = HashSet::new();
    for item in left {
        strings.insert(run.string_value(&item?)?);
    }
    if strings.is_empty() {
        return Ok(false);
    }
    for item in right {
        let known = strings.contains(&run.string_value(&item?)?);
        // Some string on the left differs from this one unless it is the only one there.
        let differs = strings.len() > 1 || !known;
        if if operator == Operator::Equal { known } else { differs } {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Some number on the left is less than some on the right if the least one is less than the
/// greatest one. NaN is neither.
fn compare_extremes<'a, T: Tree>(
    run: Run<'a, T>,
    operator: Operator,
    left: Items<'a, T>,
    right: Items<'a, T>,
) -> Result<bool, Failure<T>> {
    let least_on_left = matches!(operator, Operator::Less | Operator::LessOrEqual);
    let extreme = |items: Items<'a, T>, least: bool| -> Result<f64, Failure<T>> {
        let mut extreme = f64::NAN;
        for item in items {
            let number = value::number_of(&run.string_value(&item?)?);
            // `min` and `max` return the other operand if one is NaN.
            extreme = if least { extreme.min(number) } else { extreme.max(number) };
        }
        Ok(extreme)
    };
    let left = extreme(left, least_on_left)?;
    Ok(compare_numbers(operator, left, extreme(right, !least_on_left)?))
}

fn compare_atoms<'a, T: Tree>(
    run: Run<'a, T>,
    operator: Operator,
    left: Lazy<'a, T>,
    right: Lazy<'a, T>,
) -> Result<bool, Failure<T>> {
    let is_equal = operator == Operator::Equal;
    if operator.is_equality() {
        match (&left, &right) {
            (Lazy::Boolean(_), _) | (_, Lazy::Boolean(_)) => {
                let equal = Run::<T>::boolean_of(left)? == Run::boolean_of(right)?;
                return Ok(equal == is_equal);
            }
            (Lazy::String(left), Lazy::String(right)) => return Ok((left == right) == is_equal),
            _ => {}
        }
    }
    Ok(compare_numbers(operator, run.number_of(left)?, run.number_of(right)?))
}

/// Compares by IEEE 754: NaN is unequal to everything, and neither less nor greater.
#[expect(clippy::float_cmp, reason = "XPath asks for the comparison of IEEE 754")]
fn compare_numbers(operator: Operator, left: f64, right: f64) -> bool {
    match operator {
        Operator::Equal => left == right,
        Operator::NotEqual => left != right,
        Operator::Less => left < right,
        Operator::LessOrEqual => left <= right,
        Operator::Greater => left > right,
        Operator::GreaterOrEqual => left >= right,
        _ => false,
    }
}
