//! Stored procedures: logic that a database keeps, so that a transaction is one request.
//!
//! They are kept as a script in each dialect. A definition of a script begins with CREATE at the
//! beginning of a line, where nothing else does but comments; it ends before the next one, without
//! the mark that a command-line client would need to see its end. No `?` is in it, for that is a
//! value's place in a [`Statement`](crate::Statement).
//!
//! Limits: a database in the process of its client needs none. There a statement is a call already,
//! and a transaction that is a call elsewhere runs as [what it
//! calls](crate::workload::Transaction::called).

/// A procedure or a function, or what these need to be there before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Procedure {
    pub name: &'static str,
    /// The statement that makes it, or makes it anew.
    pub create: String,
    /// The statement that removes it, which must be there and not be needed by others.
    pub drop: String,
}

impl Procedure {
    /// The procedures of a script, each behind those that it needs.
    pub fn of_script(script: &'static str) -> Vec<Self> {
        let mut procedures: Vec<Procedure> = Vec::new();
        let mut is_within = false;
        for line in script.lines() {
            if let Some((kind, name)) = beginning(line) {
                let (create, drop) = (String::new(), format!("DROP {kind} {name}"));
                procedures.push(Procedure { name, create, drop });
                is_within = true;
            }
            is_within &= !line.starts_with("--");
            if let Some(procedure) = procedures.last_mut().filter(|_| is_within) {
                procedure.create.push_str(line);
                procedure.create.push('\n');
            }
        }
        procedures
    }
}

/// What a definition that begins in this line defines: the kind, and the name.
fn beginning(line: &'static str) -> Option<(&'static str, &'static str)> {
    let mut words = line.strip_prefix("CREATE ")?.split([' ', '(']);
    let mut kind = words.next()?;
    if kind == "OR" {
        // REPLACE, or ALTER.
        words.next()?;
        kind = words.next()?;
    }
    Some((kind, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_falls_into_its_definitions() {
        let script = "-- About it.\n\n\
                      CREATE OR ALTER EXCEPTION missing 'no row'\n\n\
                      -- The first.\n\
                      CREATE PROCEDURE first(a INT)\nBEGIN\n  -- within\n  CREATE;\nEND\n\n\
                      CREATE OR REPLACE FUNCTION second (a INT) AS $$ BEGIN END $$;\n";
        let found = Procedure::of_script(script);
        let drops: Vec<&str> = found.iter().map(|procedure| procedure.drop.as_str()).collect();
        assert_eq!(
            drops,
            ["DROP EXCEPTION missing", "DROP PROCEDURE first", "DROP FUNCTION second"]
        );
        assert_eq!(found[1].name, "first");
        let first = "CREATE PROCEDURE first(a INT)\nBEGIN\n  -- within\n  CREATE;\nEND\n\n";
        assert_eq!(found[1].create, first);
        assert_eq!(Procedure::of_script("-- nothing\n"), []);
    }
}
