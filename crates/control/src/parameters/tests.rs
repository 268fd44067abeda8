//! Values that are read, kept and written.

use super::*;

settings! {
    struct Example, checked by |own| if own.count == 13 { Err("13 is no number") } else { Ok(()) };

    const OWN;

    share: f64 = 0.25, "share", "", Allowed::Number(0.001, 10.0), "a share";
    count: u64 = 7, "count", "things", Allowed::Whole(1, 1_000_000), "a number";
    step: Step = Step::Relative(0.07), "step", "transactions", Allowed::Step, "a step";
    moment: Concurrency = Concurrency::AtEnd, "moment", "", Allowed::Moment, "a moment";
    guard: bool = true, "guard", "", Allowed::Switch, "whether";
}

const OWN: Example = Example::OWN;

#[track_caller]
fn read(text: &str) -> Example {
    GivenParameters::read(text, OWN).unwrap_or_else(|problem| panic!("{text}: {problem}")).over(OWN)
}

#[test]
fn what_is_given_takes_the_place_of_what_is_there() {
    assert_eq!(read("share=0.333"), Example { share: 0.333, ..OWN });
    assert_eq!(read("count=1000000,guard=off"), Example { count: 1_000_000, guard: false, ..OWN });
    assert_eq!(read("step=10"), Example { step: Step::Absolute(10), ..OWN });
    assert_eq!(read("step=55%"), Example { step: Step::Relative(0.55), ..OWN });
    assert_eq!(read("moment=peak"), Example { moment: Concurrency::Peak, ..OWN });
}

#[test]
fn values_are_written_in_the_order_of_the_list_without_needless_zeros() {
    for (text, written) in [
        ("guard=on,share=0.300", "share=0.3,guard=on"),
        ("share=10.0", "share=10"),
        ("share=007", "share=7"),
        ("share=0.001234567", "share=0.001234567"),
        ("moment=end,step=100%,count=12", "count=12,step=100%,moment=end"),
    ] {
        let given = GivenParameters::read(text, OWN).unwrap();
        assert_eq!(given.write::<Example>(), written);
        assert_eq!(GivenParameters::read(written, OWN), Ok(given));
    }
}

/// A value has at most nine places and 200,000,000 without its point.
#[test]
fn a_number_in_effect_is_the_nearest_to_what_was_written() {
    let random = &mut crate::SplitMix64::new(11);
    for _ in 0..10_000 {
        let digits = random.next_bits() % 200_000_000;
        let places = u32::try_from(random.next_bits() % 10).unwrap();
        let scale = 10_u64.pow(places);
        let (before, after) = (digits / scale, digits % scale);
        let width = usize::try_from(places).unwrap();
        let text =
            if places == 0 { before.to_string() } else { format!("{before}.{after:0width$}") };
        let kept = PackedValue::read(&text).expect(&text);
        assert_eq!(kept.number().to_bits(), text.parse::<f64>().unwrap().to_bits(), "{text}");
        let written = ParameterValue::Number(kept.number()).to_string();
        assert_eq!(PackedValue::read(&written), Some(kept), "{text}");
    }
}

#[test]
fn what_is_no_value_is_refused() {
    for text in [
        "share=",
        "share=.4",
        "share=-1",
        "share=1e-2",
        "share=0",
        "share=10.01",
        "share=0,3",
        "share=nan",
        "share=50%",
        "share=0.0000000001",
        "share=0.1234567891",
        "count=0",
        "count=1.5",
        "count=1.0",
        "count=1000001",
        "count=99999999999",
        "count=on",
        "step=0",
        "step=1000001",
        "step=0%",
        "step=1001%",
        "step=1.5%",
        "step=1.0",
        "moment=middle",
        "guard=yes",
        "guard=1",
    ] {
        let problem = GivenParameters::read(text, OWN).expect_err(text);
        let is_value = matches!(problem, ParameterProblem::Value { .. });
        let is_form = matches!(problem, ParameterProblem::Form(_));
        assert!(is_value || (text.contains(',') && is_form), "{text}: {problem}");
    }
}

#[test]
fn other_problems_are_named() {
    let problem = |text: &str| GivenParameters::read(text, OWN).expect_err(text).to_string();
    assert_eq!(problem("share"), "`share` is not of the form name=value");
    assert_eq!(problem(""), "`` is not of the form name=value");
    assert_eq!(problem("shares=1"), "there is no parameter `shares`");
    assert_eq!(problem("share=1,count=1,share=2"), "`share` is given twice");
    assert_eq!(problem("count=0"), "count=0 is not allowed: 1 to 1000000");
    assert_eq!(problem("count=13"), "13 is no number");
}

#[test]
fn the_list_has_the_defaults_as_they_would_be_written() {
    let listed: Vec<(&str, String, String)> =
        list(&OWN).into_iter().map(|one| (one.name, one.values, one.default)).collect();
    let expected = [
        ("share", "0.001 to 10", "0.25"),
        ("count", "1 to 1000000", "7"),
        ("step", "1 to 1000000, or 1% to 1000% of the limit", "7%"),
        ("moment", "peak or end", "end"),
        ("guard", "on or off", "on"),
    ];
    assert_eq!(listed, expected.map(|(name, values, own)| (name, values.into(), own.into())));
}
