//! `XPath` 1.0 compared with libxml2, with indexes, on failing trees and on hostile expressions.

mod xpath_support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use proptest::prelude::*;
use tidegate_engine::disk::{Disk, Faults, SimulatedDisk};
use tidegate_engine::wal::LogId;
use tidegate_engine::{Store, StoreOptions};
use tidegate_random::SplitMix64;
use tidegate_xml::name::QName;
use tidegate_xml::store::{DocumentOptions, InnerNodes, LoadOptions, XmlStore};
use tidegate_xml::tree::Tree;
use tidegate_xml::tree::memory::{Builder, MemoryTree};
use tidegate_xml::xpath::{Environment, EvalError, MAX_DEPTH, ParseError, Prefixes, Query, Value};
use xpath_support::{
    LimitReached, Probe, Table, absolute, answer, answer_among, describe, load, prefixes,
};

/// Answers of libxml2; `tests/data/xpath-oracle.py` writes the file.
const TABLE: &str = include_str!("data/xpath-libxml2.tsv");

/// Panics with the differences that no known deviation of the other program may explain. Returns
/// the count of the rest, and how many of them may touch each deviation.
fn check(table: &Table) -> (usize, BTreeMap<String, usize>) {
    let mut count = 0;
    let mut touched = BTreeMap::new();
    let mut unexplained = Vec::new();
    for (case, ours) in table.differences() {
        if case.deviations.is_empty() {
            let document = &table.documents[case.document];
            let (context, expression, expected) = (case.context, &case.expression, &case.expected);
            unexplained.push(format!(
                "{expression}\n  from node {context} of {document}\n  ours:   {ours}\n  \
                 theirs: {expected}\n"
            ));
        } else {
            count += 1;
            for name in case.deviations.split(',') {
                *touched.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    assert!(unexplained.is_empty(), "{}", unexplained.concat());
    (count, touched)
}

#[test]
fn recorded_answers_of_libxml2_are_ours() {
    let table = Table::parse(TABLE);
    assert!(table.cases.len() >= 500, "{} cases", table.cases.len());
    check(&table);
}

/// Panics if one of each `step` documents, stored with all indexes, has other answers than in
/// memory.
fn check_stored(table: &Table, step: usize) {
    let disk = Arc::new(SimulatedDisk::new(1, Faults::default())) as Arc<dyn Disk>;
    let engine = Store::create(&disk, LogId(1), &StoreOptions::default()).expect("a store");
    let store = XmlStore::on(engine).expect("a store");
    for (number, text) in table.documents.iter().enumerate().step_by(step) {
        let inner_nodes = [InnerNodes::Stored, InnerNodes::Virtual][number % 2];
        let options = DocumentOptions { inner_nodes, ..DocumentOptions::default() };
        let mut options = LoadOptions::from(options);
        for index in ["name", "path", "content text", "content number", "cas text", "cas number"] {
            options = options.index(index, index.parse().expect("a definition"));
        }
        let name = number.to_string();
        let go_on = |_| ControlFlow::Continue(());
        store.load(&name, options, text.as_bytes(), go_on).expect("a document");
        let transaction = store.begin();
        let document = transaction.document(&name).expect("it was loaded");
        let root = document.root().expect("it can be read");
        let mut nodes = vec![root.clone()];
        for node in document.descendants(&root).expect("it can be read") {
            let node = node.expect("it can be read");
            nodes.push(node.clone());
            nodes.extend(document.attributes(&node).expect("it can be read"));
        }
        let tree = load(text);
        for case in table.cases.iter().filter(|case| case.document == number) {
            let (context, expression) = (case.context, &case.expression);
            let stored = answer_among(&document, &nodes, context, expression);
            let expected = answer(&tree, context, expression);
            assert_eq!(stored, expected, "{expression} from node {context} of {text}");
        }
    }
}

#[test]
fn stored_documents_with_indexes_give_the_answers_of_those_in_memory() {
    check_stored(&Table::parse(TABLE), 5);
}

fn oracle(script: &str, seed: u64, documents: u32, expressions: u32) -> Option<Table> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(script);
    let numbers = [seed.to_string(), documents.to_string(), expressions.to_string()];
    let output = Command::new("python3").arg(script).args(numbers).output();
    match output {
        Ok(Output { status, stdout, .. }) if status.success() => {
            Some(Table::parse(&String::from_utf8(stdout).expect("the script writes UTF-8")))
        }
        _ => None,
    }
}

#[test]
#[ignore = "soak: 90,000 expressions, and needs python3 and libxml2"]
fn generated_expressions_have_the_answers_of_libxml2() {
    check_generated("xpath-oracle.py", 1);
}

#[test]
#[ignore = "soak: 90,000 expressions, and needs python3, java and basex"]
fn generated_expressions_have_the_answers_of_basex() {
    // The other expressions are evaluated on stored documents, too.
    check_generated("xpath-basex.py", 20);
}

#[expect(clippy::print_stdout, reason = "figures for the page of results")]
fn check_generated(script: &str, stored_step: usize) {
    for seed in 1..=3 {
        let Some(table) = oracle(script, seed, 300, 100) else {
            println!("skipped: {script} does not run; its head says what it needs");
            return;
        };
        let (count, touched) = check(&table);
        check_stored(&table, stored_step);
        let flagged = table.cases.iter().filter(|case| !case.deviations.is_empty()).count();
        let cases = table.cases.len();
        println!("seed {seed}: {cases} cases, {flagged} may deviate, {count} do: {touched:?}");
    }
}

#[test]
fn xmllint_counts_the_same_nodes() {
    let table = Table::parse(TABLE);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("document.xml");
    // xmllint binds no prefixes.
    let plain = |expression: &str| !["p:", "q:"].iter().any(|prefix| expression.contains(prefix));
    let cases = table.cases.iter().filter(|case| {
        case.context == 0
            && case.deviations.is_empty()
            && case.expected.starts_with("nodes ")
            && plain(&case.expression)
    });
    for case in cases.take(25) {
        std::fs::write(&file, &table.documents[case.document]).expect("written");
        let expression = format!("count({})", case.expression);
        let output =
            Command::new("xmllint").args(["--nocdata", "--xpath", &expression]).arg(&file).output();
        let Ok(output) = output else {
            println!("skipped: xmllint is not installed");
            return;
        };
        let expected = case.expected.split(' ').count() - 1;
        let found = String::from_utf8(output.stdout).expect("a number");
        assert_eq!(found.trim(), expected.to_string(), "{expression}");
    }
}

/// Places where libxml2 2.9.14 leaves the recommendation, with our answer.
#[test]
fn deviations_of_libxml2_are_not_ours() {
    let cases = [
        // Digits with an exponent are no number, and neither is a sign alone.
        ("<a>1e3</a>", "number(a)", "number NaN"),
        ("<a>-</a>", "number(a)", "number NaN"),
        // Numbers become strings without exponent and with as many digits as they need.
        ("<a/>", "string(123456789012)", "string 123456789012"),
        ("<a/>", "string(0.0000001)", "string 0.0000001"),
        ("<a/>", "string(1 div 3)", "string 0.3333333333333333"),
        // What follows an attribute includes the content of its element.
        ("<a x='1'><b/></a>", "//@x/following::*", "nodes 3"),
        // What precedes a node after the root element includes the root element.
        ("<a>1</a><!--c-->", "comment()/preceding::*", "nodes 1"),
        // `.//.` contains the context node. libxml2 leaves it out if this is the whole expression.
        ("<a><b/></a>", ".//.", "nodes 0 1 2"),
        // `xmlns=""` is no namespace node.
        ("<a xmlns='u'><b xmlns=''/></a>", "count(//b/namespace::*)", "number 3ff0000000000000"),
        // A namespace node's name is in no namespace.
        ("<a/>", "count(*/namespace::xml:*)", "number 0000000000000000"),
        // A processing instruction without content has an empty string-value, which is no number.
        ("<a><?t?></a>", "boolean(a/node()[number() = 0])", "boolean false"),
        ("<a><?t?></a>", "a != a/processing-instruction()", "boolean false"),
        // White space before the first ID.
        ("<a><b xml:id='i'/></a>", "id(' i')", "nodes 2"),
        // `mod` needs white space where a name could go on.
        ("<a/>", "5 mod2", "error"),
    ];
    for (document, expression, expected) in cases {
        assert_eq!(answer(&load(document), 0, expression), expected, "{expression}");
    }
}

#[test]
fn an_index_gives_the_answers_of_a_walk() {
    let table = Table::parse(TABLE);
    let trees: Vec<_> = table.documents.iter().map(|text| load(text)).collect();
    for case in table.cases.iter().step_by(3) {
        let tree = &trees[case.document];
        let Ok(query) = Query::parse(&case.expression, &prefixes()) else { continue };
        let node = tree.nodes().nth(case.context).expect("a node");
        let probe = Probe::new(tree).indexed();
        let with = query.evaluate(&probe, &node, &Environment::default()).expect("no limit");
        let without = Environment::default().without_indexes();
        let without = query.evaluate(&probe, &node, &without).expect("no limit");
        let (with, without) = (describe(tree, &with), describe(tree, &without));
        assert_eq!(with, without, "{}", case.expression);
    }
}

#[test]
fn patterns_of_absolute_paths_give_the_answers_of_a_walk() {
    let (mut paths, mut contents) = (0, 0);
    for seed in 1..=20 {
        let mut random = SplitMix64::new(seed);
        let tree = load(&absolute::document(&mut random));
        let root = tree.root().expect("a root");
        for _ in 0..200 {
            let expression = absolute::expression(&mut random);
            let query = Query::parse(&expression, &prefixes()).expect("a query");
            let probe = Probe::new(&tree).indexed();
            let with = query.evaluate(&probe, &root, &Environment::default()).expect("no limit");
            let without = query.evaluate(&tree, &root, &Environment::default()).expect("nodes");
            let (with, without) = (describe(&tree, &with), describe(&tree, &without));
            assert_eq!(with, without, "seed {seed}: {expression}");
            paths += probe.answered().0;
            contents += probe.answered().1;
        }
    }
    assert!(paths > 3_000 && contents > 300, "{paths} patterns, {contents} with a content");
}

/// Whatever access fails, the error arrives, and no part of an answer is taken for the whole.
#[test]
fn errors_of_the_tree_are_passed_up() {
    let seed = 7;
    let mut random = SplitMix64::new(seed);
    let table = Table::parse(TABLE);
    for case in table.cases.iter().step_by(7) {
        let tree = load(&table.documents[case.document]);
        let Ok(query) = Query::parse(&case.expression, &prefixes()) else { continue };
        let node = tree.nodes().nth(case.context).expect("a node");
        let environment = Environment::default();
        let full = Probe::new(&tree);
        let expected = query.evaluate(&full, &node, &environment).expect("no limit");
        let expected = describe(&tree, &expected);
        for _ in 0..5 {
            let needed = u32::try_from(full.accesses()).expect("few accesses");
            let limit = random.next_below(needed + 1) as usize;
            let probe = Probe::new(&tree).limited(limit);
            match query.evaluate(&probe, &node, &environment) {
                Ok(value) => assert_eq!(describe(&tree, &value), expected, "seed {seed}"),
                Err(error) => assert_eq!(error, EvalError::Tree(LimitReached)),
            }
            let is_complete = limit >= full.accesses();
            assert_eq!(probe.accesses() > limit, !is_complete, "{}", case.expression);
        }
    }
}

/// `<r>` with `width` children `<x>`, each with `width` children `<y>`.
fn wide(width: usize) -> MemoryTree {
    let mut builder = Builder::new();
    builder.start_element(QName::local("r"));
    for _ in 0..width {
        builder.start_element(QName::local("x"));
        for _ in 0..width {
            builder.start_element(QName::local("y"));
            builder.end_element();
        }
        builder.end_element();
    }
    builder.end_element();
    builder.finish()
}

/// `depth` elements `<a>` in each other.
fn chain(depth: usize) -> MemoryTree {
    let mut builder = Builder::new();
    for _ in 0..depth {
        builder.start_element(QName::local("a"));
    }
    builder.finish()
}

fn accesses(tree: &MemoryTree, expression: &str) -> usize {
    let query = Query::parse(expression, &Prefixes::new()).expect(expression);
    let probe = Probe::new(tree);
    let root = tree.root().expect("a root");
    query.evaluate(&probe, &root, &Environment::default()).expect("no limit");
    probe.accesses()
}

#[test]
fn what_is_not_needed_is_not_read() {
    let tree = wide(100);
    let all = accesses(&tree, "count(//y)");
    assert!(all > 10_000, "{all}");
    let few = [
        "boolean(//y)",
        "not(//y)",
        "string(//y)",
        "name(//x/y)",
        "(//y)[1]",
        "(//y)[3]",
        "//y or //z",
        "boolean(//x/y | //y)",
        "/r/x[1]/y[position() = 2]",
        "boolean(//y/following::y)",
    ];
    for expression in few {
        let read = accesses(&tree, expression);
        assert!(read < 600, "{expression} reads {read} times, count(//y) {all} times");
    }
}

/// Twice the nodes may cost at most about twice the accesses.
#[test]
fn cost_grows_with_the_document_and_not_with_its_square() {
    let expressions = [
        "count(//x/y)",
        "count(//y[1])",
        "count(//y[last()])",
        "count(//x[last()]/y[last()])",
        "count(//*[position() = last() - 1])",
        "count(//y/following-sibling::y)",
        "count(//y/preceding-sibling::*)",
        "count(//y/following::y)",
        "count(//y/preceding::y)",
        "count(//*//y)",
        "//x = //y",
        "//x < //y",
        "count(//y/..)",
    ];
    let (small, large) = (wide(30), wide(60));
    for expression in expressions {
        let (small, large) = (accesses(&small, expression), accesses(&large, expression));
        // 4 times the nodes; sorting and the widths allow some more.
        assert!(large < 7 * small, "{expression}: {small} and {large} accesses");
    }
    let (small, large) = (chain(200), chain(400));
    for expression in ["count(//a/a)", "count(//a//a)", "count(//a[1])"] {
        let (small, large) = (accesses(&small, expression), accesses(&large, expression));
        assert!(large < 5 * small, "{expression}: {small} and {large} accesses");
    }
}

#[test]
fn long_and_deep_expressions_are_answered_or_refused() {
    let many = 100_000;
    let parse = |text: &str| Query::parse(text, &Prefixes::new());
    for (open, close) in [("(", ")"), ("a[", "]"), ("not(", ")"), ("-(", ")"), ("id(", ")/a[")] {
        let text = format!("{}1{}", open.repeat(many), close.repeat(many));
        assert!(
            matches!(parse(&text), Err(ParseError::TooDeep { .. } | ParseError::TooLong { .. })),
            "{open}"
        );
    }
    let unclosed = parse(&"(".repeat(many)).expect_err("too deep");
    assert_eq!(unclosed, ParseError::TooDeep { offset: MAX_DEPTH + 1 });
    let tree = chain(3);
    let root = tree.root().expect("a root");
    let evaluate = |text: &str| {
        let query = parse(text).expect("parsed");
        describe(&tree, &query.evaluate(&tree, &root, &Environment::default()).expect("evaluated"))
    };
    assert_eq!(evaluate(&"/a".repeat(many)), "nodes");
    assert_eq!(evaluate(&format!("a{}", "/..".repeat(many))), "nodes");
    assert_eq!(evaluate(&format!("{}1", "-".repeat(many))), "number 3ff0000000000000");
    assert_eq!(evaluate(&format!("b{}", " or b".repeat(many))), "boolean false");
    assert_eq!(evaluate(&format!("a{}", " and a".repeat(many))), "boolean true");
    assert_eq!(evaluate(&format!("a{}", "|a".repeat(many))), "nodes 1");
    assert_eq!(evaluate(&format!("a{}", "[a]".repeat(many))), "nodes 1");
    assert_eq!(evaluate(&format!("0{}", "+1".repeat(many))), "number 40f86a0000000000");
    let too_long = "a".repeat(2 << 20);
    assert_eq!(parse(&too_long).err(), Some(ParseError::TooLong { length: 2 << 20 }));
}

/// The deepest expressions that the parser lets through need half the stack that a thread has by
/// default, also without optimisation.
#[test]
fn the_deepest_expression_is_evaluated() {
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    thread.spawn(evaluate_deepest).expect("a thread").join().expect("no panic");
}

fn evaluate_deepest() {
    let tree = chain(MAX_DEPTH * 8);
    let root = tree.root().expect("a root");
    let shapes = [
        ("a[", "]/a/a/a/a/a/a/a", 1),
        ("descendant::a[", "]/descendant::a[1]/descendant::a/a/a/a/a", 1),
        ("a[a][a][a][a][a][a][a][", "]/a[a][a][a]", 1),
        ("count((a|a)[", "]/a/a/a/a/a/a)", 3),
        ("concat(a, ", ")", 1),
        ("-(1 + ", ")", 1),
    ];
    for (open, close, levels) in shapes {
        let levels = MAX_DEPTH / levels;
        let text = format!("{}a{}", open.repeat(levels), close.repeat(levels));
        let query = Query::parse(&text, &Prefixes::new()).expect(open);
        // A limit, because the time of nested predicates is exponential in their number.
        let probe = Probe::new(&tree).limited(20_000);
        let _ = query.boolean(&probe, &root, &Environment::default());
        let _ = query.explain(&probe, &Environment::default());
    }
}

#[test]
fn errors_say_where_and_what() {
    let cases = [
        ("", "at byte 0: expected a step: a name, *, ., .., @ or a node test, found the end"),
        ("a[", "at byte 2: expected a step: a name, *, ., .., @ or a node test, found the end"),
        ("a[1", "at byte 3: expected an operator or ], found the end"),
        ("a b", "at byte 2: expected an operator or the end, found \"b\""),
        ("é/'x", "at byte 3: expected a step: a name, *, ., .., @ or a node test, found \"'x\""),
        ("'x", "at byte 2: expected the closing quote of a string, found the end"),
        ("f(1)", "at byte 0: XPath 1.0 has no function f()"),
        ("1 + not()", "at byte 4: not() does not take 0 arguments"),
        ("r:a", "at byte 0: the prefix r is not declared; add it to the prefixes"),
        ("up::a", "at byte 0: XPath 1.0 has no axis up::"),
        ("count(1)", "at byte 6: expected a node-set, found a number"),
        ("a | 'b'", "at byte 4: expected a node-set, found a string"),
        ("true()/a", "at byte 0: expected a node-set, found a boolean"),
        ("$", "at byte 1: expected the name of a variable, found the end"),
        (".[1]", "at byte 1: expected an operator or the end, found \"[1]\""),
    ];
    for (text, message) in cases {
        let error = Query::parse(text, &prefixes()).expect_err(text);
        assert_eq!(error.to_string(), message, "{text}");
    }
}

#[test]
fn variables_have_all_types() {
    let tree = load("<a><b>1</b><b>2</b></a>");
    let root = tree.root().expect("a root");
    let bs = Query::parse("//b", &Prefixes::new()).expect("parsed");
    let Ok(Value::Nodes(mut nodes)) = bs.evaluate(&tree, &root, &Environment::default()) else {
        panic!("no node-set");
    };
    nodes.reverse();
    let name = |name| QName { prefix: "p".into(), ..QName::local(name) };
    let environment = Environment::default()
        .with_variable(QName::local("nodes"), Value::Nodes(nodes))
        .with_variable(QName::local("two"), Value::Number(2.0))
        .with_variable(QName::local("text"), Value::String("2".into()))
        .with_variable(QName::local("yes"), Value::Boolean(true));
    let cases = [
        ("string($nodes)", "string 1"),
        ("$nodes[last()]", "nodes 4"),
        ("//b[$two]", "nodes 4"),
        ("//b[$text]", "nodes 2 4"),
        ("//b[. = $text]", "nodes 4"),
        ("$yes = $nodes", "boolean true"),
        ("$nodes/..", "nodes 1"),
        ("$nodes | /", "nodes 0 2 4"),
    ];
    for (text, expected) in cases {
        let query = Query::parse(text, &Prefixes::new()).expect(text);
        let value = query.evaluate(&tree, &root, &environment).expect(text);
        assert_eq!(describe(&tree, &value), expected, "{text}");
    }
    let evaluate = |text| {
        let query = Query::parse(text, &prefixes()).expect(text);
        query.evaluate(&tree, &root, &environment)
    };
    assert_eq!(evaluate("$two/a"), Err(EvalError::NotNodes { found: "number" }));
    let unknown = name("two").to_string();
    assert_eq!(evaluate("$p:two"), Err(EvalError::UnknownVariable { name: unknown }));
}

#[test]
fn plans_name_methods_and_indexes() {
    let tree = chain(1);
    let probe = Probe::new(&tree).indexed();
    let query = Query::parse(
        "//a/b[@x = 'y'][1] | (id('i')/../following::*)[last()]//c[2]",
        &Prefixes::new(),
    );
    let query = query.expect("parsed");
    let expected = "\
merge union
  path
    from the document
    step descendant::a, index elements(a)
    step child::b, merge of nested results
      where
        operators =
          path
            from the context node
            step attribute::x
          string \"y\"
      only node 1
  path
    from the nodes of
      path
        from the nodes of
          id()
            string \"i\"
        step parent::node(), sort and remove duplicates
        step following::*, from the node that ends first only
      only the last node
    step descendant-or-self::node()
    step child::c, merge of nested results
      only node 2
";
    assert_eq!(query.explain(&probe, &Environment::default()), expected);
    let without = query.explain(&probe, &Environment::default().without_indexes());
    assert_eq!(without, expected.replace(", index elements(a)", ""));
}

/// Parses a text and, if it is an expression, evaluates it with a limit.
fn survives(text: &str) {
    let Ok(query) = Query::parse(text, &prefixes()) else { return };
    let tree = load("<a x='1'><b>2</b>t<!--c--><a xml:lang='en'><b/></a></a>");
    let probe = Probe::new(&tree).limited(5_000);
    let root = tree.root().expect("a root");
    let _ = query.evaluate(&probe, &root, &Environment::default());
    let _ = query.explain(&probe, &Environment::default());
}

/// Pieces that random expressions are made of.
const PIECES: [&str; 34] = [
    "a", "b", "*", "/", "//", ".", "..", "@", "::", "[", "]", "(", ")", "|", "=", "!=", "<", "-",
    "and", "or", "div", "mod", "1", ".5", "'s'", "$v", ",", "p:", "ancestor", "node()", "last()",
    "count(", " ", "é",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        survives(&text);
    }

    #[test]
    fn arbitrary_pieces_never_panic(
        pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..30),
    ) {
        survives(&pieces.concat());
    }

    #[test]
    fn changed_expressions_never_panic(
        case in any::<proptest::sample::Index>(),
        at in any::<proptest::sample::Index>(),
        length in 0_usize..5,
        piece in proptest::sample::select(&PIECES[..]),
    ) {
        let lines: Vec<&str> = TABLE.lines().filter(|line| line.starts_with("case")).collect();
        let line = lines[case.index(lines.len())];
        let mut chars: Vec<char> = line.split('\t').nth(2).unwrap_or("").chars().collect();
        let start = at.index(chars.len() + 1);
        let end = (start + length).min(chars.len());
        chars.splice(start..end, piece.chars());
        survives(&chars.into_iter().collect::<String>());
    }
}
