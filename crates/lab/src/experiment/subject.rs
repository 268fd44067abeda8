//! A subject of an experiment: checked against the file, and started.

use tidegate_subject::database::Database;
use tidegate_subject::embedded::MachineOptions;

use super::complaint::Complaint;
use super::machine::refuse_parts;
use super::{Subject, SubjectKind};
use crate::rig::RigError;

impl Subject {
    /// Starts its database, or makes one where it is.
    pub(crate) fn database(&self) -> Result<Box<dyn Database>, RigError> {
        let dbms = self.kind.dbms().ok_or(RigError::NoDatabase("simulated"))?;
        Ok(match &self.place {
            Some(url) => (dbms.start_at)(&url.clone().with_known_password(), &self.settings)?,
            None => (dbms.start)(&self.settings)?,
        })
    }

    /// Returns whether somebody else runs the server.
    fn is_existing(&self) -> bool {
        self.place.is_some() && self.kind.dbms().is_some_and(|dbms| !dbms.is_in_process)
    }

    /// Refuses to give an existing server so many processors.
    pub(super) fn refuse_processors(&self) -> Result<(), Complaint> {
        if !self.is_existing() {
            return Ok(());
        }
        let text = format!(
            ": {} is an existing server, whose processors are not ours to give; leave them out",
            self.kind
        );
        Err(Complaint::about("processors", text))
    }

    /// Checks that the database is available: its programs are installed, or its server lets us
    /// make a database, which is dropped again.
    pub(super) fn look(&self) -> Result<(), RigError> {
        match (&self.place, self.kind.dbms()) {
            (Some(_), _) => self.try_start(),
            (None, Some(dbms)) => Ok((dbms.find)().map(drop)?),
            (None, None) => Ok(()),
        }
    }

    fn try_start(&self) -> Result<(), RigError> {
        Ok(self.database()?.stop()?)
    }

    /// Starts a private database once with the settings that the file gives it, and stops it: it
    /// alone can tell whether they can be. Without any there is nothing to find out.
    pub(super) fn try_settings(&self) -> Result<(), Complaint> {
        let is_private = self.place.is_none() && !self.kind.is_virtual();
        if self.settings.named.is_empty() || !is_private {
            return Ok(());
        }
        self.try_start().map_err(|error| {
            let text = format!(": it does not start with them: {error}");
            Complaint::about_subject(self.kind, "settings", &text)
        })
    }

    /// Checks that the place and the settings are the database's, without starting it.
    pub(super) fn validate(&self) -> Result<(), Complaint> {
        self.validate_place()?;
        let Some(dbms) = self.kind.dbms() else { return Ok(()) };
        if self.kind == SubjectKind::Machine {
            refuse_parts(self.kind, &self.settings)?;
        }
        let validated = match self.kind {
            SubjectKind::Machine => MachineOptions::new(&self.settings, 1).map(drop),
            _ => (dbms.validate)(&self.settings),
        };
        validated.map_err(|error| {
            Complaint::about_subject(self.kind, error.key(), &format!(": {error}"))
        })
    }

    fn validate_place(&self) -> Result<(), Complaint> {
        let (kind, Some(place)) = (self.kind, &self.place) else { return Ok(()) };
        let about = |key, text: String| Err(Complaint::about_subject(kind, key, &text));
        let Some(scheme) = kind.dbms().and_then(|dbms| dbms.scheme) else {
            return about("url", format!(": {kind} is nowhere else than here"));
        };
        if place.scheme != scheme {
            return about("url", format!(" is no place of {kind}; give {}", scheme.form));
        }
        if self.is_existing() && !self.settings.named.is_empty() {
            let text =
                " are for a server that the laboratory starts; an existing one keeps its own";
            return about("settings", text.to_owned());
        }
        Ok(())
    }
}
