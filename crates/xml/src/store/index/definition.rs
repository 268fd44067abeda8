//! What an index holds: its kind, the type of its values, and the paths that it is restricted to.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::name::QName;
use crate::parse::chars::is_name;
use crate::tree::{Below, PathTest};

/// Most steps of a path: the steps that a path class matches are bits of a word.
pub(super) const STEPS_MAX: usize = 63;

/// A step of a path.
pub(super) type Step<'a> = (Below, PathTest<'a>);

/// How an index reads the content of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// As it is, byte by byte.
    Text,
    /// As the number that `XPath` 1.0 makes of it (section 4.4). Content that is no number has no
    /// entry.
    Number,
}

/// What an index holds. Its text form is what [`fmt::Display`] writes and [`FromStr`] reads: the
/// kind, the type of values and the paths, with spaces between them.
///
/// ```
/// use tidegate_xml::store::IndexDefinition;
///
/// for text in ["name", "path", "content number", "cas text //item/@id /site//name/text()"] {
///     assert_eq!(text.parse::<IndexDefinition>()?.to_string(), text);
/// }
/// # Ok::<(), tidegate_xml::store::IndexDefinitionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexDefinition {
    /// Elements by their name.
    Name,
    /// Elements, attributes and texts by their path class.
    Path {
        /// The paths whose nodes are in the index; all if there are none here.
        patterns: Vec<PathPattern>,
    },
    /// Attributes and texts by their content.
    Content {
        /// How the content is read.
        value: ValueType,
    },
    /// Attributes and texts by their path class and content.
    Cas {
        /// How the content is read.
        value: ValueType,
        /// The paths whose nodes are in the index; all if there are none here.
        patterns: Vec<PathPattern>,
    },
}

impl IndexDefinition {
    pub(super) fn patterns(&self) -> &[PathPattern] {
        match self {
            IndexDefinition::Path { patterns } | IndexDefinition::Cas { patterns, .. } => patterns,
            IndexDefinition::Name | IndexDefinition::Content { .. } => &[],
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueType::Text => "text",
            ValueType::Number => "number",
        })
    }
}

impl fmt::Display for IndexDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexDefinition::Name => write!(f, "name"),
            IndexDefinition::Path { .. } => write!(f, "path"),
            IndexDefinition::Content { value } => write!(f, "content {value}"),
            IndexDefinition::Cas { value, .. } => write!(f, "cas {value}"),
        }?;
        self.patterns().iter().try_for_each(|pattern| write!(f, " {pattern}"))
    }
}

/// Why a text defines no index.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} defines no index: {what}")]
pub struct IndexDefinitionError {
    /// The definition or the path.
    pub text: String,
    /// What is wrong, and what to write instead.
    pub what: &'static str,
}

fn refused(text: &str, what: &'static str) -> IndexDefinitionError {
    IndexDefinitionError { text: text.to_owned(), what }
}

impl FromStr for IndexDefinition {
    type Err = IndexDefinitionError;

    fn from_str(text: &str) -> Result<IndexDefinition, IndexDefinitionError> {
        let mut words = text.split_ascii_whitespace();
        let kind = words.next().unwrap_or("");
        let value = match kind {
            "content" | "cas" => match words.next() {
                Some("text") => ValueType::Text,
                Some("number") => ValueType::Number,
                _ => return Err(refused(text, "behind content and cas comes text or number")),
            },
            _ => ValueType::Text,
        };
        let patterns: Vec<PathPattern> = words.map(str::parse).collect::<Result<_, _>>()?;
        match kind {
            "name" | "content" if !patterns.is_empty() => {
                Err(refused(text, "only path and cas are restricted to paths"))
            }
            "name" => Ok(IndexDefinition::Name),
            "content" => Ok(IndexDefinition::Content { value }),
            "path" => Ok(IndexDefinition::Path { patterns }),
            "cas" if !patterns.iter().all(PathPattern::has_content) => {
                Err(refused(text, "an element has no content of its own; end its path in /text()"))
            }
            "cas" => Ok(IndexDefinition::Cas { value, patterns }),
            _ => Err(refused(text, "the first word is name, path, content or cas")),
        }
    }
}

/// The last part of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Element(Option<QName>),
    Attribute(Option<QName>),
    Text,
}

impl Test {
    fn borrowed(&self) -> PathTest<'_> {
        match self {
            Test::Element(name) => PathTest::Element(name.as_ref()),
            Test::Attribute(name) => PathTest::Attribute(name.as_ref()),
            Test::Text => PathTest::Text,
        }
    }
}

/// A path from the document down, as in `/site//item/@id`: child (`/`) and descendant (`//`) steps
/// with a name or `*`; the last may be an attribute (`@id`, `@*`) or `text()`. A name in a
/// namespace has its URI in braces in front: `//{urn:example}item`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    steps: Vec<(Below, Test)>,
}

impl PathPattern {
    pub(super) fn steps(&self) -> Vec<Step<'_>> {
        self.steps.iter().map(|(below, test)| (*below, test.borrowed())).collect()
    }

    /// Returns whether the nodes on the path have content.
    fn has_content(&self) -> bool {
        !matches!(self.steps.last(), Some((_, Test::Element(_))))
    }
}

impl FromStr for PathPattern {
    type Err = IndexDefinitionError;

    fn from_str(text: &str) -> Result<PathPattern, IndexDefinitionError> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if steps.last().is_some_and(|(_, test)| !matches!(test, Test::Element(_))) {
                return Err(refused(text, "nothing is below an attribute or a text"));
            }
            let below = if let Some(after) = rest.strip_prefix("//") {
                rest = after;
                Below::Anywhere
            } else if let Some(after) = rest.strip_prefix('/') {
                rest = after;
                Below::Directly
            } else {
                return Err(refused(text, "each step of a path begins with / or //"));
            };
            let (step, after) = take_test(rest).map_err(|what| refused(text, what))?;
            steps.push((below, step));
            rest = after;
        }
        match steps.len() {
            0 => Err(refused(text, "a path has at least one step")),
            1..=STEPS_MAX => Ok(PathPattern { steps }),
            _ => Err(refused(text, "a path has at most 63 steps")),
        }
    }
}

/// Takes what a node has to be off the front of a step.
fn take_test(text: &str) -> Result<(Test, &str), &'static str> {
    let (is_attribute, text) = match text.strip_prefix('@') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (namespace, text) = match text.strip_prefix('{') {
        Some(rest) => rest.split_once('}').ok_or("a namespace ends with }")?,
        None => ("", text),
    };
    if namespace.contains(|c: char| c.is_whitespace() || c == '{') {
        return Err("a namespace in a path has no spaces and no braces");
    }
    let (name, rest) = text.split_at(text.find('/').unwrap_or(text.len()));
    if name == "text()" && !is_attribute && namespace.is_empty() {
        return Ok((Test::Text, rest));
    }
    let name = match name {
        "*" if namespace.is_empty() => None,
        name if is_name(name) => Some(QName { namespace: namespace.into(), ..QName::local(name) }),
        _ => return Err("a step is a name, {uri}name, *, @name, @* or text()"),
    };
    Ok((if is_attribute { Test::Attribute(name) } else { Test::Element(name) }, rest))
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (below, test) in &self.steps {
            f.write_str(if *below == Below::Directly { "/" } else { "//" })?;
            let name = match test {
                Test::Text => {
                    f.write_str("text()")?;
                    continue;
                }
                Test::Element(name) => name,
                Test::Attribute(name) => {
                    f.write_str("@")?;
                    name
                }
            };
            match name {
                None => f.write_str("*")?,
                Some(name) if name.namespace.is_empty() => f.write_str(&name.local)?,
                Some(name) => write!(f, "{{{}}}{}", name.namespace, name.local)?,
            }
        }
        Ok(())
    }
}
