//! Tests of the plant as a whole.
