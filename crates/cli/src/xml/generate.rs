//! `tidegate xml generate`.

use std::path::PathBuf;

use clap::Args;
use tidegate_xml::xmark::{PersonCount, XmarkGenerator, XmarkOptions};

use super::failure;
use super::output::write_to;
use crate::Failure;

/// Write an XMark document: the auction site of the benchmark, of any size
#[derive(Debug, Args)]
pub(crate) struct GenerateArguments {
    /// Scaling factor: 1 is about 110 MB
    #[arg(long, value_name = "F", default_value = "0.01")]
    factor: f64,

    /// Seed: the same factor and seed give the same document
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,

    /// File to write; `-` is standard output, which is the default
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Writes the document.
pub(crate) fn run(arguments: &GenerateArguments) -> Result<(), Failure> {
    let (factor, seed) = (arguments.factor, arguments.seed);
    let options = XmarkOptions { factor, seed, persons: PersonCount::default() };
    let generator = XmarkGenerator::new(options).map_err(Failure::usage)?;
    write_to(arguments.output.as_deref(), |output| {
        generator.write(output).map(|_| ()).map_err(|error| failure(error.into()))
    })
}
