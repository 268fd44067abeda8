//! Writes down which code this is, so that every result can be traced to it.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/index");
    let described = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let build = match described {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).ok(),
        _ => None,
    };
    let build = build.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned());
    println!("cargo:rustc-env=TIDEGATE_BUILD={build}");
}
