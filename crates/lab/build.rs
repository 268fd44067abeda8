//! Writes down which code this is, so that every result can be traced to it, and puts the files of
//! `experiments/` into the program.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// Where experiments and simulated plants are, from this package.
const EXPERIMENTS: &str = "../../experiments";

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-changed=../../.git/index");
    let described = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let build = match described {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).ok(),
        _ => None,
    };
    let build = build.map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned());
    println!("cargo:rustc-env=TIDEGATE_BUILD={build}");
    println!("cargo:rerun-if-changed={EXPERIMENTS}");
    let out = env::var_os("OUT_DIR").map(PathBuf::from).ok_or(io::ErrorKind::NotFound)?;
    fs::write(out.join("included.rs"), included(&fs::canonicalize(EXPERIMENTS)?)?)
}

/// Returns the source of a table of all files, by name.
fn included(root: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    for directory in ["", "plants", "plants-by-tick"] {
        for entry in fs::read_dir(root.join(directory))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let below = path.strip_prefix(root).map_err(io::Error::other)?;
                files.push((below.with_extension(""), path));
            }
        }
    }
    files.sort_by_cached_key(|(name, _)| name.to_string_lossy().into_owned());
    let mut source = "const FILES: &[Included] = &[\n".to_owned();
    for (name, path) in files {
        let (name, path) = (name.to_string_lossy(), path.to_string_lossy());
        // Writing to a String cannot fail.
        let _ = writeln!(source, "Included {{ name: {name:?}, text: include_str!({path:?}) }},");
    }
    source.push_str("];\n");
    Ok(source)
}
