//! Text to syntax tree: a recursive descent over the grammar of `XPath` 1.0 (section 3).
//!
//! There is no separate list of tokens. The grammar's rule for `*`, `and`, `or`, `div` and `mod`
//! (section 3.7: an operator if a token precedes that can end an operand) is what such a parser
//! does anyway, because it knows at each place whether an operand or an operator comes next.
//!
//! Every level of parentheses, predicates and arguments is counted against [`MAX_DEPTH`], and
//! chains are loops, so the stack that parsing takes is bounded whatever the text.

use crate::name::QName;
use crate::tree::XML_NAMESPACE;
use crate::xpath::ast::{
    AXES, Axis, Expr, FUNCTIONS, Function, NodeTest, Operator, Predicate, Start, Step,
};
use crate::xpath::plan::{self, Type};
use crate::xpath::{Prefixes, value};

/// Longest expression in bytes.
pub const MAX_LENGTH: usize = 1 << 20;

/// Deepest nesting of parentheses, predicates and arguments.
pub const MAX_DEPTH: usize = 64;

/// Reason why a text is no expression. Offsets are in bytes from the start of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text does not follow the grammar.
    #[error("at byte {offset}: expected {expected}, found {found}")]
    Unexpected {
        /// Where the parser stopped.
        offset: usize,
        /// What the grammar allows there.
        expected: &'static str,
        /// The text that is there, shortened.
        found: String,
    },
    /// The text is longer than [`MAX_LENGTH`].
    #[error("the expression has {length} bytes; at most {MAX_LENGTH} are allowed")]
    TooLong {
        /// Length of the text in bytes.
        length: usize,
    },
    /// Parentheses, predicates and arguments are nested deeper than [`MAX_DEPTH`].
    #[error("at byte {offset}: nested deeper than {MAX_DEPTH} levels; split the expression")]
    TooDeep {
        /// Where the first level too many begins.
        offset: usize,
    },
    /// The function is not in the core library.
    #[error("at byte {offset}: XPath 1.0 has no function {name}()")]
    UnknownFunction {
        /// Where the name begins.
        offset: usize,
        /// The name as written.
        name: String,
    },
    /// The function takes another number of arguments.
    #[error("at byte {offset}: {name}() does not take {given} arguments")]
    WrongArguments {
        /// Where the name of the function begins.
        offset: usize,
        /// The function.
        name: &'static str,
        /// Number of arguments in the text.
        given: usize,
    },
    /// The prefix is bound to no namespace.
    #[error("at byte {offset}: the prefix {prefix} is not declared; add it to the prefixes")]
    UnknownPrefix {
        /// Where the name begins.
        offset: usize,
        /// The prefix.
        prefix: String,
    },
    /// The axis does not exist.
    #[error("at byte {offset}: XPath 1.0 has no axis {name}::")]
    UnknownAxis {
        /// Where the name begins.
        offset: usize,
        /// The name as written.
        name: String,
    },
    /// A node-set is needed, but the operand is a boolean, a number or a string.
    #[error("at byte {offset}: expected a node-set, found a {found}")]
    NotNodes {
        /// Where the operand begins.
        offset: usize,
        /// The type of the operand.
        found: &'static str,
    },
}

/// Parses an expression and plans its paths.
pub(crate) fn parse(text: &str, prefixes: &Prefixes) -> Result<Expr, ParseError> {
    if text.len() > MAX_LENGTH {
        return Err(ParseError::TooLong { length: text.len() });
    }
    let mut parser = Parser { text, at: 0, depth: 0, prefixes };
    let expr = parser.expr(0)?;
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.unexpected("an operator or the end"));
    }
    Ok(expr)
}

/// Precedence of `or`, `and`, equality, comparison, sum and product, lowest first.
const LEVEL_OR: u8 = 0;
const LEVEL_AND: u8 = 1;

/// Operators that are symbols, the longer before its prefix, with their precedence.
const SYMBOLS: [(&str, Infix); 9] = [
    ("!=", Infix::Operator(2, Operator::NotEqual)),
    ("=", Infix::Operator(2, Operator::Equal)),
    ("<=", Infix::Operator(3, Operator::LessOrEqual)),
    ("<", Infix::Operator(3, Operator::Less)),
    (">=", Infix::Operator(3, Operator::GreaterOrEqual)),
    (">", Infix::Operator(3, Operator::Greater)),
    ("+", Infix::Operator(4, Operator::Add)),
    ("-", Infix::Operator(4, Operator::Subtract)),
    ("*", Infix::Operator(5, Operator::Multiply)),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Infix {
    Or,
    And,
    Operator(u8, Operator),
}

impl Infix {
    fn level(self) -> u8 {
        match self {
            Infix::Or => LEVEL_OR,
            Infix::And => LEVEL_AND,
            Infix::Operator(level, _) => level,
        }
    }

    fn of_word(word: &str) -> Option<Infix> {
        match word {
            "or" => Some(Infix::Or),
            "and" => Some(Infix::And),
            "div" => Some(Infix::Operator(5, Operator::Divide)),
            "mod" => Some(Infix::Operator(5, Operator::Modulo)),
            _ => None,
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    /// Byte offset of what is not read yet.
    at: usize,
    depth: usize,
    prefixes: &'t Prefixes,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches(value::is_space).len();
    }

    /// Reads `symbol` if it is next, white space before it included.
    fn eat(&mut self, symbol: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(symbol);
        if found {
            self.at += symbol.len();
        }
        found
    }

    fn expect(&mut self, symbol: &str, expected: &'static str) -> Result<(), ParseError> {
        if self.eat(symbol) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn unexpected(&self, expected: &'static str) -> ParseError {
        let rest = self.rest();
        let found = if rest.is_empty() {
            "the end".to_owned()
        } else {
            format!("{:?}", rest.chars().take(12).collect::<String>())
        };
        ParseError::Unexpected { offset: self.at, expected, found }
    }

    /// Runs `parse` one level deeper.
    fn nested<R>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<R, ParseError>,
    ) -> Result<R, ParseError> {
        if self.depth == MAX_DEPTH {
            return Err(ParseError::TooDeep { offset: self.at });
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// Operators of at least this precedence and their operands. It calls itself only for a
    /// higher precedence, so no deeper than there are precedences.
    fn expr(&mut self, level: u8) -> Result<Expr, ParseError> {
        let mut left = self.unary()?;
        while let Some((infix, end)) = self.infix(level) {
            self.at = end;
            let right = self.expr(infix.level() + 1)?;
            left = join(left, infix, right);
        }
        Ok(left)
    }

    /// The operator that is next if its precedence is at least `level`, and where it ends.
    fn infix(&mut self, level: u8) -> Option<(Infix, usize)> {
        self.skip_space();
        let rest = self.rest();
        let symbol = SYMBOLS.iter().find(|(symbol, _)| rest.starts_with(symbol));
        let (infix, length) = if let Some((symbol, infix)) = symbol {
            (*infix, symbol.len())
        } else {
            let word = &rest[..name_length(rest)];
            (Infix::of_word(word)?, word.len())
        };
        (infix.level() >= level).then_some((infix, self.at + length))
    }

    fn unary(&mut self) -> Result<Expr, ParseError> {
        let mut signs = 0_usize;
        while self.eat("-") {
            signs += 1;
        }
        let operand = self.union()?;
        Ok(match signs {
            0 => operand,
            _ => Expr::Negate(signs % 2 == 1, Box::new(operand)),
        })
    }

    fn union(&mut self) -> Result<Expr, ParseError> {
        self.skip_space();
        let mut start = self.at;
        let first = self.path()?;
        if !self.eat("|") {
            return Ok(first);
        }
        require_nodes(&first, start)?;
        let mut operands = vec![first];
        loop {
            self.skip_space();
            start = self.at;
            let operand = self.path()?;
            require_nodes(&operand, start)?;
            operands.push(operand);
            if !self.eat("|") {
                return Ok(Expr::Union(operands));
            }
        }
    }

    /// A location path or a filter expression with steps.
    fn path(&mut self) -> Result<Expr, ParseError> {
        self.skip_space();
        let offset = self.at;
        if let Some(primary) = self.primary()? {
            let predicates = self.predicates()?;
            let followed = self.eat_slash();
            if predicates.is_empty() && followed.is_none() {
                return Ok(primary);
            }
            require_nodes(&primary, offset)?;
            let mut steps = Vec::new();
            if let Some(abbreviated) = followed {
                self.steps(&mut steps, abbreviated)?;
            }
            let start = Start::Expr(Box::new(primary));
            return Ok(Expr::Path(plan::path(start, predicates, steps)));
        }
        let mut steps = Vec::new();
        let start = match self.eat_slash() {
            None => {
                self.steps(&mut steps, false)?;
                Start::Context
            }
            Some(abbreviated) => {
                if abbreviated || self.at_step() {
                    self.steps(&mut steps, abbreviated)?;
                }
                Start::Root
            }
        };
        Ok(Expr::Path(plan::path(start, Vec::new(), steps)))
    }

    /// Reads `/` or `//`; `true` for the latter.
    fn eat_slash(&mut self) -> Option<bool> {
        self.eat("/").then(|| {
            let twice = self.rest().starts_with('/');
            self.at += usize::from(twice);
            twice
        })
    }

    fn at_step(&mut self) -> bool {
        self.skip_space();
        let rest = self.rest();
        rest.starts_with(['.', '@', '*']) || name_length(rest) > 0
    }

    /// One or more steps; `abbreviated` says that `//` is before the first.
    fn steps(&mut self, steps: &mut Vec<Step>, mut abbreviated: bool) -> Result<(), ParseError> {
        loop {
            if abbreviated {
                steps.push(Step::new(Axis::DescendantOrSelf, NodeTest::Any, Vec::new()));
            }
            steps.push(self.step()?);
            match self.eat_slash() {
                Some(twice) => abbreviated = twice,
                None => return Ok(()),
            }
        }
    }

    fn step(&mut self) -> Result<Step, ParseError> {
        if self.eat("..") {
            return Ok(Step::new(Axis::Parent, NodeTest::Any, Vec::new()));
        }
        if self.eat(".") {
            return Ok(Step::new(Axis::Itself, NodeTest::Any, Vec::new()));
        }
        let axis = if self.eat("@") { Axis::Attribute } else { self.axis()? };
        let test = self.node_test()?;
        Ok(Step::new(axis, test, self.predicates()?))
    }

    /// Reads `name::` if it is next; otherwise the axis is `child`.
    fn axis(&mut self) -> Result<Axis, ParseError> {
        self.skip_space();
        let start = self.at;
        let word = &self.rest()[..name_length(self.rest())];
        self.at += word.len();
        if word.is_empty() || !self.eat("::") {
            self.at = start;
            return Ok(Axis::Child);
        }
        match AXES.iter().find(|(name, _)| *name == word) {
            Some((_, axis)) => Ok(*axis),
            None => Err(ParseError::UnknownAxis { offset: start, name: word.to_owned() }),
        }
    }

    fn node_test(&mut self) -> Result<NodeTest, ParseError> {
        if self.eat("*") {
            return Ok(NodeTest::Principal);
        }
        let start = self.at;
        let Some((prefix, local)) = self.name() else {
            return Err(self.unexpected("a step: a name, *, ., .., @ or a node test"));
        };
        if prefix.is_none() && self.eat("(") {
            return self.kind_test(local, start);
        }
        let namespace = match prefix {
            Some(prefix) => self.namespace(prefix, start)?,
            None => "".into(),
        };
        Ok(match local {
            "*" => NodeTest::Namespace(namespace),
            _ => NodeTest::Name(QName {
                prefix: prefix.unwrap_or("").into(),
                local: local.into(),
                namespace,
            }),
        })
    }

    fn kind_test(&mut self, word: &str, start: usize) -> Result<NodeTest, ParseError> {
        let test = match word {
            "node" => NodeTest::Any,
            "text" => NodeTest::Text,
            "comment" => NodeTest::Comment,
            "processing-instruction" => {
                let target = self.literal()?.map(QName::local);
                NodeTest::ProcessingInstruction(target)
            }
            _ => {
                self.at = start;
                return Err(self.unexpected("a step"));
            }
        };
        self.expect(")", ")")?;
        Ok(test)
    }

    fn predicates(&mut self) -> Result<Vec<Predicate>, ParseError> {
        let mut predicates = Vec::new();
        while self.eat("[") {
            let expr = self.nested(|parser| parser.expr(0))?;
            self.expect("]", "an operator or ]")?;
            predicates.push(plan::predicate(expr));
        }
        Ok(predicates)
    }

    /// A variable, literal, number, parenthesis or call; `None` if a location path is next.
    fn primary(&mut self) -> Result<Option<Expr>, ParseError> {
        if self.eat("$") {
            return self.variable().map(Some);
        }
        if self.eat("(") {
            let expr = self.nested(|parser| parser.expr(0))?;
            self.expect(")", "an operator or )")?;
            return Ok(Some(expr));
        }
        if let Some(literal) = self.literal()? {
            return Ok(Some(Expr::Literal(literal.to_owned())));
        }
        let digits = value::number_length(self.rest());
        if digits > 0 {
            let number = value::number_of(&self.rest()[..digits]);
            self.at += digits;
            return Ok(Some(Expr::Number(number)));
        }
        self.call()
    }

    fn variable(&mut self) -> Result<Expr, ParseError> {
        let start = self.at;
        match self.name() {
            Some((prefix, local)) if local != "*" => {
                let namespace = match prefix {
                    Some(prefix) => self.namespace(prefix, start)?,
                    None => "".into(),
                };
                let prefix = prefix.unwrap_or("").into();
                Ok(Expr::Variable(QName { prefix, local: local.into(), namespace }))
            }
            _ => {
                self.at = start;
                Err(self.unexpected("the name of a variable"))
            }
        }
    }

    fn literal(&mut self) -> Result<Option<&'t str>, ParseError> {
        self.skip_space();
        let quote = match self.rest().as_bytes().first() {
            Some(b'"') => '"',
            Some(b'\'') => '\'',
            _ => return Ok(None),
        };
        let inner = &self.rest()[1..];
        if let Some(length) = inner.find(quote) {
            self.at += length + 2;
            return Ok(Some(&inner[..length]));
        }
        self.at = self.text.len();
        Err(self.unexpected("the closing quote of a string"))
    }

    fn call(&mut self) -> Result<Option<Expr>, ParseError> {
        let start = self.at;
        let Some((prefix, local)) = self.name() else { return Ok(None) };
        let is_kind = matches!(local, "node" | "text" | "comment" | "processing-instruction");
        if local == "*" || (prefix.is_none() && is_kind) || !self.eat("(") {
            self.at = start;
            return Ok(None);
        }
        let known = FUNCTIONS.iter().find(|entry| prefix.is_none() && entry.0 == local);
        let Some((name, function, low, high)) = known.copied() else {
            let name =
                prefix.map_or_else(|| local.to_owned(), |prefix| format!("{prefix}:{local}"));
            return Err(ParseError::UnknownFunction { offset: start, name });
        };
        let arguments = self.nested(|parser| parser.arguments(function))?;
        if !(low..=high).contains(&arguments.len()) {
            let given = arguments.len();
            return Err(ParseError::WrongArguments { offset: start, name, given });
        }
        Ok(Some(Expr::Call(function, arguments)))
    }

    fn arguments(&mut self, function: Function) -> Result<Vec<Expr>, ParseError> {
        let mut arguments = Vec::new();
        if self.eat(")") {
            return Ok(arguments);
        }
        loop {
            self.skip_space();
            let start = self.at;
            let argument = self.expr(0)?;
            if function.wants_nodes() {
                require_nodes(&argument, start)?;
            }
            arguments.push(argument);
            if self.eat(")") {
                return Ok(arguments);
            }
            self.expect(",", "an operator, a comma or )")?;
        }
    }

    /// Reads `local`, `prefix:local` or `prefix:*`.
    fn name(&mut self) -> Option<(Option<&'t str>, &'t str)> {
        self.skip_space();
        let rest = self.rest();
        let first = name_length(rest);
        if first == 0 {
            return None;
        }
        let after = rest[first..].strip_prefix(':').unwrap_or("");
        let second = if after.starts_with('*') { 1 } else { name_length(after) };
        if second == 0 {
            self.at += first;
            return Some((None, &rest[..first]));
        }
        self.at += first + 1 + second;
        Some((Some(&rest[..first]), &after[..second]))
    }

    fn namespace(&self, prefix: &str, offset: usize) -> Result<Box<str>, ParseError> {
        if prefix == "xml" {
            return Ok(XML_NAMESPACE.into());
        }
        match self.prefixes.get(prefix) {
            Some(uri) => Ok(uri.into()),
            None => Err(ParseError::UnknownPrefix { offset, prefix: prefix.to_owned() }),
        }
    }
}

/// Appends an operand to a chain of the same precedence, or starts a chain. All operators are
/// left-associative, so a chain in parentheses on the left is the same chain.
fn join(left: Expr, infix: Infix, right: Expr) -> Expr {
    match (infix, left) {
        (Infix::Or, Expr::Or(mut operands)) => {
            operands.push(right);
            Expr::Or(operands)
        }
        (Infix::Or, left) => Expr::Or(vec![left, right]),
        (Infix::And, Expr::And(mut operands)) => {
            operands.push(right);
            Expr::And(operands)
        }
        (Infix::And, left) => Expr::And(vec![left, right]),
        (Infix::Operator(_, operator), Expr::Chain(first, mut rest)) => {
            // Whatever its precedence: what is on the left is computed first.
            rest.push((operator, right));
            Expr::Chain(first, rest)
        }
        (Infix::Operator(_, operator), left) => {
            Expr::Chain(Box::new(left), vec![(operator, right)])
        }
    }
}

fn require_nodes(expr: &Expr, offset: usize) -> Result<(), ParseError> {
    let found = match plan::type_of(expr) {
        Type::Nodes | Type::Unknown => return Ok(()),
        Type::Boolean => "boolean",
        Type::Number => "number",
        Type::String => "string",
    };
    Err(ParseError::NotNodes { offset, found })
}

/// Length of the name without colon (`NCName`) at the start; 0 if there is none.
fn name_length(text: &str) -> usize {
    let mut chars = text.char_indices();
    match chars.next() {
        Some((_, first)) if is_name_start(first) => {}
        _ => return 0,
    }
    chars.find(|(_, c)| !is_name_char(*c)).map_or(text.len(), |(at, _)| at)
}

/// `NameStartChar` of *XML 1.0* (fifth edition, section 2.3) without the colon.
fn is_name_start(c: char) -> bool {
    matches!(c,
        'A'..='Z' | '_' | 'a'..='z' | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}'
        | '\u{F8}'..='\u{2FF}' | '\u{370}'..='\u{37D}' | '\u{37F}'..='\u{1FFF}'
        | '\u{200C}'..='\u{200D}' | '\u{2070}'..='\u{218F}' | '\u{2C00}'..='\u{2FEF}'
        | '\u{3001}'..='\u{D7FF}' | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}'
        | '\u{10000}'..='\u{EFFFF}')
}

/// `NameChar` of *XML 1.0* (fifth edition, section 2.3) without the colon.
fn is_name_char(c: char) -> bool {
    is_name_start(c)
        || matches!(c, '-' | '.' | '0'..='9' | '\u{B7}' | '\u{300}'..='\u{36F}'
            | '\u{203F}'..='\u{2040}')
}
