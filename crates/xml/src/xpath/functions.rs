//! The core function library (section 4).

use crate::name::QName;
use crate::tree::{Kind, Tree, XML_NAMESPACE};
use crate::xpath::ast::{Expr, Function};
use crate::xpath::eval::{Context, Failure, Found, Items, Lazy, Run};
use crate::xpath::order;
use crate::xpath::value::{self, Item};

/// Calls a function. The parser has checked the number of arguments; one that is missing is the
/// optional one, which defaults to the context node.
pub(crate) fn call<'a, T: Tree>(
    run: Run<'a, T>,
    function: Function,
    arguments: &'a [Expr],
    context: &Context<T::Node>,
) -> Result<Lazy<'a, T>, Failure<T>> {
    let call = Call { run, arguments, context };
    Ok(match function {
        Function::Last => Lazy::Number(context.size as f64),
        Function::Position => Lazy::Number(context.position as f64),
        Function::Count => Lazy::Number(call.count()?),
        Function::Id => Lazy::Nodes(call.id()?),
        Function::LocalName | Function::NamespaceUri | Function::Name => {
            Lazy::String(call.name(function)?)
        }
        Function::String => Lazy::String(call.string_or_context()?),
        Function::Concat => Lazy::String(call.concat()?),
        Function::StartsWith => Lazy::Boolean(call.string(0)?.starts_with(&*call.string(1)?)),
        Function::Contains => Lazy::Boolean(call.string(0)?.contains(&*call.string(1)?)),
        Function::SubstringBefore => Lazy::String(call.around(|(before, _)| before)?),
        Function::SubstringAfter => Lazy::String(call.around(|(_, after)| after)?),
        Function::Substring => Lazy::String(call.substring()?),
        Function::StringLength => Lazy::Number(call.string_or_context()?.chars().count() as f64),
        Function::NormalizeSpace => {
            Lazy::String(value::normalize_space(&call.string_or_context()?))
        }
        Function::Translate => {
            Lazy::String(value::translate(&call.string(0)?, &call.string(1)?, &call.string(2)?))
        }
        Function::Boolean => Lazy::Boolean(call.boolean()?),
        Function::Not => Lazy::Boolean(!call.boolean()?),
        Function::True => Lazy::Boolean(true),
        Function::False => Lazy::Boolean(false),
        Function::Lang => Lazy::Boolean(call.lang()?),
        Function::Number => Lazy::Number(call.number_or_context()?),
        Function::Sum => Lazy::Number(call.sum()?),
        Function::Floor => Lazy::Number(call.number(0)?.floor()),
        Function::Ceiling => Lazy::Number(call.number(0)?.ceil()),
        Function::Round => Lazy::Number(value::round(call.number(0)?)),
    })
}

struct Call<'a, 'c, T: Tree> {
    run: Run<'a, T>,
    arguments: &'a [Expr],
    context: &'c Context<T::Node>,
}

impl<'a, T: Tree> Call<'a, '_, T> {
    fn string(&self, index: usize) -> Result<String, Failure<T>> {
        self.run.string(&self.arguments[index], self.context)
    }

    fn number(&self, index: usize) -> Result<f64, Failure<T>> {
        self.run.number(&self.arguments[index], self.context)
    }

    fn boolean(&self) -> Result<bool, Failure<T>> {
        self.run.boolean(&self.arguments[0], self.context)
    }

    fn nodes(&self) -> Result<Items<'a, T>, Failure<T>> {
        self.run.nodes(&self.arguments[0], self.context)
    }

    fn string_or_context(&self) -> Result<String, Failure<T>> {
        if self.arguments.is_empty() {
            return self.run.string_value(&self.context.item);
        }
        self.string(0)
    }

    fn number_or_context(&self) -> Result<f64, Failure<T>> {
        if self.arguments.is_empty() {
            return Ok(value::number_of(&self.run.string_value(&self.context.item)?));
        }
        self.number(0)
    }

    fn count(&self) -> Result<f64, Failure<T>> {
        let mut count = 0_u64;
        for item in self.nodes()? {
            item?;
            count += 1;
        }
        Ok(count as f64)
    }

    fn sum(&self) -> Result<f64, Failure<T>> {
        let mut sum = 0.0;
        for item in self.nodes()? {
            sum += value::number_of(&self.run.string_value(&item?)?);
        }
        Ok(sum)
    }

    /// The elements with the IDs that the argument lists: its words, or those of each node.
    fn id(&self) -> Result<Items<'a, T>, Failure<T>> {
        let mut found: Vec<Found<T>> = Vec::new();
        let mut find = |words: &str| -> Result<(), Failure<T>> {
            for word in words.split(value::is_space).filter(|word| !word.is_empty()) {
                found.extend(self.run.tree.element_by_id(word)?.map(Item::Node));
            }
            Ok(())
        };
        match self.run.eval(&self.arguments[0], self.context)? {
            Lazy::Nodes(items) => {
                for item in items {
                    find(&self.run.string_value(&item?)?)?;
                }
            }
            other => find(&self.run.string_of(other)?)?,
        }
        order::sort(self.run.tree, Box::new(found.into_iter().map(Ok)))
    }

    /// A part of the name of the context node or of the first node of the argument.
    fn name(&self, part: Function) -> Result<String, Failure<T>> {
        let first = if self.arguments.is_empty() {
            Some(self.context.item.clone())
        } else {
            self.nodes()?.next().transpose()?
        };
        Ok(match first {
            None => String::new(),
            Some(Item::Node(node)) => match (self.run.tree.name(&node)?, part) {
                (None, _) => String::new(),
                (Some(name), Function::LocalName) => name.local.into(),
                (Some(name), Function::NamespaceUri) => name.namespace.into(),
                (Some(name), _) => name.to_string(),
            },
            // The prefix is the local part of a namespace node's name, and it has no namespace.
            Some(Item::Namespace { .. }) if part == Function::NamespaceUri => String::new(),
            Some(Item::Namespace { binding, .. }) => binding.prefix.into(),
        })
    }

    fn concat(&self) -> Result<String, Failure<T>> {
        let mut text = String::new();
        for argument in self.arguments {
            text.push_str(&self.run.string(argument, self.context)?);
        }
        Ok(text)
    }

    fn around(
        &self,
        part: for<'s> fn((&'s str, &'s str)) -> &'s str,
    ) -> Result<String, Failure<T>> {
        let (text, separator) = (self.string(0)?, self.string(1)?);
        Ok(text.split_once(&separator).map_or_else(String::new, |parts| part(parts).to_owned()))
    }

    fn substring(&self) -> Result<String, Failure<T>> {
        let text = self.string(0)?;
        let from = self.number(1)?;
        let length = if self.arguments.len() > 2 { Some(self.number(2)?) } else { None };
        Ok(value::substring(&text, from, length))
    }

    /// Whether the nearest `xml:lang` is the language asked for or a sublanguage of it.
    fn lang(&self) -> Result<bool, Failure<T>> {
        let tree = self.run.tree;
        let wanted = self.string(0)?.to_ascii_lowercase();
        let name =
            QName { prefix: "xml".into(), local: "lang".into(), namespace: XML_NAMESPACE.into() };
        let mut at = match &self.context.item {
            Item::Node(node) => Some(node.clone()),
            Item::Namespace { element, .. } => Some(element.clone()),
        };
        while let Some(node) = at {
            if tree.kind(&node)? == Kind::Element {
                for attribute in tree.attributes(&node)? {
                    if tree.has_name(&attribute, &name)? {
                        let lang = tree.content(&attribute)?.to_ascii_lowercase();
                        let rest = lang.strip_prefix(&*wanted);
                        return Ok(
                            rest.is_some_and(|rest| matches!(rest.as_bytes(), [] | [b'-', ..]))
                        );
                    }
                }
            }
            at = tree.parent(&node)?;
        }
        Ok(false)
    }
}
