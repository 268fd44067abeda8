//! What work costs on a processor, by the size of the data; made by `bench/costs.py`, which says
//! how. The processor is AMD EPYC.

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
            187.07,    // statement
            0.0,       // row
            32.25,     // value
            40.34,     // text
            29.17,     // answer
            239.98,    // group
            22.01,     // sort
            229.05,    // transaction
            1_461.85,  // request
            0.0,       // page_visit
            24.57,     // comparison
            0.0,       // page_load
            0.0,       // page_write
            0.0,       // page_split
            147.78,    // lock
            0.0,       // log_record
            0.0,       // log_byte
            2_703.8,   // wake_up
            15_086.43, // idle_wake_up
            1_232.34,  // system_call
        ],
        client: 3_383.3,
        wake_latency: 26_785.15,
    },
    CostTable {
        name: "medium",
        costs: [
            696.54,    // statement
            0.0,       // row
            0.0,       // value
            67.13,     // text
            17.61,     // answer
            155.16,    // group
            36.24,     // sort
            353.13,    // transaction
            1_337.78,  // request
            125.45,    // page_visit
            14.87,     // comparison
            0.0,       // page_load
            10_388.97, // page_write
            0.0,       // page_split
            211.07,    // lock
            0.0,       // log_record
            0.0,       // log_byte
            2_703.8,   // wake_up
            15_086.43, // idle_wake_up
            1_514.29,  // system_call
        ],
        client: 3_383.3,
        wake_latency: 26_785.15,
    },
    CostTable {
        name: "large",
        costs: [
            1_454.42,  // statement
            0.0,       // row
            0.0,       // value
            38.67,     // text
            46.23,     // answer
            142.94,    // group
            35.95,     // sort
            306.09,    // transaction
            1_384.81,  // request
            263.79,    // page_visit
            1.16,      // comparison
            1_774.34,  // page_load
            5_571.87,  // page_write
            0.0,       // page_split
            30.72,     // lock
            0.0,       // log_record
            0.0,       // log_byte
            2_703.8,   // wake_up
            15_086.43, // idle_wake_up
            1_446.68,  // system_call
        ],
        client: 3_383.3,
        wake_latency: 26_785.15,
    },
];
