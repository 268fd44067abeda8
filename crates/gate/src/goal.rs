//! A response time to keep for a class: `high:p95=200ms`.

use std::fmt;
use std::str::FromStr;

use tidegate_control::{ResponseGoal, ResponseGoalError};

use crate::classes::{ClassId, ClassName, Classes, ClassesError};

/// A response time to keep for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassGoal {
    /// Whose response time.
    pub class: ClassName,
    /// What it has to be.
    pub goal: ResponseGoal,
}

/// A response time to keep for one of the classes of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptGoal {
    /// The class.
    pub class: ClassId,
    /// Its name, and what is kept.
    pub goal: ClassGoal,
}

impl ClassGoal {
    /// Finds the class among `classes`.
    ///
    /// # Errors
    /// No class has the name.
    pub fn of(self, classes: &Classes) -> Result<KeptGoal, ClassGoalError> {
        let class = classes.find(self.class.as_str()).ok_or_else(|| {
            let names: Vec<&str> = classes.iter().map(|(_, class)| class.name.as_str()).collect();
            ClassGoalError::Class { name: self.class, known: names.join(", ") }
        })?;
        Ok(KeptGoal { class, goal: self })
    }
}

impl fmt::Display for KeptGoal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.goal.fmt(formatter)
    }
}

/// Text that is no response time to keep for a class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassGoalError {
    /// There is no class.
    #[error("`{0}` names no class: write CLASS:STATISTIC=TIME, as in high:p95=200ms")]
    Form(String),
    /// It cannot be the name of a class.
    #[error(transparent)]
    Name(#[from] ClassesError),
    /// No class has this name.
    #[error("no class is called `{name}`: the classes are {known}")]
    Class {
        /// The name.
        name: ClassName,
        /// The names that there are.
        known: String,
    },
    /// The response time cannot be used.
    #[error(transparent)]
    Goal(#[from] ResponseGoalError),
}

impl FromStr for ClassGoal {
    type Err = ClassGoalError;

    fn from_str(text: &str) -> Result<ClassGoal, ClassGoalError> {
        let (name, goal) =
            text.split_once(':').ok_or_else(|| ClassGoalError::Form(text.to_owned()))?;
        Ok(ClassGoal { class: name.trim().parse()?, goal: goal.trim().parse()? })
    }
}

impl fmt::Display for ClassGoal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.class, self.goal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_is_written() {
        for text in ["high:p95=200ms", "normal:mean=1.5s", "high:p99=50us"] {
            assert_eq!(text.parse::<ClassGoal>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn an_error_says_what_to_write() {
        for (text, says) in [
            ("p95=200ms", "CLASS:STATISTIC=TIME"),
            ("Low:p95=200ms", "lower-case letters"),
            ("high:p90=200ms", "use mean, p95 or p99"),
            ("high:p95=200", "with its unit"),
            ("high:200ms", "STATISTIC=TIME"),
        ] {
            let error = text.parse::<ClassGoal>().expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let goal: ClassGoal = "low:p95=200ms".parse().expect("a goal");
        let error = goal.of(&Classes::default()).expect_err("no class is called low");
        assert!(error.to_string().contains("the classes are high, normal"), "{error}");
    }
}
