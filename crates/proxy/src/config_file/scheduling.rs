//! What the keys about classes say together: `[scheduling]`, `[classes.NAME]`, and those of users
//! and databases.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use tidegate_gate::{Class, ClassName, ClassSettings, Classes, PermitBounds};

use super::{
    ClassSection, ConfigProblem, DatabaseSection, HighPrioritySection, OptionalPeriod,
    SchedulingSection, UserSection, defaults,
};
use crate::scheduling::{ClassChoice, ClassRules, Scheduling, Standing};

/// The sections that say something about classes.
pub(super) struct Sections<'a> {
    pub(super) scheduling: &'a SchedulingSection,
    pub(super) classes: &'a BTreeMap<String, ClassSection>,
    pub(super) high_priority: &'a HighPrioritySection,
    pub(super) users: &'a BTreeMap<String, UserSection>,
    pub(super) databases: &'a BTreeMap<String, DatabaseSection>,
}

impl Sections<'_> {
    /// Returns the classes and the rules.
    pub(super) fn check(&self) -> Result<Arc<Scheduling>, ConfigProblem> {
        let names = self.names()?;
        let section = |name: &ClassName| self.classes.get(name.as_str());
        let settings = |name| settings(name, section(&name));
        let mut quotas = Quotas::default();
        let users = quotas.of("users", self.users, |section: &UserSection| {
            (section.class_choice, section.min_permits, section.max_permits)
        });
        let databases = quotas.of("databases", self.databases, |section: &DatabaseSection| {
            (section.class_choice, section.min_permits, section.max_permits)
        });
        let policy = self.scheduling.policy.unwrap_or_default();
        let of_classes = names.iter().copied().map(settings).collect();
        let classes = Classes::new(policy, of_classes, quotas.bounds)?;
        let standing = |(name, choice, quota): Named| {
            let quota = quota.and_then(|index| classes.quota(index));
            (name, Standing { choice, quota })
        };
        let default_class = match &self.scheduling.default_class {
            Some(name) => classes.find(name).ok_or_else(|| unknown(name, &names)),
            // There is one at least.
            None => Ok(classes.iter().last().map_or(Class::High.into(), |(class, _)| class)),
        }?;
        let users = users.into_iter().map(standing).collect();
        let databases = databases.into_iter().map(standing).collect();
        Ok(Arc::new(Scheduling {
            default_class,
            choice: self.scheduling.class_choice.unwrap_or_default(),
            rules: self.rules(&names)?,
            users,
            databases,
            classes: Arc::new(classes),
        }))
    }

    /// Returns the names of the classes in their order.
    fn names(&self) -> Result<Vec<ClassName>, ConfigProblem> {
        let default = || Class::ALL.map(|class| class.name().to_owned()).to_vec();
        let listed = self.scheduling.classes.clone().unwrap_or_else(default);
        let names: Vec<ClassName> =
            listed.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
        let is_listed = |name: &String| listed.contains(name);
        match self.classes.keys().find(|name| !is_listed(name)) {
            Some(name) => Err(unknown(name, &names)),
            None => Ok(names),
        }
    }

    /// Returns the rules of each class. Each user, database, application and network belongs to
    /// one class only.
    fn rules(&self, names: &[ClassName]) -> Result<Vec<ClassRules>, ConfigProblem> {
        let mut rules = Vec::with_capacity(names.len());
        let mut seen: BTreeMap<(&str, String), ClassName> = BTreeMap::new();
        for &name in names {
            let section = self.classes.get(name.as_str()).cloned().unwrap_or_default();
            let mut of_class = ClassRules {
                users: section.users,
                databases: section.databases,
                applications: section.applications,
                addresses: Vec::new(),
                deadline: section.deadline.and_then(|OptionalPeriod(time)| time),
            };
            if name.as_str() == Class::High.name() {
                of_class.users.extend_from_slice(&self.high_priority.users);
                of_class.applications.extend_from_slice(&self.high_priority.applications);
            }
            let kinds = [
                ("users", &of_class.users),
                ("databases", &of_class.databases),
                ("applications", &of_class.applications),
                ("addresses", &section.addresses),
            ];
            for (kind, list) in kinds {
                for value in list {
                    let first = *seen.entry((kind, value.clone())).or_insert(name);
                    if first != name {
                        let value = value.clone();
                        let (first, second) = (first.to_string(), name.to_string());
                        return Err(ConfigProblem::TwoClasses { kind, value, first, second });
                    }
                }
            }
            for address in &section.addresses {
                of_class.addresses.push(address.parse()?);
            }
            rules.push(of_class);
        }
        let has_high = names.iter().any(|name| name.as_str() == Class::High.name());
        let HighPrioritySection { users, applications } = self.high_priority;
        let is_used = !users.is_empty() || !applications.is_empty();
        if is_used && !has_high {
            return Err(ConfigProblem::NoHighClass);
        }
        Ok(rules)
    }
}

fn unknown(name: &str, names: &[ClassName]) -> ConfigProblem {
    let known: Vec<&str> = names.iter().map(ClassName::as_str).collect();
    ConfigProblem::UnknownClass { class: name.to_owned(), known: known.join(", ") }
}

fn settings(name: ClassName, section: Option<&ClassSection>) -> ClassSettings {
    let section = section.cloned().unwrap_or_default();
    let ageing = section.ageing.map_or(defaults::AGEING, |OptionalPeriod(time)| time);
    ClassSettings {
        name,
        weight: section.weight.unwrap_or(NonZeroU32::MIN),
        ageing,
        permits: PermitBounds { min: section.min_permits.unwrap_or(0), max: section.max_permits },
        waiting_max: section.waiting_max,
        order: section.order.unwrap_or_default(),
    }
}

type Said = (Option<ClassChoice>, Option<u32>, Option<NonZeroU32>);

/// A user or a database: its name, what its clients may choose, and the place of its quota.
type Named = (String, Option<ClassChoice>, Option<usize>);

/// The bounds of users and databases.
#[derive(Default)]
struct Quotas {
    bounds: Vec<(String, PermitBounds)>,
}

impl Quotas {
    /// Reads what the sections of a kind say; those that say nothing are left out.
    fn of<S>(
        &mut self,
        kind: &str,
        sections: &BTreeMap<String, S>,
        said: impl Fn(&S) -> Said,
    ) -> Vec<Named> {
        let mut named = Vec::new();
        for (name, section) in sections {
            let (choice, min, max) = said(section);
            let has_bounds = min.is_some() || max.is_some();
            if choice.is_none() && !has_bounds {
                continue;
            }
            let place = has_bounds.then_some(self.bounds.len());
            if has_bounds {
                let bounds = PermitBounds { min: min.unwrap_or(0), max };
                self.bounds.push((format!("{kind}.{name}"), bounds));
            }
            named.push((name.clone(), choice, place));
        }
        named
    }
}
