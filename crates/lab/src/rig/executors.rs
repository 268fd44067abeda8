//! Other programs on the machine that run experiments.

use std::fs;
use std::path::Path;

/// How many processes other than ours are laboratories at work: `tidegate` with `lab`, `demo` or
/// `bench`. Any of them would share the machine with what is measured.
pub(crate) fn other_executors() -> u32 {
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let own = std::process::id().to_string();
    let is_other = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let is_process = name.to_str().is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()));
        is_process && name.to_str() != Some(&own) && is_laboratory(&entry.path())
    };
    processes.flatten().filter(is_other).map(|_| 1).sum()
}

fn is_laboratory(process: &Path) -> bool {
    // A process that ends meanwhile is none.
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    is_laboratory_line(&line)
}

/// Whether a command line, its words ended by zeros, is a laboratory's.
fn is_laboratory_line(line: &[u8]) -> bool {
    let mut words = line.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    let program = words.next().unwrap_or_default();
    let name = Path::new(&*program).file_name();
    name.is_some_and(|name| name == "tidegate")
        && words.any(|word| matches!(&*word, "run" | "resume" | "worker" | "demo" | "bench"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laboratories_are_told_from_proxies_and_others() {
        for (line, expected) in [
            ("/bin/tidegate\0lab\0run\0e.toml\0", true),
            ("tidegate\0demo\0", true),
            ("tidegate\0proxy\0--listen\0", false),
            ("tidegate\0lab\0show\0x\0", false),
            ("cat\0run\0", false),
            ("", false),
        ] {
            assert_eq!(is_laboratory_line(line.as_bytes()), expected, "{line}");
        }
    }
}
