//! What the figures were measured on.

use std::fs;

use serde::Serialize;

/// The machine, as far as it matters to a reader of the figures.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    /// Processors this process may use.
    pub cores: usize,
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// This machine; what the system does not tell is "unknown" or 0.
    pub fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let unknown = |text: &str| if text.is_empty() { "unknown" } else { text }.to_owned();
        let memory_kib = value_after(&read("/proc/meminfo"), "MemTotal");
        let memory_kib = memory_kib.trim_end_matches(" kB").parse().unwrap_or(0);
        Machine {
            cpu: unknown(&value_after(&read("/proc/cpuinfo"), "model name")),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: memory_kib / 1024,
            kernel: unknown(read("/proc/sys/kernel/osrelease").trim()),
        }
    }
}

/// The value of the first line `key : value`; empty when there is none.
fn value_after(text: &str, key: &str) -> String {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    let found = pairs.find(|(name, _)| name.trim() == key);
    found.map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_of_a_key_is_taken() {
        let text = "processor\t: 0\nmodel name\t: Fast CPU: 3 GHz\nmodel name\t: Slow\n";
        assert_eq!(value_after(text, "model name"), "Fast CPU: 3 GHz");
        assert_eq!(value_after(text, "model"), "");
        assert!(Machine::this().cores > 0);
    }
}
