//! Loads documents and tables, and wraps trees for the tests of `XPath`.

pub(crate) mod absolute;

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::convert::Infallible;

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;
use tidegate_xml::name::QName;
use tidegate_xml::tree::memory::{Builder, MemoryTree, NodeIndex};
use tidegate_xml::tree::{
    Below, Binding, Comparand, Indexed, Kind, PathTest, Pattern, Relation, Tree, XML_NAMESPACE,
};
use tidegate_xml::xpath::{Environment, Item, Prefixes, Query, Value};

/// Reads a well-formed document without DTD; a small stand-in for the reader of the crate.
pub(crate) fn load(text: &str) -> MemoryTree {
    let mut reader = Reader::from_str(text);
    let mut builder = Builder::new();
    let mut scopes: Vec<HashMap<String, String>> = vec![HashMap::new()];
    loop {
        match reader.read_event().expect("a well-formed document") {
            Event::Start(tag) => start(&mut builder, &mut scopes, &tag),
            Event::Empty(tag) => {
                start(&mut builder, &mut scopes, &tag);
                scopes.pop();
                builder.end_element();
            }
            Event::End(_) => {
                scopes.pop();
                builder.end_element();
            }
            Event::Text(text) => builder.text(&text),
            Event::CData(text) => builder.text(&text),
            Event::GeneralRef(name) => builder.text(match &*name {
                "lt" => "<",
                "gt" => ">",
                "amp" => "&",
                "quot" => "\"",
                "apos" => "'",
                other => panic!("unknown entity {other}"),
            }),
            Event::Comment(text) => builder.comment(&text),
            Event::PI(text) => {
                builder.processing_instruction(text.target(), text.content().trim_start());
            }
            Event::Decl(_) | Event::DocType(_) => {}
            Event::Eof => return builder.finish(),
        }
    }
}

fn start(builder: &mut Builder, scopes: &mut Vec<HashMap<String, String>>, tag: &BytesStart<'_>) {
    let mut scope = scopes.last().cloned().unwrap_or_default();
    let mut attributes = Vec::new();
    let mut declarations = Vec::new();
    for attribute in tag.attributes() {
        let attribute = attribute.expect("a well-formed attribute");
        let name = attribute.key.as_ref().to_owned();
        let value =
            attribute.normalized_value(XmlVersion::Implicit1_0).expect("a value").into_owned();
        match name.strip_prefix("xmlns").map(|rest| rest.strip_prefix(':').unwrap_or(rest)) {
            Some(prefix) => {
                scope.insert(prefix.to_owned(), value.clone());
                declarations.push((prefix.to_owned(), value));
            }
            None => attributes.push((name, value)),
        }
    }
    builder.start_element(resolve(&scope, tag.name().as_ref(), true));
    for (prefix, uri) in declarations {
        builder.declare(&prefix, &uri);
    }
    for (name, value) in attributes {
        builder.attribute(resolve(&scope, &name, false), &value);
    }
    scopes.push(scope);
}

fn resolve(scope: &HashMap<String, String>, name: &str, uses_default: bool) -> QName {
    let (prefix, local) = name.split_once(':').unwrap_or(("", name));
    let namespace = match prefix {
        "xml" => XML_NAMESPACE,
        "" if !uses_default => "",
        prefix => scope.get(prefix).map_or("", String::as_str),
    };
    QName { prefix: prefix.into(), local: local.into(), namespace: namespace.into() }
}

/// The prefixes that `xpath-oracle.py` binds.
pub(crate) fn prefixes() -> Prefixes {
    Prefixes::new().with("p", "urn:p").with("q", "urn:q")
}

/// A table of `xpath-oracle.py`.
pub(crate) struct Table {
    pub(crate) documents: Vec<String>,
    pub(crate) cases: Vec<Case>,
}

/// One expression with its answer.
pub(crate) struct Case {
    /// Index into the documents.
    pub(crate) document: usize,
    /// Number of the context node in document order.
    pub(crate) context: usize,
    pub(crate) expression: String,
    /// The answer as the script writes it.
    pub(crate) expected: String,
    /// Deviations of libxml2 that the case may touch; empty if the answers have to be equal.
    pub(crate) deviations: String,
}

impl Table {
    pub(crate) fn parse(text: &str) -> Table {
        let mut table = Table { documents: Vec::new(), cases: Vec::new() };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut fields = line.split('\t').map(unescape);
            let mut field = || fields.next().unwrap_or_default();
            if field() == "doc" {
                table.documents.push(field());
            } else {
                table.cases.push(Case {
                    document: table.documents.len() - 1,
                    context: field().parse().expect("a node number"),
                    expression: field(),
                    expected: field(),
                    deviations: field(),
                });
            }
        }
        table
    }

    /// Evaluates every case and returns those with another answer, with ours.
    pub(crate) fn differences(&self) -> Vec<(&Case, String)> {
        let trees: Vec<_> = self.documents.iter().map(|text| load(text)).collect();
        let answer = |case: &Case| answer(&trees[case.document], case.context, &case.expression);
        self.cases
            .iter()
            .map(|case| (case, answer(case)))
            .filter(|(case, ours)| case.expected != *ours)
            .collect()
    }
}

fn unescape(field: &str) -> String {
    field.replace("\\\\", "\0").replace("\\n", "\n").replace("\\t", "\t").replace('\0', "\\")
}

/// Evaluates an expression and writes the value as `xpath-oracle.py` does.
pub(crate) fn answer(tree: &MemoryTree, context: usize, expression: &str) -> String {
    answer_among(tree, &tree.nodes().collect::<Vec<_>>(), context, expression)
}

/// Does so on any tree, whose nodes are `nodes`.
pub(crate) fn answer_among<T: Tree<Node: PartialEq>>(
    tree: &T,
    nodes: &[T::Node],
    context: usize,
    expression: &str,
) -> String {
    let Ok(query) = Query::parse(expression, &prefixes()) else { return "error".to_owned() };
    let value = query.evaluate(tree, &nodes[context], &Environment::default());
    describe_among(nodes, &value.expect("the tree can be read"))
}

/// Writes a value as `xpath-oracle.py` does; panics if a node-set is not in document order or has
/// duplicates.
pub(crate) fn describe(tree: &MemoryTree, value: &Value<NodeIndex>) -> String {
    describe_among(&tree.nodes().collect::<Vec<_>>(), value)
}

fn describe_among<N: PartialEq>(nodes: &[N], value: &Value<N>) -> String {
    let number = |wanted: &N| nodes.iter().position(|node| node == wanted).expect("a node");
    match value {
        Value::Nodes(items) => {
            let place = |item: &Item<N>| match item {
                Item::Node(node) => (number(node), None),
                Item::Namespace { element, binding } => {
                    (number(element), Some(binding.prefix.clone()))
                }
            };
            let places: Vec<_> = items.iter().map(place).collect();
            assert!(places.is_sorted_by(|a, b| a < b), "not in document order: {places:?}");
            let names = places.iter().map(|(number, prefix)| match prefix {
                None => format!(" {number}"),
                Some(prefix) => format!(" {number}@{prefix}"),
            });
            format!("nodes{}", names.collect::<String>())
        }
        Value::Boolean(boolean) => format!("boolean {boolean}"),
        Value::Number(number) if number.is_nan() => "number NaN".to_owned(),
        Value::Number(number) => format!("number {:016x}", number.to_bits()),
        Value::String(text) => format!("string {text}"),
    }
}

/// The error of a [`Probe`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the access limit of the test is reached")]
pub(crate) struct LimitReached;

/// A tree that counts accesses, fails after some, and may have indexes for everything.
pub(crate) struct Probe<'t> {
    tree: &'t MemoryTree,
    indexed: bool,
    /// Patterns that were answered, and those of them with a content.
    answered: Cell<(usize, usize)>,
    limit: usize,
    accesses: Cell<usize>,
}

impl<'t> Probe<'t> {
    /// Wraps a tree: without index and without limit.
    pub(crate) fn new(tree: &'t MemoryTree) -> Probe<'t> {
        let (answered, accesses) = (Cell::new((0, 0)), Cell::new(0));
        Probe { tree, indexed: false, answered, limit: usize::MAX, accesses }
    }

    /// Adds the indexes.
    pub(crate) fn indexed(self) -> Probe<'t> {
        Probe { indexed: true, ..self }
    }

    /// Fails every access after this many.
    pub(crate) fn limited(self, limit: usize) -> Probe<'t> {
        Probe { limit, ..self }
    }

    pub(crate) fn accesses(&self) -> usize {
        self.accesses.get()
    }

    pub(crate) fn answered(&self) -> (usize, usize) {
        self.answered.get()
    }

    /// Whether the nodes from the document to `node` follow a path.
    fn is_on(&self, node: NodeIndex, path: &[(Below, PathTest<'_>)]) -> bool {
        let certain = |result: Result<_, Infallible>| result.unwrap_or_else(|never| match never {});
        let Some((&(below, test), before)) = path.split_last() else {
            return certain(self.tree.parent(&node)).is_none();
        };
        let (wanted, name) = match test {
            PathTest::Element(name) => (Kind::Element, name),
            PathTest::Attribute(name) => (Kind::Attribute, name),
            PathTest::Text => (Kind::Text, None),
        };
        let is_named = |name| self.tree.has_name(&node, name).is_ok_and(|is_named| is_named);
        if self.tree.kind(&node) != Ok(wanted) || !name.is_none_or(is_named) {
            return false;
        }
        let mut above = certain(self.tree.parent(&node));
        while let Some(parent) = above {
            if self.is_on(parent, before) {
                return true;
            }
            above = match below {
                Below::Directly => None,
                Below::Anywhere => certain(self.tree.parent(&parent)),
            };
        }
        false
    }

    #[expect(clippy::float_cmp, reason = "`XPath` compares numbers exactly")]
    fn has_content(&self, node: NodeIndex, relation: Relation, comparand: Comparand<'_>) -> bool {
        let content = self.tree.string_value(&node).unwrap_or_else(|never| match never {});
        let number = match comparand {
            Comparand::Text(text) => return relation == Relation::Equal && content == text,
            Comparand::Number(number) => number,
        };
        let query = Query::parse("number($content)", &Prefixes::new()).expect("a call");
        let content = Value::String(content);
        let content = Environment::default().with_variable(QName::local("content"), content);
        let root = self.tree.root().unwrap_or_else(|never| match never {});
        let content = query.number(self.tree, &root, &content).expect("a number");
        match relation {
            Relation::Equal => content == number,
            Relation::Less => content < number,
            Relation::LessOrEqual => content <= number,
            Relation::Greater => content > number,
            Relation::GreaterOrEqual => content >= number,
        }
    }

    fn read<R>(&self, result: Result<R, Infallible>) -> Result<R, LimitReached> {
        self.accesses.set(self.accesses.get() + 1);
        if self.accesses.get() > self.limit {
            return Err(LimitReached);
        }
        Ok(result.unwrap_or_else(|never| match never {}))
    }
}

impl Tree for Probe<'_> {
    type Node = NodeIndex;
    type Error = LimitReached;

    fn root(&self) -> Result<NodeIndex, LimitReached> {
        self.read(self.tree.root())
    }

    fn kind(&self, node: &NodeIndex) -> Result<Kind, LimitReached> {
        self.read(self.tree.kind(node))
    }

    fn name(&self, node: &NodeIndex) -> Result<Option<QName>, LimitReached> {
        self.read(self.tree.name(node))
    }

    fn content(&self, node: &NodeIndex) -> Result<String, LimitReached> {
        self.read(self.tree.content(node))
    }

    fn parent(&self, node: &NodeIndex) -> Result<Option<NodeIndex>, LimitReached> {
        self.read(self.tree.parent(node))
    }

    fn first_child(&self, node: &NodeIndex) -> Result<Option<NodeIndex>, LimitReached> {
        self.read(self.tree.first_child(node))
    }

    fn last_child(&self, node: &NodeIndex) -> Result<Option<NodeIndex>, LimitReached> {
        self.read(self.tree.last_child(node))
    }

    fn next_sibling(&self, node: &NodeIndex) -> Result<Option<NodeIndex>, LimitReached> {
        self.read(self.tree.next_sibling(node))
    }

    fn previous_sibling(&self, node: &NodeIndex) -> Result<Option<NodeIndex>, LimitReached> {
        self.read(self.tree.previous_sibling(node))
    }

    fn attributes(&self, node: &NodeIndex) -> Result<Vec<NodeIndex>, LimitReached> {
        self.read(self.tree.attributes(node))
    }

    fn declarations(&self, node: &NodeIndex) -> Result<Vec<Binding>, LimitReached> {
        self.read(self.tree.declarations(node))
    }

    fn compare(&self, a: &NodeIndex, b: &NodeIndex) -> Result<Ordering, LimitReached> {
        self.read(self.tree.compare(a, b))
    }

    fn element_by_id(&self, id: &str) -> Result<Option<NodeIndex>, LimitReached> {
        self.read(self.tree.element_by_id(id))
    }

    fn elements_below<'a>(
        &'a self,
        node: &NodeIndex,
        name: &'a QName,
    ) -> Result<Option<Indexed<'a, Self>>, LimitReached> {
        if !self.indexed {
            return Ok(None);
        }
        let mut found = Vec::new();
        for candidate in self.tree.nodes() {
            let is_element = self.read(self.tree.kind(&candidate))? == Kind::Element;
            if is_element
                && self.read(self.tree.has_name(&candidate, name))?
                && self.read(self.tree.is_ancestor(node, &candidate))?
            {
                found.push(Ok(candidate));
            }
        }
        Ok(Some(Box::new(found.into_iter())))
    }

    fn index_of_elements(&self, name: &QName) -> Option<String> {
        self.indexed.then(|| format!("elements({name})"))
    }

    fn matching<'a>(
        &'a self,
        pattern: &Pattern<'_>,
    ) -> Result<Option<Indexed<'a, Self>>, LimitReached> {
        if !self.indexed {
            return Ok(None);
        }
        let (paths, contents) = self.answered.get();
        self.answered.set((paths + 1, contents + usize::from(pattern.content.is_some())));
        let passes = |&node: &NodeIndex| {
            self.is_on(node, &pattern.path)
                && pattern
                    .content
                    .is_none_or(|(relation, comparand)| self.has_content(node, relation, comparand))
        };
        let found: Vec<_> = self.tree.nodes().filter(passes).map(Ok).collect();
        Ok(Some(Box::new(found.into_iter())))
    }
}
