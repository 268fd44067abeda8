//! A configuration of PgBouncer, turned into one of Tidegate: `tidegate import`.
//!
//! | module | what it has |
//! | --- | --- |
//! | `settings.rs` | every setting of PgBouncer, and what becomes of it |
//! | `ini.rs` | the file's format |
//! | `import.rs` | from the one to the other |

mod import;
mod ini;
mod settings;

pub use import::{Imported, Note, import};
pub use ini::ImportError;
#[cfg(test)]
pub(crate) use settings::pgbouncer_names;
pub use settings::{Fate, PgbouncerSetting, Place, SETTINGS};
