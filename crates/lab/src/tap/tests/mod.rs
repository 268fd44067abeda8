//! The protocol as a whole, on generated data.

mod planted;
mod properties;
mod published;
mod rows;
