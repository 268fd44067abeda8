//! Whether what an experiment asks for can be had of its databases, before any of them is started.
//!
//! Its scenario writes out every treatment, and each is held against each database: who can hold a
//! limit, whose memory can be changed while it runs, how many clients find room, how long a list of
//! rows it takes. What would plan nothing, or more than a store and a machine hold, is refused,
//! too. An experiment that was begun is not asked again: what it measured is to be had, whatever
//! newer programs refuse.
//!
//! How many processors there are is asked apart, because a file can be read on another machine than
//! it is run on.

use std::collections::BTreeSet;

use tidegate_subject::database::Gate;
use tidegate_subject::processors::Processors;
use tidegate_subject::settings::plain_name;
use tidegate_workload::workload::Unfit;

use super::complaint::Complaint;
use super::scenarios::Recipe;
use super::treatment::{Admission, Exchange, PriorityShare, Treatment};
use super::{Experiment, Subject, SubjectKind};
use crate::load::CLIENTS_MAX;
use crate::rig::{LIMIT_MAX, MAX_CLIENTS, gated_names};

/// The most executions of an experiment; the largest published has 70,000.
const EXECUTIONS_MAX: u64 = 1_000_000;

/// Refuses an experiment of which a part cannot be executed; the complaint names the key.
pub(super) fn refuse_unfit(experiment: &Experiment) -> Result<(), Complaint> {
    refuse_twice(experiment)?;
    refuse_processors_of_machine(experiment)?;
    let recipes: Vec<&Recipe> =
        experiment.scenario.runs.iter().flat_map(|(_, recipes)| recipes).collect();
    refuse_number(experiment, recipes.len())?;
    if experiment.connect.is_zero() {
        return Err(Complaint::about("connect", " must be longer than nothing"));
    }
    for subject in &experiment.subjects {
        for recipe in &recipes {
            refuse_treatment(subject, &recipe.treatment)?;
            refuse_workloads(subject, recipe)?;
            let mpls = experiment.mpls.iter();
            mpls.copied().try_for_each(|mpl| refuse_level(subject, &recipe.treatment, mpl))?;
        }
    }
    Ok(())
}

/// Refuses an experiment that plans nothing, or more than can be written down. `batchsets` are
/// those of a subject with so many processors, of all its runs.
fn refuse_number(experiment: &Experiment, batchsets: usize) -> Result<(), Complaint> {
    let processors = experiment.processors.as_ref().map_or(1, Vec::len);
    if processors == 0 {
        let text = " is empty; leave it out for all that there are";
        return Err(Complaint::about("processors", text));
    }
    let configurations = experiment.subjects.iter().map(|subject| match subject.kind {
        SubjectKind::Machine => experiment.machine.count(),
        _ => processors as u64,
    });
    let configurations = configurations.fold(0, u64::saturating_add);
    let parts = [batchsets as u64, experiment.mpls.len() as u64];
    let batches = parts.into_iter().fold(configurations, u64::saturating_mul);
    let executions = batches.saturating_mul(experiment.repetitions.into());
    if executions > EXECUTIONS_MAX {
        let text = format!(
            "`repetitions` times the levels of `mpl`: {executions} executions are more than the \
             {EXECUTIONS_MAX} that an experiment may have"
        );
        return Err(Complaint::about_one_of(&["repetitions", "mpl"], text));
    }
    Ok(())
}

/// Refuses a database that is named twice, because there is one table of settings and one place
/// for each. The simulated one has neither.
fn refuse_twice(experiment: &Experiment) -> Result<(), Complaint> {
    let kinds = experiment.subjects.iter().map(|subject| subject.kind);
    let mut seen = BTreeSet::new();
    let mut real = kinds.filter(|&kind| kind != SubjectKind::Simulated);
    match real.find(|&kind| !seen.insert(kind)) {
        None => Ok(()),
        Some(kind) => {
            let text =
                format!(" names {kind} twice; an experiment has one of a kind, so make it two");
            Err(Complaint::about("subjects", text))
        }
    }
}

/// Refuses `processors` where they say nothing, or where one might think that they are those of the
/// machine in virtual time.
fn refuse_processors_of_machine(experiment: &Experiment) -> Result<(), Complaint> {
    let is_machine = |subject: &Subject| subject.kind == SubjectKind::Machine;
    let are_heard = !experiment.subjects.iter().all(is_machine);
    let are_doubtful =
        experiment.subjects.iter().any(is_machine) && !experiment.machine.has_processors();
    if experiment.processors.is_none() || (are_heard && !are_doubtful) {
        return Ok(());
    }
    let text = ": a machine in virtual time has those of `machine.processors`; name them there";
    Err(Complaint::about_key("processors", text))
}

fn refuse_treatment(subject: &Subject, treatment: &Treatment) -> Result<(), Complaint> {
    let kind = subject.kind;
    let is_limited = treatment.admission != Admission::Clients;
    if is_limited && !has_gate(kind) {
        let text = format!(
            ": nothing can hold a limit before {kind}; leave `clients` and controllers out, or \
             take {}",
            gated_names()
        );
        return Err(Complaint::about("clients", text));
    }
    refuse_priorities(kind, treatment)?;
    let is_exchanged = matches!(treatment.exchange, Some(Exchange::Buffer(_)));
    let split = treatment.aging.and_then(|aging| aging.split);
    let is_probed = treatment.buffer.is_some() || is_exchanged || split.is_some();
    if is_probed && !kind.dbms().is_none_or(|dbms| dbms.gate == Gate::Own) {
        let text = format!(
            "`buffer`, `factors.buffers`, `factors.then_buffer`, `factors.split` are for the \
             embedded engine; give {kind} its memory by `subject.{kind}.settings`"
        );
        let keys = ["buffer", "factors.buffers", "factors.then_buffer", "factors.split"];
        return Err(Complaint::about_one_of(&keys, text));
    }
    Ok(())
}

/// Refuses priorities past the gate of a subject that has none.
fn refuse_priorities(kind: SubjectKind, treatment: &Treatment) -> Result<(), Complaint> {
    let Some(PriorityShare { locks, processors, .. }) = treatment.priority else { return Ok(()) };
    if locks && !kind.dbms().is_none_or(|dbms| dbms.gate == Gate::Own) {
        let text = format!(
            ": only the embedded engine has priorities in lock queues, not {kind}; leave it out, \
             or give [false]"
        );
        return Err(Complaint::about("factors.locks", text));
    }
    if processors && matches!(kind, SubjectKind::Plain(_) | SubjectKind::ThroughTidegate(_)) {
        let text = format!(
            ": only a machine in virtual time has them, not {kind}; take \
             embedded-in-virtual-time, or give [false]"
        );
        return Err(Complaint::about("factors.processors", text));
    }
    Ok(())
}

fn refuse_workloads(subject: &Subject, recipe: &Recipe) -> Result<(), Complaint> {
    let Some(dbms) = subject.kind.dbms() else { return Ok(()) };
    for spec in recipe.treatment.workloads(&recipe.workload) {
        let workload = spec.build()?;
        let has_document = workload.auction_site().is_some();
        let fit = match dbms.dialect {
            Some(_) if has_document && subject.kind == SubjectKind::Machine => Ok(()),
            Some(dialect) => workload.validate(dialect),
            None if has_document => Ok(()),
            None => Err(Unfit(format!(
                "it has documents and no SQL; take the workload xmark in the place of {}",
                workload.name()
            ))),
        };
        let unfit = |unfit| Complaint::about_content(format!("{}: {unfit}", subject.kind));
        fit.map_err(unfit)?;
    }
    Ok(())
}

/// Whether something holds limits before a database: a proxy, or the engine's own gate.
fn has_gate(kind: SubjectKind) -> bool {
    kind.dbms().is_none_or(|dbms| dbms.gate != Gate::None)
}

fn refuse_level(subject: &Subject, treatment: &Treatment, mpl: u32) -> Result<(), Complaint> {
    let clients = treatment.clients(mpl);
    if clients > CLIENTS_MAX {
        let key = if treatment.admission == Admission::Clients { "mpl" } else { "clients" };
        let text =
            format!(": {clients} clients are more than the {CLIENTS_MAX} that a load may have");
        return Err(Complaint::about(key, text));
    }
    if treatment.admission != Admission::Clients && mpl > LIMIT_MAX {
        let text = format!(": {mpl} is above the highest limit, {LIMIT_MAX}");
        return Err(Complaint::about("mpl", text));
    }
    refuse_connections(subject, mpl)
}

/// Refuses a level above the connections that a private server takes: as many as the file lets it,
/// or as the laboratory does.
fn refuse_connections(subject: &Subject, mpl: u32) -> Result<(), Complaint> {
    let SubjectKind::Plain(dbms) = subject.kind else { return Ok(()) };
    let (kind, Some(limit), None) = (subject.kind, dbms.connections, &subject.place) else {
        return Ok(());
    };
    let mut settings = subject.settings.named.iter();
    let given = settings.rfind(|(name, _)| plain_name(name) == limit);
    let Some((_, value)) = given else {
        let room = MAX_CLIENTS;
        if mpl as usize <= room {
            return Ok(());
        }
        let text = format!(
            ": {mpl} clients are more than the {room} that {kind} is started for; give it \
             `{limit}` in `subject.{kind}.settings`"
        );
        return Err(Complaint::about("mpl", text));
    };
    // A value that is no number is for the server to refuse.
    match value.trim().parse::<u32>() {
        Ok(room) if mpl > room => {
            let text =
                format!(": {mpl} is above the `{limit}` of {room} in `subject.{kind}.settings`");
            Err(Complaint::about("mpl", text))
        }
        _ => Ok(()),
    }
}

/// Refuses an experiment that wants more processors than there are here.
pub(super) fn refuse_processors(experiment: &Experiment) -> Result<(), Complaint> {
    let is_real = |subject: &Subject| !subject.kind.is_virtual();
    let Some(counts) = experiment.processors.as_ref() else { return Ok(()) };
    if !experiment.subjects.iter().any(is_real) {
        return Ok(());
    }
    let available = Processors::available();
    let wrong = |text: String| Complaint::about("processors", text);
    let available = available.map_err(|error| wrong(format!(": {error}")))?.count();
    match counts.iter().find(|&&count| usize::try_from(count).is_ok_and(|count| count > available))
    {
        None => Ok(()),
        Some(count) => Err(wrong(format!(": {count} are wanted, but {available} are here"))),
    }
}
