//! A response time to keep: `mean=50ms`, `p95=200ms` or `p99=1s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest response time that can be a goal: what a gate's statistics tell apart.
const LONGEST: Duration = Duration::from_secs(3600);

/// Which number of the response times has to stay within the goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseStatistic {
    /// The arithmetic mean.
    Mean,
    /// The 95th percentile: at most 5 % take longer.
    P95,
    /// The 99th percentile: at most 1 % take longer.
    P99,
}

impl ResponseStatistic {
    const ALL: [ResponseStatistic; 3] =
        [ResponseStatistic::Mean, ResponseStatistic::P95, ResponseStatistic::P99];

    /// The name as flags and files spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ResponseStatistic::Mean => "mean",
            ResponseStatistic::P95 => "p95",
            ResponseStatistic::P99 => "p99",
        }
    }

    /// The share of response times that may be longer than the goal; `None` for the mean.
    #[must_use]
    pub const fn late_share(self) -> Option<f64> {
        match self {
            ResponseStatistic::Mean => None,
            ResponseStatistic::P95 => Some(0.05),
            ResponseStatistic::P99 => Some(0.01),
        }
    }
}

/// A response time to keep, from the request of a permit to the end of the transaction, without the
/// time in which its client was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseGoal {
    /// The number that has to stay within it.
    pub statistic: ResponseStatistic,
    /// The response time; above 0 and at most an hour.
    pub within: Duration,
}

/// Text that is no response time to keep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseGoalError {
    /// There is no `=`.
    #[error("`{0}` is not of the form STATISTIC=TIME: write p95=200ms, p99=1s or mean=50ms")]
    Form(String),
    /// No statistic has this name.
    #[error("`{0}` cannot be kept: use mean, p95 or p99, as in p95=200ms")]
    Statistic(String),
    /// It is no time, or none that can be a goal.
    #[error(
        "`{0}` is no response time: write a number above 0 with its unit, us, ms, s or m, as in \
         200ms, at most 60m"
    )]
    Time(String),
}

/// Reads a number with its unit.
fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|one: char| !one.is_ascii_digit() && one != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit.trim_start() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    let duration = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
    (duration >= Duration::from_micros(1) && duration <= LONGEST).then_some(duration)
}

impl FromStr for ResponseGoal {
    type Err = ResponseGoalError;

    fn from_str(text: &str) -> Result<ResponseGoal, ResponseGoalError> {
        let (name, time) =
            text.split_once('=').ok_or_else(|| ResponseGoalError::Form(text.to_owned()))?;
        let named = ResponseStatistic::ALL.into_iter().find(|one| one.name() == name.trim());
        let statistic = named.ok_or_else(|| ResponseGoalError::Statistic(name.to_owned()))?;
        let within = duration(time.trim());
        let within = within.ok_or_else(|| ResponseGoalError::Time(time.to_owned()))?;
        Ok(ResponseGoal { statistic, within })
    }
}

impl fmt::Display for ResponseGoal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `Duration` writes 200ms, 1.5s and 50µs.
        let within = format!("{:?}", self.within).replace('µ', "u");
        write!(formatter, "{}={within}", self.statistic.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_read_as_users_write_it_and_written_so_that_it_is_read_again() {
        let table = [
            ("p95=200ms", "p95=200ms"),
            ("p99=1.5s", "p99=1.5s"),
            ("mean=50us", "mean=50us"),
            ("mean= 2 m", "mean=120s"),
            ("p95=0.2s", "p95=200ms"),
        ];
        for (written, canonical) in table {
            let goal: ResponseGoal = written.parse().expect(written);
            assert_eq!(goal.to_string(), canonical);
            assert_eq!(canonical.parse(), Ok(goal));
        }
    }

    #[test]
    fn what_is_no_goal_is_refused_with_what_to_write() {
        for text in ["", "p95", "p90=1s", "p95=", "p95=200", "p95=0ms", "p95=-1s", "p95=1e9s"] {
            let error = text.parse::<ResponseGoal>().expect_err(text).to_string();
            assert!(error.contains("200ms"), "{text}: {error}");
        }
        assert!("p95=61m".parse::<ResponseGoal>().is_err());
        assert!("p95=1.2.3s".parse::<ResponseGoal>().is_err());
    }
}
