//! A response time to keep for a class: `high:p95=200ms`.

use std::fmt;
use std::str::FromStr;

use tidegate_control::{ResponseGoal, ResponseGoalError};

use crate::queue::Class;

/// A response time to keep for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassGoal {
    /// Whose response time.
    pub class: Class,
    /// What it has to be.
    pub goal: ResponseGoal,
}

/// Text that is no response time to keep for a class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassGoalError {
    /// There is no class.
    #[error("`{0}` names no class: write CLASS:STATISTIC=TIME, as in high:p95=200ms")]
    Form(String),
    /// No class has this name.
    #[error("no class is called `{0}`: use high or normal, as in high:p95=200ms")]
    Class(String),
    /// The response time cannot be used.
    #[error(transparent)]
    Goal(#[from] ResponseGoalError),
}

impl FromStr for ClassGoal {
    type Err = ClassGoalError;

    fn from_str(text: &str) -> Result<ClassGoal, ClassGoalError> {
        let (name, goal) =
            text.split_once(':').ok_or_else(|| ClassGoalError::Form(text.to_owned()))?;
        let named = Class::ALL.into_iter().find(|class| class.name() == name.trim());
        let class = named.ok_or_else(|| ClassGoalError::Class(name.to_owned()))?;
        Ok(ClassGoal { class, goal: goal.trim().parse()? })
    }
}

impl fmt::Display for ClassGoal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.class.name(), self.goal)
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
            ("low:p95=200ms", "use high or normal"),
            ("high:p90=200ms", "use mean, p95 or p99"),
            ("high:p95=200", "with its unit"),
            ("high:200ms", "STATISTIC=TIME"),
        ] {
            let error = text.parse::<ClassGoal>().expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
