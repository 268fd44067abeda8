//! Why a limit was chosen, in words for a log, a metric and the journal.

use crate::controllers::{
    ArmReason, BeliefReason, FeedbackReason, GoalReason, HeissWagnerReason, LatencyReason,
    LocksReason, PairedReason, ScalabilityReason,
};

/// Declares an enum whose variants are written with a format string each:
///
/// ```text
/// /// Documentation.
/// Variant { field: f64 } => "format {field:.1} {:.0} %", field * 100.0;
/// Variant(inner: Type) => "format {inner}";
/// ```
macro_rules! displayed {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident { $(
            $(#[$doc:meta])*
            $variant:ident
                $( { $( $(#[$field_doc:meta])* $field:ident: $type:ty ),+ $(,)? } )?
                $( ($inner:ident: $inner_type:ty) )?
                => $format:literal $(, $argument:expr)*;
        )+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        $visibility enum $name { $(
            $(#[$doc])*
            $variant $( { $( $(#[$field_doc])* $field: $type ),+ } )? $( ($inner_type) )?,
        )+ }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match *self { $(
                    $name::$variant $( { $( $field ),+ } )? $( ($inner) )? => {
                        write!(formatter, $format $(, $argument)*)
                    }
                )+ }
            }
        }
    };
}
pub(crate) use displayed;

/// Declares the reasons of a controller like [`displayed!`], each with the word that metrics count
/// it by: `Variant { field: f64 } = "word" => "format {field}";`.
macro_rules! reasons {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident { $(
            $(#[$doc:meta])*
            $variant:ident
                $( { $( $(#[$field_doc:meta])* $field:ident: $type:ty ),+ $(,)? } )?
                $( ($inner:ident: $inner_type:ty) )?
                = $kind:expr => $format:literal $(, $argument:expr)*;
        )+ }
    ) => {
        $crate::reason::displayed! {
            $(#[$meta])*
            $visibility enum $name { $(
                $(#[$doc])*
                $variant $( { $( $(#[$field_doc])* $field: $type ),+ } )?
                    $( ($inner: $inner_type) )? => $format $(, $argument)*;
            )+ }
        }

        impl $name {
            /// Returns the rule that decided, as one word for counting, without its numbers.
            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self { $(
                    $name::$variant $( { $( $field: _ ),+ } )? $( ($inner) )? => {
                        $( let _ = $inner; )?
                        $kind
                    }
                )+ }
            }
        }
    };
}
pub(crate) use reasons;

reasons! {
    /// Why a limit was chosen. Changes are fractions: 0.12 is 12 % more, -0.12 is 12 % less.
    pub enum Reason {
        /// The limit was set by hand.
        Fixed = "fixed" => "fixed";
        /// The gate stays open while a controller is asked and not obeyed.
        Open = "open" => "open: only observing";
        /// The limit was above the concurrency, transactions running and waiting, that was seen.
        Concurrency {
            /// The concurrency seen.
            seen: u32,
        } = "concurrency" => "concurrency: only {seen} running or waiting";
        /// No transaction completed, so there is nothing to learn from the interval.
        NothingCompleted = "nothing_completed" => "hold: nothing completed";
        /// There is no earlier interval to compare with.
        First = "first" => "probe: nothing to compare with yet";
        /// Hill climbing goes up: throughput rose enough for the higher limit.
        Climb(change: Change) = "climb" => "climb: {change}";
        /// Hill climbing goes down: throughput rose although the limit fell.
        Descend(change: Change) = "descend" => "descend: {change}";
        /// Hill climbing goes back to the limit before the last: the last step did not pay.
        Back(change: Change) = "back" => "back: {change}";
        /// Hill climbing stays at the limit it went back to, measuring.
        Rest {
            /// Intervals of rest still to come.
            left: u32,
        } = "rest" => "rest: {left} more before the next probe";
        /// Hill climbing ends its rest early: the workload is another one.
        Moved {
            /// Change of throughput from the mean of the rest to the last interval.
            throughput: f64,
        } = "moved" => "probe: throughput {} since the rest began", Moved(throughput);
        /// The limit goes to the apex of the parabola through the last observations.
        Apex {
            /// Where the apex is, in transactions.
            at: f64,
        } = "apex" => "apex: parabola peaks at {at:.1}";
        /// The apex is further up than one step may go.
        Capped {
            /// Where the apex is, in transactions.
            at: f64,
        } = "capped" => "apex: parabola peaks at {at:.1}, one step towards it";
        /// The limit takes a random step, because the observations gave no parabola to follow.
        Wiggle(cause: NoApex) = "wiggle" => "wiggle: {cause}";
        /// The Gaussian process, which believes in a throughput curve.
        Belief(reason: BeliefReason) = reason.kind() => "{reason}";
        /// The feedback controller of the external-scheduling study.
        Feedback(reason: FeedbackReason) = reason.kind() => "{reason}";
        /// A limiter that looks at latency.
        Latency(reason: LatencyReason) = reason.kind() => "{reason}";
        /// A load control that looks at locks.
        Locks(reason: LocksReason) = reason.kind() => "{reason}";
        /// A load control of Heiss and Wagner.
        HeissWagner(reason: HeissWagnerReason) = reason.kind() => "{reason}";
        /// The controller that fits a scalability law.
        Scalability(reason: ScalabilityReason) = reason.kind() => "{reason}";
        /// The controller that compares limits in pairs.
        Paired(reason: PairedReason) = reason.kind() => "{reason}";
        /// A response time to keep.
        Goal(reason: GoalReason) = reason.kind() => "{reason}";
        /// An arm beside the limit.
        Arm(reason: ArmReason) = reason.kind() => "{reason}";
    }
}

impl Reason {
    /// Returns whether the limit was chosen only to be measured for a moment: it says nothing of
    /// where the limit will stay.
    #[must_use]
    pub fn is_trial(&self) -> bool {
        matches!(self, Reason::Paired(reason) if reason.is_trial())
    }
}

/// The change from one interval to the next that a hill-climbing step was judged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Relative change of throughput.
    pub throughput: f64,
    /// Relative change of response time, where it was judged by.
    pub response_time: Option<f64>,
    /// Relative change of the limit.
    pub limit: f64,
}

displayed! {
    /// Why observations gave no apex to go to.
    pub enum NoApex {
        /// Too few observations so far.
        TooFew => "too few observations for a parabola";
        /// Two observations were made at the same limit.
        SameLimit => "two observations at one limit";
        /// The parabola opens upward or is a straight line.
        NotConcave => "the parabola opens upward";
        /// The apex is at the limit already in force.
        AlreadyThere => "the parabola peaks at this limit";
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let side = if self.limit < 0.0 { "less" } else { "more" };
        let limit = self.limit.abs() * 100.0;
        write!(formatter, "throughput {}", Moved(self.throughput))?;
        if let Some(response_time) = self.response_time {
            write!(formatter, ", response time {}", Moved(response_time))?;
        }
        write!(formatter, " for {limit:.0} % {side}")
    }
}

/// A relative change in words.
struct Moved(f64);

impl std::fmt::Display for Moved {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = if self.0 < 0.0 { "fell" } else { "rose" };
        write!(formatter, "{verb} {:.0} %", self.0.abs() * 100.0)
    }
}

/// Seconds, written as milliseconds.
pub(crate) struct Milliseconds(pub(crate) f64);

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:.1} ms", self.0 * 1e3)
    }
}

#[cfg(test)]
mod tests;
