//! Statements out of their text, by recursive descent.
//!
//! ```text
//! statement  := select | update | insert | delete
//! select     := SELECT item {, item} FROM source {, source | [INNER] JOIN source ON where}
//!               [WHERE where] [GROUP BY sum {, sum}] [ORDER BY sum [ASC|DESC] {, ..}]
//!               [LIMIT sum] [FOR UPDATE]
//! update     := UPDATE source SET name = sum {, name = sum} [WHERE where]
//! insert     := INSERT INTO name (name {, name}) VALUES (sum {, sum}) {, (..)}
//! delete     := DELETE FROM source [WHERE where]
//! item       := sum [[AS] name]            source    := name [[AS] name]
//! where      := predicate {AND predicate}
//! predicate  := sum (= | <> | < | <= | > | >=) sum | sum BETWEEN sum AND sum
//!             | sum IN (sum {, sum}) | sum LIKE sum | sum IS [NOT] NULL
//! sum        := product {(+ | -) product}  product   := primary {* primary}
//! primary    := number | text | ? | NULL | CURRENT_TIMESTAMP | -primary | (sum) | name[.name]
//!             | COUNT(*) | COUNT([DISTINCT] sum) | (SUM | MIN | MAX)(sum)
//! ```
//!
//! Everything else is refused with its place. `a BETWEEN b AND c` becomes two comparisons, and what
//! `ON` says joins what `WHERE` says.

use tidegate_workload::Value;

use super::ast::{
    Aggregate, Comparison, Delete, Expression, Function, Insert, Item, Name, Operator, Order,
    Parsed, Predicate, Select, Source, Update,
};
use super::error::SqlError;
use super::token::{Placed, Token, tokens};

/// Words that are no names.
const RESERVED: [&str; 38] = [
    "all",
    "and",
    "as",
    "asc",
    "between",
    "by",
    "case",
    "cross",
    "current_timestamp",
    "delete",
    "desc",
    "distinct",
    "exists",
    "for",
    "from",
    "full",
    "group",
    "having",
    "in",
    "inner",
    "insert",
    "into",
    "is",
    "join",
    "left",
    "like",
    "limit",
    "natural",
    "not",
    "null",
    "offset",
    "on",
    "or",
    "order",
    "right",
    "select",
    "set",
    "where",
];

/// How deep expressions may be nested, so that no text can exhaust the stack.
const DEPTH_MAX: usize = 64;

/// How many operators a statement may have, for the same reason: each of a long sum holds the sum
/// before it.
const OPERATORS_MAX: usize = 1_000;

type Parse<T> = Result<T, SqlError>;

/// The statement in a text.
pub(super) fn parse(sql: &str) -> Parse<Parsed> {
    let mut parser =
        Parser { tokens: tokens(sql)?, next: 0, parameters: 0, depth: 0, operators: 0 };
    let statement = parser.statement()?;
    parser.accept(";");
    match parser.token() {
        Token::End => Ok(statement),
        _ => parser.refuse("the end of the statement"),
    }
}

struct Parser {
    tokens: Vec<Placed>,
    next: usize,
    /// Places for values so far.
    parameters: usize,
    depth: usize,
    /// Operators so far.
    operators: usize,
}

impl Parser {
    fn statement(&mut self) -> Parse<Parsed> {
        if self.accept_word("select") {
            Ok(Parsed::Select(self.select()?))
        } else if self.accept_word("update") {
            Ok(Parsed::Update(self.update()?))
        } else if self.accept_word("insert") {
            Ok(Parsed::Insert(self.insert()?))
        } else if self.accept_word("delete") {
            self.expect_word("from", "FROM")?;
            let table = self.source()?;
            Ok(Parsed::Delete(Delete { table, filter: self.filter()? }))
        } else {
            self.refuse("SELECT, UPDATE, INSERT or DELETE")
        }
    }

    fn select(&mut self) -> Parse<Select> {
        let items = self.list(Self::item)?;
        self.expect_word("from", "FROM")?;
        let mut from = vec![self.source()?];
        let mut filter = Vec::new();
        loop {
            if self.accept(",") {
                from.push(self.source()?);
            } else if self.accept_word("join") {
                self.join(&mut from, &mut filter)?;
            } else if self.accept_word("inner") {
                self.expect_word("join", "JOIN")?;
                self.join(&mut from, &mut filter)?;
            } else {
                break;
            }
        }
        filter.extend(self.filter()?);
        let group_by =
            if self.accept_words("group", "by")? { self.list(Self::sum)? } else { vec![] };
        let order_by =
            if self.accept_words("order", "by")? { self.list(Self::order)? } else { vec![] };
        let limit = if self.accept_word("limit") { Some(self.sum()?) } else { None };
        let is_for_update = self.accept_words("for", "update")?;
        Ok(Select { items, from, filter, group_by, order_by, limit, is_for_update })
    }

    fn join(&mut self, from: &mut Vec<Source>, filter: &mut Vec<Predicate<Name>>) -> Parse<()> {
        from.push(self.source()?);
        self.expect_word("on", "ON")?;
        self.conditions(filter)
    }

    fn update(&mut self) -> Parse<Update> {
        let table = self.source()?;
        self.expect_word("set", "SET")?;
        let set = self.list(|parser| {
            let name = parser.name()?;
            parser.expect("=", "\"=\"")?;
            Ok((name, parser.sum()?))
        })?;
        Ok(Update { table, set, filter: self.filter()? })
    }

    fn insert(&mut self) -> Parse<Insert> {
        self.expect_word("into", "INTO")?;
        let at = self.at();
        let table = self.identifier("a table")?;
        let columns = self.parenthesised(Self::name)?;
        self.expect_word("values", "VALUES")?;
        let width = columns.len();
        let rows = self.list(|parser| {
            let at = parser.at();
            let row = parser.parenthesised(Self::sum)?;
            if row.len() == width {
                return Ok(row);
            }
            let found = format!("{} values for {width} columns", row.len());
            Err(SqlError::NotSupported { expected: "a value for each column", found, at })
        })?;
        Ok(Insert { table: Source { alias: table.clone(), table, at }, columns, rows })
    }

    fn item(&mut self) -> Parse<Item> {
        let expression = self.sum()?;
        Ok(Item { expression, alias: self.alias()? })
    }

    fn source(&mut self) -> Parse<Source> {
        let at = self.at();
        let table = self.identifier("a table")?;
        let alias = self.alias()?.unwrap_or_else(|| table.clone());
        Ok(Source { table, alias, at })
    }

    fn alias(&mut self) -> Parse<Option<String>> {
        if self.accept_word("as") {
            return self.identifier("a name").map(Some);
        }
        match self.token() {
            Token::Word(word) if !is_reserved(word) => self.identifier("a name").map(Some),
            _ => Ok(None),
        }
    }

    fn order(&mut self) -> Parse<Order<Name>> {
        if matches!(self.token(), Token::Number(_)) {
            return self.refuse("a column or an alias to order by");
        }
        let expression = self.sum()?;
        let is_descending = self.accept_word("desc");
        if !is_descending {
            self.accept_word("asc");
        }
        Ok(Order { expression, is_descending })
    }

    fn filter(&mut self) -> Parse<Vec<Predicate<Name>>> {
        let mut filter = Vec::new();
        if self.accept_word("where") {
            self.conditions(&mut filter)?;
        }
        Ok(filter)
    }

    fn conditions(&mut self, into: &mut Vec<Predicate<Name>>) -> Parse<()> {
        loop {
            self.predicate(into)?;
            if !self.accept_word("and") {
                return Ok(());
            }
        }
    }

    fn predicate(&mut self, into: &mut Vec<Predicate<Name>>) -> Parse<()> {
        let left = self.sum()?;
        let predicate = if let Some(comparison) = self.comparison() {
            Predicate::Compare(left, comparison, self.sum()?)
        } else if self.accept_word("between") {
            let low = self.sum()?;
            self.expect_word("and", "AND")?;
            into.push(Predicate::Compare(left.clone(), Comparison::GreaterOrEqual, low));
            Predicate::Compare(left, Comparison::LessOrEqual, self.sum()?)
        } else if self.accept_word("in") {
            Predicate::In(left, self.parenthesised(Self::sum)?)
        } else if self.accept_word("like") {
            Predicate::Like(left, self.sum()?)
        } else if self.accept_word("is") {
            let is_not = self.accept_word("not");
            self.expect_word("null", "NULL")?;
            if is_not { Predicate::IsNotNull(left) } else { Predicate::IsNull(left) }
        } else {
            return self.refuse("a comparison, BETWEEN, IN, LIKE or IS");
        };
        into.push(predicate);
        Ok(())
    }

    fn comparison(&mut self) -> Option<Comparison> {
        const SIGNS: [(&str, Comparison); 7] = [
            ("=", Comparison::Equal),
            ("<>", Comparison::NotEqual),
            ("!=", Comparison::NotEqual),
            ("<", Comparison::Less),
            ("<=", Comparison::LessOrEqual),
            (">", Comparison::Greater),
            (">=", Comparison::GreaterOrEqual),
        ];
        let (_, comparison) = SIGNS.into_iter().find(|(sign, _)| self.accept(sign))?;
        Some(comparison)
    }

    fn sum(&mut self) -> Parse<Expression<Name>> {
        let mut sum = self.product()?;
        loop {
            let operator = if self.accept("+") {
                Operator::Add
            } else if self.accept("-") {
                Operator::Subtract
            } else {
                return Ok(sum);
            };
            let right = self.product()?;
            sum = self.arithmetic(sum, operator, right)?;
        }
    }

    fn product(&mut self) -> Parse<Expression<Name>> {
        let mut product = self.primary()?;
        while self.accept("*") {
            let right = self.primary()?;
            product = self.arithmetic(product, Operator::Multiply, right)?;
        }
        Ok(product)
    }

    fn arithmetic(
        &mut self,
        left: Expression<Name>,
        operator: Operator,
        right: Expression<Name>,
    ) -> Parse<Expression<Name>> {
        self.operators += 1;
        if self.operators > OPERATORS_MAX {
            return self.refuse("a statement of fewer operators");
        }
        Ok(Expression::Arithmetic(Box::new(left), operator, Box::new(right)))
    }

    fn primary(&mut self) -> Parse<Expression<Name>> {
        let expression = match self.token().clone() {
            Token::Number(number) => Expression::Literal(Value::Int(number)),
            Token::Text(text) => Expression::Literal(Value::Text(text.into())),
            Token::Parameter => {
                self.parameters += 1;
                Expression::Parameter(self.parameters - 1)
            }
            Token::Sign("-") => {
                self.next += 1;
                let right = Box::new(self.nested(Self::primary)?);
                if let Expression::Literal(Value::Int(number)) = *right {
                    return Ok(Expression::Literal(Value::Int(-number)));
                }
                let zero = Box::new(Expression::Literal(Value::Int(0)));
                return Ok(Expression::Arithmetic(zero, Operator::Subtract, right));
            }
            Token::Sign("(") => {
                self.next += 1;
                let sum = self.nested(Self::sum)?;
                self.expect(")", "\")\"")?;
                return Ok(sum);
            }
            Token::Word(word) if word == "null" => Expression::Literal(Value::Null),
            Token::Word(word) if word == "current_timestamp" => Expression::Now,
            Token::Word(_) => return self.column_or_aggregate(),
            _ => return self.refuse("a value or a column"),
        };
        self.next += 1;
        Ok(expression)
    }

    fn column_or_aggregate(&mut self) -> Parse<Expression<Name>> {
        let is_call =
            self.tokens.get(self.next + 1).is_some_and(|placed| placed.token == Token::Sign("("));
        if !is_call {
            return self.name().map(Expression::Column);
        }
        let function = match self.token() {
            Token::Word(word) if word == "count" => Function::Count,
            Token::Word(word) if word == "sum" => Function::Sum,
            Token::Word(word) if word == "min" => Function::Min,
            Token::Word(word) if word == "max" => Function::Max,
            _ => return self.refuse("COUNT, SUM, MIN, MAX or a column"),
        };
        self.next += 2;
        let aggregate = if function == Function::Count && self.accept("*") {
            Aggregate { function, argument: None }
        } else if function == Function::Count && self.accept_word("distinct") {
            Aggregate { function: Function::CountDistinct, argument: Some(self.argument()?) }
        } else {
            Aggregate { function, argument: Some(self.argument()?) }
        };
        self.expect(")", "\")\"")?;
        Ok(Expression::Aggregate(Box::new(aggregate)))
    }

    /// What an aggregate is of: no other one.
    fn argument(&mut self) -> Parse<Expression<Name>> {
        let at = self.at();
        let argument = self.nested(Self::sum)?;
        if argument.has_aggregate() {
            let found = "an aggregate".to_owned();
            return Err(SqlError::NotSupported { expected: "columns and values", found, at });
        }
        Ok(argument)
    }

    fn name(&mut self) -> Parse<Name> {
        let at = self.at();
        let first = self.identifier("a column")?;
        if self.accept(".") {
            let column = self.identifier("a column")?;
            return Ok(Name { table: Some(first), column, at });
        }
        Ok(Name { table: None, column: first, at })
    }

    fn identifier(&mut self, expected: &'static str) -> Parse<String> {
        match self.token() {
            Token::Word(word) if !is_reserved(word) => {
                let word = word.clone();
                self.next += 1;
                Ok(word)
            }
            _ => self.refuse(expected),
        }
    }

    fn list<T>(&mut self, mut part: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let mut list = vec![part(self)?];
        while self.accept(",") {
            list.push(part(self)?);
        }
        Ok(list)
    }

    fn parenthesised<T>(&mut self, part: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        self.expect("(", "\"(\"")?;
        let list = self.list(part)?;
        self.expect(")", "\")\"")?;
        Ok(list)
    }

    fn nested<T>(&mut self, part: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.depth == DEPTH_MAX {
            return self.refuse("an expression that is nested less deeply");
        }
        self.depth += 1;
        let parsed = part(self);
        self.depth -= 1;
        parsed
    }

    fn token(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |placed| &placed.token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(1, |placed| placed.at)
    }

    fn accept(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.token(), Token::Sign(next) if *next == sign);
        self.next += usize::from(is_next);
        is_next
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.token(), Token::Word(next) if next == word);
        self.next += usize::from(is_next);
        is_next
    }

    /// Two words that stand together or not at all.
    fn accept_words(&mut self, first: &str, second: &'static str) -> Parse<bool> {
        let is_first = self.accept_word(first);
        if is_first {
            self.expect_word(second, second)?;
        }
        Ok(is_first)
    }

    fn expect(&mut self, sign: &str, expected: &'static str) -> Parse<()> {
        if self.accept(sign) { Ok(()) } else { self.refuse(expected) }
    }

    fn expect_word(&mut self, word: &str, expected: &'static str) -> Parse<()> {
        if self.accept_word(word) { Ok(()) } else { self.refuse(expected) }
    }

    fn refuse<T>(&self, expected: &'static str) -> Parse<T> {
        let found = self.token().to_string();
        Err(SqlError::NotSupported { expected, found, at: self.at() })
    }
}

fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(sql: &str) -> Select {
        match parse(sql) {
            Ok(Parsed::Select(select)) => select,
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn operators_bind_as_in_arithmetic_and_places_are_counted() {
        let select = select("SELECT a + b * ? - -3 AS c FROM t WHERE x BETWEEN ? AND 7 AND y = ?");
        let column = |column: &str, at| {
            Box::new(Expression::Column(Name { table: None, column: column.into(), at }))
        };
        let product = Expression::Arithmetic(
            column("b", 12),
            Operator::Multiply,
            Box::new(Expression::Parameter(0)),
        );
        let sum = Expression::Arithmetic(column("a", 8), Operator::Add, Box::new(product));
        let three = Box::new(Expression::Literal(Value::Int(-3)));
        let expected = Expression::Arithmetic(Box::new(sum), Operator::Subtract, three);
        assert_eq!(select.items, [Item { expression: expected, alias: Some("c".into()) }]);
        let x = *column("x", 41);
        let seven = Expression::Literal(Value::Int(7));
        let expected = [
            Predicate::Compare(x.clone(), Comparison::GreaterOrEqual, Expression::Parameter(1)),
            Predicate::Compare(x, Comparison::LessOrEqual, seven),
            Predicate::Compare(*column("y", 63), Comparison::Equal, Expression::Parameter(2)),
        ];
        assert_eq!(select.filter, expected);
    }

    #[test]
    fn both_ways_to_join_are_the_same() {
        let comma = select("SELECT a FROM t x, u y WHERE x.a = y.b AND y.c = 1");
        let joined = select("SELECT a FROM t AS x INNER JOIN u AS y ON x.a = y.b WHERE y.c = 1");
        let names = |select: &Select| -> Vec<(String, String)> {
            select.from.iter().map(|of| (of.table.clone(), of.alias.clone())).collect()
        };
        assert_eq!(names(&comma), names(&joined));
        assert_eq!((comma.filter.len(), joined.filter.len()), (2, 2));
        assert!(!comma.is_for_update);
    }

    #[test]
    fn every_part_of_a_select_has_its_place() {
        let select = select(
            "select i, count(distinct n) m from t group by i order by m desc, i limit ? for update",
        );
        assert_eq!((select.group_by.len(), select.order_by.len()), (1, 2));
        assert!(select.order_by[0].is_descending && !select.order_by[1].is_descending);
        assert_eq!(select.limit, Some(Expression::Parameter(0)));
        assert!(select.is_for_update);
    }

    #[test]
    fn what_is_not_of_the_subset_is_refused_with_its_place() {
        for (sql, what, place) in [
            ("SELECT * FROM t", "\"*\"", 8),
            ("SELECT DISTINCT a FROM t", "\"distinct\"", 8),
            ("SELECT a FROM t WHERE a = 1 OR b = 2", "\"or\"", 29),
            ("SELECT a FROM t WHERE a NOT IN (1)", "\"not\"", 25),
            ("SELECT a FROM t LEFT JOIN u ON a = b", "\"left\"", 17),
            ("SELECT a FROM t GROUP BY a HAVING a > 1", "\"having\"", 28),
            ("SELECT a FROM t ORDER BY 1", "1", 26),
            ("SELECT a FROM t LIMIT 5 OFFSET 2", "\"offset\"", 25),
            ("SELECT lower(a) FROM t", "\"lower\"", 8),
            ("SELECT SUM(COUNT(*)) FROM t", "an aggregate", 12),
            ("SELECT a FROM t WHERE a = (SELECT 1)", "\"select\"", 28),
            ("SELECT a / 2 FROM t", "\"/\"", 10),
            ("SELECT a FROM t WHERE a", "the end", 24),
            ("SELECT a FROM t; SELECT b FROM t", "\"select\"", 18),
            ("INSERT INTO t (a, b) VALUES (1)", "1 values for 2 columns", 29),
            ("INSERT INTO t VALUES (1)", "\"values\"", 15),
            ("CREATE TABLE t (a int)", "\"create\"", 1),
            ("", "the end", 1),
        ] {
            let Err(SqlError::NotSupported { found, at, .. }) = parse(sql) else {
                panic!("{sql}: {:?}", parse(sql))
            };
            assert_eq!((found.as_str(), at), (what, place), "{sql}");
        }
    }

    #[test]
    fn nesting_has_an_end() {
        let deep = format!("SELECT {}a FROM t", "(".repeat(100_000));
        assert!(matches!(parse(&deep), Err(SqlError::NotSupported { at: 73, .. })));
        let deep = format!("SELECT {}a FROM t", "- ".repeat(100_000));
        assert!(matches!(parse(&deep), Err(SqlError::NotSupported { .. })));
        for operator in ["+", "-", "*"] {
            let sum = |count| format!("SELECT a{} FROM t", format!("{operator}1").repeat(count));
            assert!(parse(&sum(OPERATORS_MAX)).is_ok());
            let long = parse(&sum(300_000));
            assert!(matches!(long, Err(SqlError::NotSupported { .. })));
        }
    }
}
