//! What work costs on a processor, by the size of the data.
//!
//! Made by `bench/costs.py`, which says how. The processor is AMD EPYC.
//! Those of nodes are fitted to the medians of the eight transactions of `xmark` with one client,
//! on a machine that was not idle (`docs/results/xml-figures.md`).

use tidegate_runtime::work::OPERATIONS;

/// What work costs on data of a size.
pub(super) struct CostTable {
    pub(super) name: &'static str,
    /// In nanoseconds, in the order of `Operation::ALL`.
    pub(super) costs: [f64; OPERATIONS],
    /// What a client's own work for a transaction takes, in nanoseconds.
    pub(super) client: f64,
    /// How long an idle processor takes until it runs a task that was woken, in nanoseconds.
    pub(super) wake_latency: f64,
}

/// From the smallest data to the largest.
pub(super) const TABLES: [CostTable; 3] = [
    CostTable {
        name: "small",
        costs: [
            165.49,    // statement
            0.0,       // row
            25.43,     // value
            66.34,     // text
            34.24,     // answer
            238.15,    // group
            23.82,     // sort
            346.96,    // transaction
            1_986.43,  // request
            0.0,       // page_visit
            27.38,     // comparison
            0.0,       // page_load
            0.0,       // page_write
            56_906.22, // page_split
            179.31,    // lock
            0.0,       // log_record
            0.0,       // log_byte
            2_200.87,  // wake_up
            16_499.54, // idle_wake_up
            1_553.41,  // system_call
            570.0,     // node_read
            3_200.0,   // node_write
        ],
        client: 4_322.18,
        wake_latency: 26_049.98,
    },
    CostTable {
        name: "medium",
        costs: [
            446.84,    // statement
            0.0,       // row
            0.0,       // value
            75.05,     // text
            0.0,       // answer
            155.34,    // group
            24.36,     // sort
            283.46,    // transaction
            2_049.93,  // request
            70.65,     // page_visit
            14.65,     // comparison
            4_509.4,   // page_load
            847.41,    // page_write
            0.0,       // page_split
            188.57,    // lock
            0.0,       // log_record
            0.0,       // log_byte
            2_200.87,  // wake_up
            16_499.54, // idle_wake_up
            1_195.99,  // system_call
            570.0,     // node_read
            3_200.0,   // node_write
        ],
        client: 4_322.18,
        wake_latency: 26_049.98,
    },
    CostTable {
        name: "large",
        costs: [
            1_381.79,  // statement
            0.0,       // row
            0.0,       // value
            38.53,     // text
            57.08,     // answer
            142.85,    // group
            35.75,     // sort
            271.38,    // transaction
            2_062.01,  // request
            230.33,    // page_visit
            4.45,      // comparison
            820.23,    // page_load
            7_095.33,  // page_write
            0.0,       // page_split
            28.42,     // lock
            0.0,       // log_record
            0.0,       // log_byte
            2_200.87,  // wake_up
            16_499.54, // idle_wake_up
            1_361.36,  // system_call
            570.0,     // node_read
            3_200.0,   // node_write
        ],
        client: 4_322.18,
        wake_latency: 26_049.98,
    },
];
