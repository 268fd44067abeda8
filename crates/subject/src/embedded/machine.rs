//! The embedded engine on a machine in virtual time: what the machine consists of, by settings.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_runtime::work::{Costs, Operation};
use tidegate_runtime::{Discipline, Hardware, Service};

use super::Options;
use super::costs::{self, CostTable};
use crate::settings::{SettingError, Settings, unknown, wrong};

const DBMS: &str = "the embedded engine in virtual time";

const KNOWN: &str = "buffer_bytes, costs, and the costs of work in nanoseconds: statement_ns, \
                     row_ns, value_ns, text_ns, answer_ns, group_ns, sort_ns, transaction_ns, \
                     request_ns, page_visit_ns, comparison_ns, page_load_ns, page_write_ns, \
                     page_split_ns, lock_ns, log_record_ns, log_byte_ns, wake_up_ns, \
                     idle_wake_up_ns, system_call_ns, \
                     node_read_ns, node_write_ns";

/// The costs where the settings name no others.
const USUAL: &str = "medium";

/// What the names of the machine's parts begin with among the settings.
pub const MACHINE: &str = "machine.";

/// The names of the parts behind that, but for the processors, which are apart.
pub const PARTS: [&str; 7] =
    ["quantum", "data_disks", "stripe_bytes", "data_disk", "log_disk", "network", "clients"];

/// A disk with an arm: 7,200 turns a minute, seeks of 0.5 to 16.5 ms, 100 MB/s.
const HDD: Service = Service::Rotating {
    seek_min: Duration::from_micros(500),
    seek_max: Duration::from_micros(16_500),
    revolution: Duration::from_micros(8_333),
    bytes_per_s: 1e8,
};

/// A disk of flash memory: 100 µs, 500 MB/s.
const SSD: Service = Service::Constant { latency: Duration::from_micros(100), bytes_per_s: 5e8 };

/// A store's options, and the machine that it is on.
#[derive(Clone, Debug)]
pub struct MachineOptions {
    /// The store's.
    pub store: Options,
    /// The machine's.
    pub hardware: Hardware,
    /// Its clients' way to it.
    pub requests: RequestTimes,
}

/// What a client's request to the embedded engine takes on a machine in virtual time beside the
/// engine's work. A transaction is one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// Time on the network: half of it before the request arrives, half after its answer.
    pub network: Duration,
    /// Processor time of the client on the machine's processors, before each request. `None` if
    /// clients are beside the machine and take none of its processors.
    pub client: Option<Duration>,
}

impl MachineOptions {
    /// Returns what settings say of a machine with so many processors. The machine's parts have
    /// names that begin with [`MACHINE`]:
    ///
    /// | part | values | default |
    /// | --- | --- | --- |
    /// | `quantum` | `none`, for processors that are shared equally, or a time | `none` |
    /// | `data_disks` | number of disks over which pages are striped | 1 |
    /// | `stripe_bytes` | bytes of a stripe | 65536 |
    /// | `data_disk` | `none`, `hdd`, `ssd`, or the time of each transfer, such as `8ms` | `none` |
    /// | `log_disk` | the same for the log | `2ms` |
    /// | `network` | `none`, or the time of each request on the network | `none` |
    /// | `clients` | `beside`, `on`, or a client's processor time for each request | `beside` |
    ///
    /// `costs` says on which data work costs what it does: `small`, `medium`, which is the default,
    /// or `large`; settings in nanoseconds, such as `lock_ns`, replace single costs.
    ///
    /// # Errors
    /// A name that there is not, or a value that is not one.
    pub fn new(settings: &Settings, processors: u32) -> Result<MachineOptions, SettingError> {
        let mut hardware = Hardware::with_processors(processors.max(1));
        hardware.log = service("log_disk", "2ms")?;
        let costs = settings.named.get("costs").map_or(USUAL, String::as_str);
        let CostTable { costs, client, wake_latency, .. } = cost_table(costs)?;
        hardware.costs = Costs(*costs);
        hardware.wake_latency = Duration::from_secs_f64(wake_latency * 1e-9);
        let client = Duration::from_secs_f64(client * 1e-9);
        let mut requests = RequestTimes::default();
        let mut of_store = BTreeMap::new();
        for (name, value) in &settings.named {
            match name.strip_prefix(MACHINE) {
                Some("clients") => requests.client = client_time(value, client)?,
                Some(part) => set_part(&mut hardware, &mut requests, part, value)?,
                None if PARTS.contains(&name.as_str()) => {
                    return Err(SettingError::Part { name: name.clone() });
                }
                None if name == "buffer_bytes" => {
                    of_store.insert(name.clone(), value.clone());
                }
                None if name == "costs" => {}
                None => set_cost(&mut hardware.costs, name, value)?,
            }
        }
        let of_store = Settings { named: of_store, ..settings.clone() };
        Ok(MachineOptions { store: Options::new(&of_store)?, hardware, requests })
    }
}

fn set_part(
    hardware: &mut Hardware,
    requests: &mut RequestTimes,
    part: &str,
    value: &str,
) -> Result<(), SettingError> {
    match part {
        "quantum" => {
            hardware.discipline = match time(part, value)? {
                Duration::ZERO => Discipline::Sharing,
                quantum => Discipline::Quantum(quantum),
            }
        }
        "data_disks" => hardware.data_disks = count(part, value)?,
        "stripe_bytes" => hardware.stripe_bytes = count(part, value)?.into(),
        "data_disk" => hardware.data = service(part, value)?,
        "log_disk" => hardware.log = service(part, value)?,
        "network" => requests.network = time(part, value)?,
        other => return Err(unknown(DBMS, other, "the parts that `[machine]` has")),
    }
    Ok(())
}

fn cost_table(name: &str) -> Result<&'static CostTable, SettingError> {
    let found = costs::TABLES.iter().find(|table| table.name == name);
    found.ok_or_else(|| wrong("costs", name, "small, medium or large"))
}

fn set_cost(costs: &mut Costs, name: &str, value: &str) -> Result<(), SettingError> {
    let named = |operation: &&Operation| name.strip_suffix("_ns") == Some(operation.name());
    let operation = Operation::ALL.iter().find(named);
    let operation = operation.ok_or_else(|| unknown(DBMS, name, KNOWN))?;
    let cost = value.parse().ok().filter(|cost: &f64| cost.is_finite() && *cost >= 0.0);
    costs.0[*operation as usize] =
        cost.ok_or_else(|| wrong(name, value, "a number of nanoseconds, 0 or above"))?;
    Ok(())
}

fn count(name: &str, value: &str) -> Result<u32, SettingError> {
    let count = value.parse().ok().filter(|count| *count >= 1);
    count.ok_or_else(|| wrong(name, value, "a whole number of at least 1"))
}

/// Reads a number with the unit of its time, up to an hour.
fn duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 4] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, unit) = UNITS.iter().find_map(|(unit, seconds)| {
        Some((text.strip_suffix(unit)?.trim().parse::<f64>().ok()?, seconds))
    })?;
    let seconds = number * unit;
    (0.0..=3_600.0).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

fn time(name: &str, value: &str) -> Result<Duration, SettingError> {
    let time = if value == "none" { Some(Duration::ZERO) } else { duration(value) };
    time.ok_or_else(|| wrong(name, value, "none, or a time such as 3ms"))
}

/// Reads what a client takes for each request; `usual` where it is only said that it takes some.
fn client_time(value: &str, usual: Duration) -> Result<Option<Duration>, SettingError> {
    Ok(match value {
        "beside" => None,
        "on" => Some(usual),
        other => Some(duration(other).ok_or_else(|| {
            wrong("clients", value, "beside, on, or the processor time of a request such as 20us")
        })?),
    })
}

fn service(name: &str, value: &str) -> Result<Service, SettingError> {
    Ok(match value {
        "none" => Service::None,
        "hdd" => HDD,
        "ssd" => SSD,
        other => {
            let latency = duration(other)
                .ok_or_else(|| wrong(name, value, "none, hdd, ssd, or a time such as 8ms"))?;
            Service::Constant { latency, bytes_per_s: f64::INFINITY }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(named: &[(&str, &str)]) -> Result<MachineOptions, SettingError> {
        let named = named.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        MachineOptions::new(&Settings { named, ..Settings::default() }, 3)
    }

    #[test]
    fn settings_say_what_the_machine_consists_of() {
        let found = options(&[
            ("machine.data_disks", "4"),
            ("machine.data_disk", "hdd"),
            ("machine.log_disk", "1.5ms"),
            ("machine.quantum", "3ms"),
            ("machine.network", "0.5ms"),
            ("machine.clients", "20us"),
            ("lock_ns", "99.5"),
            ("costs", "large"),
            ("buffer_bytes", "65536"),
        ])
        .unwrap();
        let Hardware { processors, discipline, data_disks, data, log, costs, .. } = found.hardware;
        assert_eq!((processors, data_disks, data), (3, 4, HDD));
        assert_eq!(discipline, Discipline::Quantum(Duration::from_millis(3)));
        let latency = Duration::from_micros(1_500);
        assert_eq!(log, Service::Constant { latency, bytes_per_s: f64::INFINITY });
        assert!((costs.0[Operation::Lock as usize] - 99.5).abs() < 1e-9);
        let of_large = cost_table("large").unwrap().costs[Operation::Statement as usize];
        assert!((costs.0[Operation::Statement as usize] - of_large).abs() < 1e-9);
        assert_eq!(found.store.buffer_bytes, 65_536);
        let (network, client) = (Duration::from_micros(500), Some(Duration::from_micros(20)));
        assert_eq!(found.requests, RequestTimes { network, client });
    }

    #[test]
    fn what_is_said_of_no_part_is_the_plain_machine() {
        let plain = [
            ("machine.quantum", "none"),
            ("machine.data_disks", "1"),
            ("machine.stripe_bytes", "65536"),
            ("machine.data_disk", "none"),
            ("machine.log_disk", "2ms"),
            ("machine.network", "none"),
            ("machine.clients", "beside"),
        ];
        assert_eq!(plain.len(), PARTS.len());
        let (said, silent) = (options(&plain).unwrap(), options(&[]).unwrap());
        assert_eq!((said.hardware, said.requests), (silent.hardware, silent.requests));
        let usual = Duration::from_secs_f64(cost_table(USUAL).unwrap().client * 1e-9);
        assert_eq!(options(&[("machine.clients", "on")]).unwrap().requests.client, Some(usual));
    }

    #[test]
    fn what_is_no_setting_is_refused_with_what_there_is() {
        for (name, value, part) in [
            ("disks", "4", "statement_ns"),
            ("machine.disks", "4", "no setting `disks`"),
            ("data_disks", "4", "`data_disks` is a key of `[machine]`"),
            ("machine.data_disks", "0", "at least 1"),
            ("machine.data_disk", "tape", "none, hdd, ssd"),
            ("machine.data_disk", "-8ms", "none, hdd, ssd"),
            ("machine.quantum", "3", "such as 3ms"),
            ("machine.network", "far", "such as 3ms"),
            ("machine.clients", "far", "beside, on"),
            ("lock_ns", "-1", "0 or above"),
            ("lock_ns", "NaN", "0 or above"),
            ("costs", "huge", "small, medium or large"),
            ("buffer_bytes", "many", "number of bytes"),
        ] {
            let error = options(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(part), "{name}: {error}");
        }
    }
}
