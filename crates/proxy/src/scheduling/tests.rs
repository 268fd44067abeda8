//! The rules, in their order, and what clients may choose.

use std::path::Path;

use super::*;
use crate::config_file::ConfigFile;

fn scheduling(text: &str) -> Arc<Scheduling> {
    let text = format!("{text}\n[databases.\"*\"]\nupstream = \"postgres://db\"\n");
    let file = ConfigFile::parse(&text, &[], Path::new("tidegate.toml")).unwrap();
    file.into_config().unwrap().scheduling
}

const RULES: &str = r#"
    [scheduling]
    classes = ["gold", "silver", "bronze", "rest"]
    class_choice = "any"
    [users.ann]
    class_choice = "lower"
    [users.bob]
    class_choice = "none"
    [classes.gold]
    users = ["gina"]
    deadline = "5s"
    [classes.silver]
    users = ["ann", "bob"]
    databases = ["shop"]
    applications = ["till"]
    [classes.bronze]
    applications = ["report"]
    addresses = ["10.0.0.0/8"]
"#;

/// Class, deadline in milliseconds, and what was ignored.
fn classify(
    who: (&str, &str, &str),
    settings: &[(&str, &str)],
    comment: &str,
) -> (String, Option<u128>, Option<IgnoredChoice>) {
    let scheduling = scheduling(RULES);
    let (user, database, address) = who;
    let identity = scheduling.identity(user, (database, "*"), address.parse().ok());
    let settings = Settings::from_pairs(settings.iter().copied());
    let hint = Hint::of(comment.as_bytes());
    let Classified { class, within, ignored } =
        scheduling.classify(&identity, &settings, Some(&hint));
    let name = scheduling.classes.class(class).name.to_string();
    (name, within.map(|within| within.as_millis()), ignored)
}

#[test]
fn the_first_rule_that_says_something_decides() {
    let (till, chosen) = (("application_name", "till"), ("tidegate.class", "bronze"));
    let comment = "SELECT 1 /*tidegate_class='rest'*/";
    for (who, settings, comment, expected) in [
        (("eve", "db", ""), &[][..], "", "rest"),
        (("eve", "db", "10.1.2.3"), &[], "", "bronze"),
        (("eve", "db", "10.1.2.3"), &[till], "", "silver"),
        (("eve", "shop", "10.1.2.3"), &[("application_name", "report")], "", "silver"),
        (("gina", "shop", "10.1.2.3"), &[till], "", "gold"),
        (("gina", "shop", "10.1.2.3"), &[till, chosen], "", "bronze"),
        (("gina", "shop", "10.1.2.3"), &[till, chosen], comment, "rest"),
        (("eve", "db", ""), &[("tidegate.class", "")], "", "rest"),
    ] {
        let (class, _, ignored) = classify(who, settings, comment);
        assert_eq!((&*class, ignored), (expected, None), "{who:?} {settings:?} {comment}");
    }
}

#[test]
fn a_client_does_not_choose_what_it_may_not() {
    let gold = "SELECT 1 /*tidegate_class='gold'*/";
    let rest = "SELECT 1 /*tidegate_class='rest'*/";
    for (user, settings, comment, expected, ignored) in [
        ("eve", &[][..], gold, "gold", None),
        ("ann", &[], gold, "silver", Some(IgnoredChoice::Forbidden)),
        ("ann", &[], rest, "rest", None),
        ("ann", &[("tidegate.class", "gold")], "", "silver", Some(IgnoredChoice::Forbidden)),
        ("ann", &[("tidegate.class", "rest")], gold, "rest", Some(IgnoredChoice::Forbidden)),
        ("bob", &[], rest, "silver", Some(IgnoredChoice::Forbidden)),
        ("bob", &[("tidegate.class", "silver")], "", "silver", None),
        ("eve", &[], "/*tidegate_class='none'*/", "rest", Some(IgnoredChoice::Unknown)),
        ("eve", &[("tidegate.class", "A b")], "", "rest", Some(IgnoredChoice::Unknown)),
    ] {
        let seen = classify((user, "db", ""), settings, comment);
        assert_eq!((&*seen.0, seen.2), (expected, ignored), "{user} {settings:?} {comment}");
    }
}

#[test]
fn a_deadline_is_the_clients_or_that_of_the_class() {
    let forbidden = Some(IgnoredChoice::Forbidden);
    let comment = "/*tidegate_deadline='20ms'*/";
    let setting = &[("tidegate.deadline", "30ms")][..];
    for (user, settings, comment, expected, ignored) in [
        ("gina", &[][..], "", Some(5000), None),
        ("gina", setting, "", Some(30), None),
        ("gina", setting, comment, Some(20), None),
        ("eve", &[], "", None, None),
        ("eve", &[], comment, Some(20), None),
        ("eve", &[], "/*tidegate_deadline='20'*/", None, Some(IgnoredChoice::Unknown)),
        ("bob", &[], comment, None, forbidden),
    ] {
        let (_, within, seen) = classify((user, "db", ""), settings, comment);
        assert_eq!((within, seen), (expected, ignored), "{user} {settings:?} {comment}");
    }
}
