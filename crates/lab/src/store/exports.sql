-- The tables of an export (docs/results.md, "Exports"), each as a view `export_` + its name. Left
-- out is what is taken from the JSON in the last column of `export_executions` (a workload),
-- `export_histograms` and `export_phases` (a report), and from the file of `export_experiment`.
-- This is a step of the schema: once released, it is never changed.

-- Which execution an attempt that counts is of, and which host measured it.
CREATE VIEW measured_execution AS
SELECT r.experiment, r.number AS run, b.number AS batchset, x.mpl, x.repetition,
       x.id AS execution, k.host, m.attempt
FROM run r
JOIN batchset b ON b.run = r.id
JOIN execution x ON x.batchset = b.id
JOIN measurement m ON m.execution = x.id
JOIN attempt a ON a.id = m.attempt
JOIN start s ON s.id = a.start
JOIN machine k ON k.id = s.machine;

CREATE VIEW export_experiment AS
SELECT e.id AS experiment, e.name, e.scenario, e.preset, e.subjects, e.seed, e.began_us, k.host,
       k.cpu, k.processors AS machine_processors, k.memory_mib, k.kernel, c.version AS tidegate,
       c.build, e.file
FROM experiment e
JOIN machine k ON k.id = e.machine
JOIN code c ON c.id = e.code;

CREATE VIEW export_executions AS
SELECT r.experiment, r.number AS run, b.number AS batchset, x.mpl, x.repetition,
       x.id AS execution, k.host, e.name, e.scenario, e.preset, r.subject,
       r.processors AS processors_planned, r.primary_key, r.isolation,
       r.settings AS settings_planned, b.workload, b.treatment,
       CAST((SELECT COUNT(*) FROM attempt t WHERE t.execution = x.id) AS bigint) AS attempts,
       CAST((SELECT COUNT(*) FROM failure f, attempt t
             WHERE f.attempt = t.id AND t.execution = x.id) AS bigint) AS failures,
       m.attempt, a.seed, a.began_us, m.ended_us, s.version, s.settings, m.processors, k.cpu,
       k.processors AS machine_processors, k.memory_mib, k.kernel, c.version AS tidegate, c.build,
       m.connect_s, m.seconds, m.clients, m.transactions, m.tps, m.mean_ms, m.p50_ms, m.p95_ms,
       m.p99_ms, m.max_ms, m.retries, m.stragglers, m.overdue, m.connection_losses,
       m.client_cpu_us, m.client_core_share, m.subject_cpu_us, m.subject_core_share,
       m.other_executors, b.spec AS workload_values
FROM run r
JOIN batchset b ON b.run = r.id
JOIN execution x ON x.batchset = b.id
JOIN experiment e ON e.id = r.experiment
LEFT JOIN measurement m ON m.execution = x.id
LEFT JOIN attempt a ON a.id = m.attempt
LEFT JOIN start s ON s.id = a.start
LEFT JOIN machine k ON k.id = s.machine
LEFT JOIN code c ON c.id = s.code;

CREATE VIEW export_attempts AS
SELECT r.experiment, r.number AS run, b.number AS batchset, x.mpl, x.repetition,
       x.id AS execution, k.host, a.id AS attempt, a.number, a.seed, a.began_us, s.version, k.cpu,
       k.kernel, c.version AS tidegate, c.build,
       CAST(CASE WHEN m.attempt IS NOT NULL THEN 'measured'
                 WHEN t.attempt IS NOT NULL THEN 'superseded'
                 WHEN f.attempt IS NOT NULL THEN 'failed' ELSE 'cut off' END AS text) AS outcome,
       f.reason
FROM run r
JOIN batchset b ON b.run = r.id
JOIN execution x ON x.batchset = b.id
JOIN attempt a ON a.execution = x.id
JOIN start s ON s.id = a.start
JOIN machine k ON k.id = s.machine
JOIN code c ON c.id = s.code
LEFT JOIN measurement m ON m.attempt = a.id
LEFT JOIN measurement_taken t ON t.attempt = a.id
LEFT JOIN failure f ON f.attempt = a.id;

CREATE VIEW export_kinds AS
SELECT p.experiment, p.run, p.batchset, p.mpl, p.repetition, p.execution, p.host, q.workload,
       q.kind, q.committed, q.rolled_back, q.mean_ms, q.p50_ms, q.p95_ms, q.p99_ms, q.max_ms
FROM measured_execution p
JOIN kind q ON q.attempt = p.attempt;

CREATE VIEW export_phases AS
SELECT p.experiment, p.run, p.batchset, p.mpl, p.repetition, p.execution, p.host, m.report
FROM measured_execution p
JOIN measurement_taken m ON m.attempt = p.attempt;

CREATE VIEW export_intervals AS
SELECT p.experiment, p.run, p.batchset, p.mpl, p.repetition, p.execution, p.host,
       i.number AS "interval", i.until_s, i.transactions, i.mean_ms, i.p99_ms
FROM measured_execution p
JOIN interval_seen i ON i.attempt = p.attempt;

CREATE VIEW export_interval_kinds AS
SELECT p.experiment, p.run, p.batchset, p.mpl, p.repetition, p.execution, p.host,
       q.number AS "interval", q.workload, q.kind, i.until_s, q.transactions, q.mean_ms, q.p99_ms
FROM measured_execution p
JOIN interval_seen i ON i.attempt = p.attempt
JOIN interval_kind q ON q.attempt = i.attempt AND q.number = i.number;

CREATE VIEW export_histograms AS
SELECT p.experiment, p.run, p.batchset, p.mpl, p.repetition, p.execution, p.host,
       i.number AS "interval", i.histogram
FROM measured_execution p
JOIN interval_seen i ON i.attempt = p.attempt;

CREATE VIEW export_limits AS
SELECT p.experiment, p.run, p.batchset, p.mpl, p.repetition, p.execution, p.host, l.number, l.at_s,
       l.interval_s, l.mpl AS "limit", l.next_mpl AS next_limit, l.reason, l.tps, l.concurrency
FROM measured_execution p
JOIN limit_seen l ON l.attempt = p.attempt;

CREATE VIEW export_classes AS
SELECT p.experiment, p.run, p.batchset, p.mpl, p.repetition, p.execution, p.host, q.class,
       q.transactions, q.mean_ms, q.p50_ms, q.p95_ms, q.p99_ms, q.max_ms
FROM measured_execution p
JOIN class_seen q ON q.attempt = p.attempt;

CREATE VIEW export_trees AS
SELECT p.experiment, p.run, p.batchset, p.mpl, p.repetition, p.execution, p.host,
       t.number AS look, t.tree, t.at_s, t.leaves, t.entries, t.fill, t.logical_reads,
       t.physical_reads, t.writes, t.fills
FROM measured_execution p
JOIN tree_seen t ON t.attempt = p.attempt;

CREATE VIEW export_troubles AS
SELECT p.experiment, p.run, p.batchset, p.mpl, p.repetition, p.execution, p.host,
       t.kind AS trouble, t.what, t.times
FROM measured_execution p
JOIN trouble t ON t.attempt = p.attempt;

CREATE VIEW export_conditions AS
SELECT r.experiment, r.number AS run, b.number AS batchset, y.id AS "check", y.start, k.host,
       y.condition,
       CAST(CASE WHEN y.violation IS NULL THEN 1 ELSE 0 END AS integer) AS holds, y.violation
FROM run r
JOIN batchset b ON b.run = r.id
JOIN consistency y ON y.batchset = b.id
JOIN start s ON s.id = y.start
JOIN machine k ON k.id = s.machine;

CREATE VIEW export_analyses AS
SELECT y.experiment, y.id AS analysis, y.protocol, y.rule, y.found_us, c.version AS tidegate,
       c.build
FROM analysis y
JOIN code c ON c.id = y.code;

CREATE VIEW export_tap_counts AS
SELECT y.experiment, y.id AS analysis, q.step, q.name, q.part, q.level, q.number, q.checked,
       q.found, q.batchsets
FROM analysis y
JOIN tap_count q ON q.analysis = y.id;

CREATE VIEW export_tap_drops AS
SELECT r.experiment, r.number AS run, b.number AS batchset, x.mpl, x.repetition,
       x.id AS execution, d.analysis, d.step, d.name, d.why
FROM run r
JOIN batchset b ON b.run = r.id
JOIN tap_drop d ON d.batchset = b.id
LEFT JOIN execution x ON x.id = d.execution;

CREATE VIEW export_thrashing_points AS
SELECT r.experiment, r.number AS run, b.number AS batchset, p.id, p.analysis, p.found_us,
       p.protocol, p.rule, p.mpl AS thrashing_point, p.low, p.high, p.atpt_ms, p.caveats
FROM run r
JOIN batchset b ON b.run = r.id
JOIN thrashing_point p ON p.batchset = b.id;
