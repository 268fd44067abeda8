//! Which class a transaction is of, and when it has to be done.
//!
//! A class belongs to a transaction and not to a connection, so it is found for each of them, by
//! these rules; the first that says something decides:
//!
//! | rule | where it is |
//! | --- | --- |
//! | a comment of the first statement ([`outline`]) | the client's text |
//! | `SET tidegate.class` | the client's session, also by its start-up options |
//! | the user | `users` of a class |
//! | the database | `databases` of a class |
//! | `application_name` as it is now | `applications` of a class |
//! | the address of the client | `addresses` of a class |
//! | `default_class` | |
//!
//! The first two are the client's own choice, which [`ClassChoice`] bounds for all, for a database
//! or for a user. What a client may not choose, or names and there is not, is ignored and counted;
//! then the next rule decides.

pub(crate) mod expected;
pub(crate) mod outline;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_gate::{ClassId, ClassName, Classes, QuotaId, Quotas};

use crate::config_file::ValueError;
use crate::network::Network;
use crate::settings::Settings;
use outline::{Hint, Unreadable};

/// The setting by which a session names its class.
pub(crate) const CLASS_SETTING: &str = "tidegate.class";

/// The setting by which a session says within which time its transactions have to be done.
pub(crate) const DEADLINE_SETTING: &str = "tidegate.deadline";

/// The settings by which clients choose.
pub(crate) const OWN_SETTINGS: [&str; 2] = [CLASS_SETTING, DEADLINE_SETTING];

/// Which class clients may choose for their transactions, beside the one that the rules give them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClassChoice {
    /// Every class.
    #[default]
    Any,
    /// Classes that come later in the order than that of the rules.
    Lower,
    /// None: what they say is ignored, deadlines too.
    None,
}

impl FromStr for ClassChoice {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<ClassChoice, ValueError> {
        match text {
            "any" => Ok(ClassChoice::Any),
            "lower" => Ok(ClassChoice::Lower),
            "none" => Ok(ClassChoice::None),
            _ => Err(ValueError::new(text, "any, lower or none")),
        }
    }
}

impl fmt::Display for ClassChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ClassChoice::Any => "any",
            ClassChoice::Lower => "lower",
            ClassChoice::None => "none",
        })
    }
}

/// Which transactions are of a class, and within which time they have to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassRules {
    /// Users, as clients name themselves.
    pub users: Vec<String>,
    /// Databases, as clients name them.
    pub databases: Vec<String>,
    /// Values of `application_name`.
    pub applications: Vec<String>,
    /// Where clients are.
    pub(crate) addresses: Vec<Network>,
    /// Within which time a transaction has to be done unless it says so itself.
    pub deadline: Option<Duration>,
}

/// What is said of one user or one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// What its clients may choose; `None` is as for all.
    pub choice: Option<ClassChoice>,
    /// What bounds its permits.
    pub quota: Option<QuotaId>,
}

/// The classes and the rules.
#[derive(Clone, Debug)]
pub struct Scheduling {
    /// The classes of every gate.
    pub classes: Arc<Classes>,
    /// The class of transactions to which no rule applies.
    pub default_class: ClassId,
    /// What clients may choose.
    pub choice: ClassChoice,
    /// For each class, in their order.
    pub rules: Vec<ClassRules>,
    /// Of users, by the name that clients give.
    pub users: BTreeMap<String, Standing>,
    /// Of databases, by their key in the configuration.
    pub databases: BTreeMap<String, Standing>,
}

/// What is known of a client's class for as long as it is connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    by_name: Option<ClassId>,
    by_address: Option<ClassId>,
    default: ClassId,
    choice: ClassChoice,
    pub(crate) quotas: Quotas,
}

impl Identity {
    /// Returns the class of the client's transactions where the other rules say nothing.
    pub(crate) fn usual_class(&self) -> ClassId {
        self.by_name.or(self.by_address).unwrap_or(self.default)
    }
}

/// Why what a client has chosen is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IgnoredChoice {
    /// There is no such class, or it is no time.
    Unknown,
    /// It may not choose it.
    Forbidden,
}

/// What the rules say of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Classified {
    pub(crate) class: ClassId,
    /// Within which time it has to be done.
    pub(crate) within: Option<Duration>,
    /// Something that the client has chosen is ignored.
    pub(crate) ignored: Option<IgnoredChoice>,
}

impl Scheduling {
    fn named(&self, has: impl Fn(&ClassRules) -> bool) -> Option<ClassId> {
        self.rules.iter().position(has).and_then(ClassId::of_index)
    }

    /// Returns what is known of a client: its user, the database as it names it and the key of its
    /// entry, and where it is.
    pub(crate) fn identity(
        &self,
        user: &str,
        (database, key): (&str, &str),
        peer: Option<IpAddr>,
    ) -> Identity {
        let has = |names: &[String], name: &str| names.iter().any(|it| it == name);
        let by_user = self.named(|rules| has(&rules.users, user));
        let by_database = || self.named(|rules| has(&rules.databases, database));
        let of_user = self.users.get(user).copied().unwrap_or_default();
        let of_database = self.databases.get(key).copied().unwrap_or_default();
        let by_address = peer.and_then(|peer| {
            self.named(|rules| rules.addresses.iter().any(|network| network.contains(peer)))
        });
        Identity {
            by_name: by_user.or_else(by_database),
            by_address,
            default: self.default_class,
            choice: of_user.choice.or(of_database.choice).unwrap_or(self.choice),
            quotas: [of_user.quota, of_database.quota],
        }
    }

    /// Returns the class of a client's transaction.
    pub(crate) fn classify(
        &self,
        identity: &Identity,
        settings: &Settings,
        hint: Option<&Hint>,
    ) -> Classified {
        let by_application = || {
            let application = settings.application_name();
            let has = |rules: &ClassRules| rules.applications.iter().any(|it| it == application);
            if application.is_empty() { None } else { self.named(has) }
        };
        let ruled = identity.by_name.or_else(by_application).or(identity.by_address);
        let mut classified =
            Classified { class: ruled.unwrap_or(self.default_class), within: None, ignored: None };
        let (ruled, mut is_chosen) = (classified.class, false);
        let by_comment = hint.and_then(|hint| hint.class);
        let by_setting = settings.get(CLASS_SETTING).filter(|name| !name.is_empty());
        let by_setting = by_setting.map(outline::class);
        for name in by_comment.into_iter().chain(by_setting) {
            match self.chosen(identity.choice, ruled, name) {
                Ok(class) if !is_chosen => (classified.class, is_chosen) = (class, true),
                Ok(_) => {}
                Err(why) => classified.ignored = Some(why),
            }
        }
        let by_comment = hint.and_then(|hint| hint.within);
        let by_setting = settings.get(DEADLINE_SETTING).filter(|text| !text.is_empty());
        let by_setting = by_setting.map(outline::within);
        match by_comment.or(by_setting) {
            Some(_) if identity.choice == ClassChoice::None => {
                classified.ignored = Some(IgnoredChoice::Forbidden);
            }
            Some(Err(Unreadable)) => classified.ignored = Some(IgnoredChoice::Unknown),
            Some(Ok(within)) => classified.within = Some(within),
            None => {}
        }
        let of_class = self.rules.get(classified.class.index()).and_then(|rules| rules.deadline);
        classified.within = classified.within.or(of_class);
        classified
    }

    /// Returns the class that a client has chosen, unless it may not.
    fn chosen(
        &self,
        choice: ClassChoice,
        ruled: ClassId,
        name: Result<ClassName, Unreadable>,
    ) -> Result<ClassId, IgnoredChoice> {
        let class = name.ok().and_then(|name| self.classes.find(name.as_str()));
        let class = class.ok_or(IgnoredChoice::Unknown)?;
        let is_allowed = match choice {
            ClassChoice::Any => true,
            ClassChoice::Lower => class >= ruled,
            ClassChoice::None => class == ruled,
        };
        if is_allowed { Ok(class) } else { Err(IgnoredChoice::Forbidden) }
    }
}

#[cfg(test)]
mod tests;
