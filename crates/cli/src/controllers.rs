//! `tidegate controllers`.

use std::fmt::Write;

use clap::Args;
use tidegate_control::{Algorithm, Parameter};

use crate::{Failure, print};

/// List the controllers and their parameters
///
/// Prints every algorithm with the name, default, allowed values, unit and meaning of each of its
/// parameters. Parameters follow the algorithm's name in options, configuration files and
/// experiments: --control external-scheduling:loss=0.2,delta=4. fixed:N always holds the limit N.
/// With --keep of `tidegate proxy` every algorithm can keep a response time.
#[derive(Debug, Args)]
pub(crate) struct ControllersArguments {
    /// Algorithms to list [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<Algorithm>,
}

/// Prints the list.
pub(crate) fn run(arguments: &ControllersArguments) -> Result<(), Failure> {
    let all = Algorithm::ALL;
    let named = if arguments.names.is_empty() { &all[..] } else { &arguments.names };
    named.iter().try_for_each(|&algorithm| print(&listed(algorithm)))
}

/// An algorithm with its parameters, a line for each.
fn listed(algorithm: Algorithm) -> String {
    let parameters = algorithm.parameters();
    let default = if algorithm == Algorithm::default() { " (the default)" } else { "" };
    let mut text = format!("{}{default}\n", algorithm.name());
    let width = |of: fn(&Parameter) -> usize| parameters.iter().map(of).max().unwrap_or_default();
    let name_width = width(|one| one.name.len() + one.default.len() + 1);
    let values_width = width(|one| one.values.len());
    let unit_width = width(|one| one.unit.len());
    for Parameter { name, unit, values, default, meaning } in &parameters {
        let name = format!("{name}={default}");
        let _ = writeln!(
            text,
            "  {name:name_width$}  {values:values_width$}  {unit:unit_width$}  {meaning}"
        );
    }
    text.push('\n');
    text
}
