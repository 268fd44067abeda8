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
    /// What a wake-up costs where there are several processors, in nanoseconds.
    pub(super) wake_up_of_several: f64,
}

/// From the smallest data to the largest.
pub(super) const TABLES: [CostTable; 3] = [
    CostTable {
        name: "small",
        costs: [
            206.1,     // statement
            0.0,       // row
            28.78,     // value
            34.53,     // text
            23.76,     // answer
            232.25,    // group
            23.47,     // sort
            277.2,     // transaction
            1_953.0,   // request
            0.0,       // page_visit
            24.64,     // comparison
            0.0,       // page_load
            0.0,       // page_write
            29_788.88, // page_split
            137.74,    // lock
            0.0,       // log_record
            0.0,       // log_byte
            2_159.15,  // wake_up
            12_757.95, // idle_wake_up
            1_130.73,  // system_call
        ],
        client: 4_203.3,
        wake_latency: 21_689.35,
        wake_up_of_several: 6_700.0,
    },
    CostTable {
        name: "medium",
        costs: [
            386.86,    // statement
            0.0,       // row
            0.0,       // value
            69.23,     // text
            0.0,       // answer
            148.42,    // group
            24.93,     // sort
            270.65,    // transaction
            1_959.54,  // request
            69.82,     // page_visit
            14.45,     // comparison
            0.0,       // page_load
            6_682.45,  // page_write
            0.0,       // page_split
            177.93,    // lock
            0.0,       // log_record
            0.0,       // log_byte
            2_159.15,  // wake_up
            12_757.95, // idle_wake_up
            954.5,     // system_call
        ],
        client: 4_203.3,
        wake_latency: 21_689.35,
        wake_up_of_several: 6_700.0,
    },
    CostTable {
        name: "large",
        costs: [
            1_493.81,  // statement
            0.0,       // row
            0.0,       // value
            36.91,     // text
            42.24,     // answer
            143.02,    // group
            37.11,     // sort
            292.41,    // transaction
            1_937.79,  // request
            262.02,    // page_visit
            2.67,      // comparison
            0.0,       // page_load
            7_499.5,   // page_write
            0.0,       // page_split
            24.94,     // lock
            0.0,       // log_record
            0.0,       // log_byte
            2_159.15,  // wake_up
            12_757.95, // idle_wake_up
            1_420.45,  // system_call
        ],
        client: 4_203.3,
        wake_latency: 21_689.35,
        wake_up_of_several: 6_700.0,
    },
];
