//! `xml-locking`: lock protocols on an XML document (study of `BrackitDB`, Sections 4.2 to 4.5).
//!
//! Each combination of the factors is a batchset. Their lists have one value each when nothing is
//! said: taDOM3+ without a bound and without escalation, and of the workload what `workload` says.
//! `x` and `document` lock no nodes but the root, so for them depth and escalation are left out.
//! A policy of escalation that is `none` has no reading.
//!
//! `locking` lists ways to lock as the XML store writes them, as in `taDOM3+/3/aggressive`, in the
//! place of protocols, depths and escalations. `arms` lists such ways of which a controller chooses
//! one beside the limit while it runs.
//!
//! Without `clients` an MPL is a number of clients, as in the study. With it that many wait before
//! a gate, and `control` may list controllers of its limit.

use serde::Deserialize;

use super::{Common, Recipe, Scenario, ScenarioFactors};
use crate::experiment::complaint::Complaint;
use crate::experiment::treatment::{
    Admission, EscalationPolicy, EscalationSpec, LockingSpec, ReadingSpec, Treatment,
};
use crate::experiment::values::{AlgorithmName, Percent};
use crate::experiment::workload::{AccessSpec, WorkloadSpec, XmarkSpec};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct XmlLockingFactors {
    protocol: Option<Vec<String>>,
    locking: Option<Vec<String>>,
    arms: Option<Vec<String>>,
    depth: Option<Vec<DepthName>>,
    escalation: Option<Vec<PolicyName>>,
    /// What the gain of an escalation does.
    reading: Option<Vec<ReadingSpec>>,
    access: Option<Vec<AccessSpec>>,
    preventive: Option<Vec<bool>>,
    /// In per cent.
    skew: Option<Vec<f64>>,
    /// Memory for pages as a share of all pages, in per cent.
    buffer_percent: Option<Vec<Percent>>,
    control: Option<Vec<AlgorithmName>>,
}

/// Reads ways to lock.
fn read_lockings(texts: &[String]) -> Result<Vec<LockingSpec>, Complaint> {
    let read = |text: &String| {
        let wrong = |error| Complaint::about("factors", format!(": {error}"));
        LockingSpec::read(text).map_err(wrong)
    };
    texts.iter().map(read).collect()
}

/// A lock depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a lock depth is a number or \"unbounded\"")]
enum DepthName {
    Level(u32),
    Unbounded(Unbounded),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unbounded {
    Unbounded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PolicyName {
    None,
    Moderate,
    Eager,
    Aggressive,
}

impl PolicyName {
    fn policy(self) -> Option<EscalationPolicy> {
        match self {
            PolicyName::None => None,
            PolicyName::Moderate => Some(EscalationPolicy::Moderate),
            PolicyName::Eager => Some(EscalationPolicy::Eager),
            PolicyName::Aggressive => Some(EscalationPolicy::Aggressive),
        }
    }
}

impl DepthName {
    fn depth(self) -> Option<u32> {
        match self {
            DepthName::Level(level) => Some(level),
            DepthName::Unbounded(Unbounded::Unbounded) => None,
        }
    }
}

impl ScenarioFactors for XmlLockingFactors {
    const NAME: &'static str = "xml-locking";

    fn scenario(self, common: &Common) -> Result<Scenario, Complaint> {
        let WorkloadSpec::Xmark(workload) = common.workload()? else {
            let text = "the scenario xml-locking is for the workload xmark";
            return Err(Complaint::about_content(text));
        };
        if common.buffer.is_some() && self.buffer_percent.is_some() {
            let text = ": the buffer is given by `factors.buffer_percent` already; leave one out";
            return Err(Complaint::about("buffer", text));
        }
        let admissions = match &self.control {
            None => vec![common.fixed()?],
            Some(names) => {
                let controls: Vec<_> = names.iter().map(|name| name.0).collect();
                common.controlled(&controls)?
            }
        };
        let arms = self.arms.as_deref().map(read_lockings).transpose()?.unwrap_or_default();
        if self.arms.is_some() && (self.control.is_none() || arms.is_empty() || arms.len() > 8) {
            let text = " are one to eight ways to lock, and need `control` and `clients`";
            return Err(Complaint::about("factors.arms", text));
        }
        let mut recipes = Vec::new();
        for locking in self.lockings(&arms)? {
            for workload in self.workloads(&workload)? {
                for buffer_percent in self.buffers() {
                    let recipe = |&admission: &Admission| Recipe {
                        workload: WorkloadSpec::Xmark(workload.clone()),
                        treatment: Treatment {
                            admission,
                            locking: Some(locking.clone()),
                            arms: arms.clone(),
                            buffer: common.buffer,
                            buffer_percent,
                            ..Treatment::default()
                        },
                    };
                    recipes.extend(admissions.iter().map(recipe));
                }
            }
        }
        if recipes.is_empty() {
            let text = " leaves no batchset; each list needs a value";
            return Err(Complaint::about("factors", text));
        }
        Ok(Scenario::of::<Self>(recipes))
    }
}

impl XmlLockingFactors {
    /// Returns each way to lock once.
    fn lockings(&self, arms: &[LockingSpec]) -> Result<Vec<LockingSpec>, Complaint> {
        if let Some(texts) = &self.locking {
            return read_lockings(texts);
        }
        if let Some(first) = arms.first() {
            return Ok(vec![first.clone()]);
        }
        let tadom = || vec!["tadom3+".to_owned()];
        let protocols = self.protocol.clone().unwrap_or_else(tadom);
        let depths = self.depth.as_deref().unwrap_or(&[DepthName::Unbounded(Unbounded::Unbounded)]);
        let policies = self.escalation.as_deref().unwrap_or(&[PolicyName::None]);
        let readings = self.reading.as_deref().unwrap_or(&[ReadingSpec::Formula]);
        let mut all: Vec<LockingSpec> = Vec::new();
        for protocol in &protocols {
            let locks_root_only = protocol == "x" || protocol == "document";
            for depth in depths {
                for policy in policies {
                    for &reading in readings {
                        let escalation =
                            policy.policy().map(|policy| EscalationSpec { policy, reading });
                        let locking = LockingSpec {
                            protocol: protocol.clone(),
                            depth: depth.depth().filter(|_| !locks_root_only),
                            escalation: escalation.filter(|_| !locks_root_only),
                        };
                        if !all.contains(&locking) {
                            all.push(locking);
                        }
                    }
                }
            }
        }
        for locking in &all {
            let wrong = |error| Complaint::about("factors.protocol", format!(": {error}"));
            locking.locking().map_err(wrong)?;
        }
        Ok(all)
    }

    /// Returns the workload with each combination of its factors.
    fn workloads(&self, workload: &XmarkSpec) -> Result<Vec<XmarkSpec>, Complaint> {
        let accesses = self.access.clone().unwrap_or_else(|| vec![workload.access]);
        let preventives = self.preventive.clone().unwrap_or_else(|| vec![workload.preventive]);
        let skews = self.skew.clone().unwrap_or_else(|| vec![workload.skew]);
        let mut all = Vec::new();
        for &access in &accesses {
            for &preventive in &preventives {
                for &skew in &skews {
                    all.push(XmarkSpec { skew, access, preventive, ..workload.clone() });
                }
            }
        }
        for workload in &all {
            WorkloadSpec::Xmark(workload.clone()).build()?;
        }
        Ok(all)
    }

    fn buffers(&self) -> Vec<Option<f64>> {
        match &self.buffer_percent {
            None => vec![None],
            Some(shares) => shares.iter().map(|share| Some(share.0)).collect(),
        }
    }
}
