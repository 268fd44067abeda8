//! What this process has used of the machine.

use std::fs;

use crate::Result;

/// What this process has used until now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    /// Processor time, in seconds.
    pub(crate) processor_s: f64,
    /// Read by system calls, in MiB.
    pub(crate) read_mib: f64,
    /// Written by system calls, in MiB.
    pub(crate) written_mib: f64,
}

impl Used {
    /// By `/proc/self`: processor time in ticks of 10 ms, and what system calls read and wrote.
    pub(crate) fn now() -> Result<Used> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        // The name, in brackets, may hold anything; the numbers follow it.
        let numbers = stat.rsplit(") ").next().unwrap_or_default();
        let ticks: u64 =
            numbers.split(' ').skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
        let io = fs::read_to_string("/proc/self/io")?;
        let mib = |name: &str| {
            let line = io.lines().find_map(|line| line.strip_prefix(name));
            let bytes = line.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
            bytes as f64 / f64::from(1 << 20)
        };
        Ok(Used {
            processor_s: ticks as f64 / 100.0,
            read_mib: mib("rchar:"),
            written_mib: mib("wchar:"),
        })
    }

    /// What was used since then.
    pub(crate) fn since(&self, before: &Used) -> Used {
        Used {
            processor_s: self.processor_s - before.processor_s,
            read_mib: self.read_mib - before.read_mib,
            written_mib: self.written_mib - before.written_mib,
        }
    }
}
