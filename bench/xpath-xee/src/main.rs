//! Reads a table of `crates/xml/tests/data/xpath-basex.py` from standard input, evaluates each case
//! with xee-xpath, and prints the cases with another answer, and how many there are.
//!
//! A line is fields with tabs between them: `doc XML`, or `case CONTEXT EXPRESSION RESULT`. The
//! head of `xpath-oracle.py` describes results.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead};
use std::panic::{AssertUnwindSafe, catch_unwind};

use xee_xpath::context::StaticContextBuilder;
use xee_xpath::{Atomic, Documents, Item, Queries, Query, Sequence};

/// Where a document was loaded to, and its nodes in document order, attributes included.
struct Loaded {
    documents: Documents,
    nodes: Vec<xot::Node>,
    numbers: HashMap<xot::Node, usize>,
}

impl Loaded {
    fn new(text: &str) -> Result<Loaded, Box<dyn Error>> {
        let mut documents = Documents::new();
        let handle = documents.add_string_without_uri(text).map_err(|error| error.to_string())?;
        let root = documents.document_node(handle).ok_or("the document is there")?;
        let mut nodes = Vec::new();
        let xot = documents.xot();
        for node in xot.descendants(root) {
            nodes.push(node);
            nodes.extend(xot.attribute_nodes(node));
        }
        let numbers = nodes.iter().enumerate().map(|(number, node)| (*node, number)).collect();
        Ok(Loaded { documents, nodes, numbers })
    }

    /// Returns the answer as the table has it.
    fn answer(&mut self, context: usize, expression: &str) -> String {
        let mut builder = StaticContextBuilder::default();
        builder.add_namespace("p", "urn:p").add_namespace("q", "urn:q");
        let queries = Queries::new(builder);
        let node = Item::Node(self.nodes[context]);
        let evaluated = catch_unwind(AssertUnwindSafe(|| {
            queries.sequence(expression)?.execute_build_context(&mut self.documents, |builder| {
                builder.context_item(node);
            })
        }));
        match evaluated {
            Ok(Ok(sequence)) => self.describe(&sequence),
            Ok(Err(error)) => format!("error {error}"),
            Err(_) => "panic".to_owned(),
        }
    }

    fn describe(&self, sequence: &Sequence) -> String {
        let number = |value: f64| {
            if value.is_nan() {
                "number NaN".to_owned()
            } else {
                format!("number {:016x}", value.to_bits())
            }
        };
        let exact =
            |value: &dyn ToString| value.to_string().parse().map_or("no number".to_owned(), number);
        let mut nodes = Vec::new();
        for item in sequence.iter() {
            match item {
                Item::Node(node) => match self.numbers.get(&node) {
                    Some(number) => nodes.push(*number),
                    None => return "a node of another document".to_owned(),
                },
                Item::Atomic(Atomic::Double(value)) => return number(*value),
                Item::Atomic(Atomic::Float(value)) => return number(f64::from(*value)),
                Item::Atomic(Atomic::Boolean(value)) => return format!("boolean {value}"),
                Item::Atomic(Atomic::Integer(_, value)) => return exact(&value),
                Item::Atomic(Atomic::Decimal(value)) => return exact(&value),
                Item::Atomic(value) => {
                    let text = value.to_string().unwrap_or_else(|error| error.to_string());
                    return format!("string {}", escape(&text));
                }
                Item::Function(_) => return "a function".to_owned(),
            }
        }
        let nodes: Vec<String> = nodes.iter().map(|node| format!(" {node}")).collect();
        format!("nodes{}", nodes.concat())
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t")
}

fn unescape(field: &str) -> String {
    field.replace("\\\\", "\0").replace("\\n", "\n").replace("\\t", "\t").replace('\0', "\\")
}

fn main() -> Result<(), Box<dyn Error>> {
    std::panic::set_hook(Box::new(|_| ()));
    let mut loaded = None;
    let mut text = String::new();
    let (mut cases, mut differences) = (0, 0);
    for line in io::stdin().lock().lines() {
        let line = line?;
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["doc", document, ..] => {
                text = unescape(document);
                loaded = Some(Loaded::new(&text).map_err(|error| format!("{error}: {text}"))?);
            }
            ["case", context, expression, expected, ..] => {
                let loaded = loaded.as_mut().ok_or("a document comes before its cases")?;
                let expression = unescape(expression);
                let answer = loaded.answer(context.parse()?, &expression);
                cases += 1;
                if answer != expected {
                    differences += 1;
                    println!("{expression}\n  from node {context} of {text}");
                    println!("  xee:    {answer}\n  others: {expected}");
                }
            }
            _ => {}
        }
    }
    println!("{cases} cases, {differences} differences");
    Ok(())
}
