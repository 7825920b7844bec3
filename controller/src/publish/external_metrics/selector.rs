//! Parses label selectors (`a=b,c in (d,e),!f`), which kube can only match and print. Grammar of
//! `k8s.io/apimachinery/pkg/labels` without numeric `>` and `<`.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::vec::IntoIter;

use kube::core::{Expression, Selector};
use wva_crds::settings::{is_label_key, is_label_value};

/// Why a text is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// Another token is expected.
    #[error("found {found:?}, expected: {expected}")]
    Unexpected {
        /// The token found; empty at the end.
        found: String,
        /// The tokens expected.
        expected: &'static str,
    },
    /// The label key is invalid.
    #[error(
        "{0:?} is not a label key; expected [prefix/]name, with a name of at most 63 characters of [A-Za-z0-9_.-]"
    )]
    Key(String),
    /// The label value is invalid.
    #[error(
        "{0:?} is not a label value; expected at most 63 characters of [A-Za-z0-9_.-], a letter or digit at both ends"
    )]
    Value(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Symbol(&'static str),
}

const SYMBOLS: &[&str] = &["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn tokens(mut text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    loop {
        text = text.trim_start_matches([' ', '\t', '\r', '\n']);
        if text.is_empty() {
            return tokens;
        }
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| text.starts_with(**symbol)) {
            tokens.push(Token::Symbol(symbol));
            text = &text[symbol.len()..];
        } else {
            let end =
                text.find([' ', '\t', '\r', '\n', '=', '!', '(', ')', ',', '>', '<']).unwrap_or(text.len());
            tokens.push(Token::Word(text[..end].to_owned()));
            text = &text[end..];
        }
    }
}

struct Parser(Peekable<IntoIter<Token>>);

impl Parser {
    fn take(&mut self, symbol: &str) -> bool {
        self.0.next_if(|token| matches!(token, Token::Symbol(s) if *s == symbol)).is_some()
    }

    fn word(&mut self) -> Option<String> {
        match self.0.next_if(|token| matches!(token, Token::Word(_)))? {
            Token::Word(word) => Some(word),
            Token::Symbol(_) => None,
        }
    }

    fn unexpected(&mut self, expected: &'static str) -> SelectorError {
        let found = match self.0.next() {
            Some(Token::Word(word)) => word,
            Some(Token::Symbol(symbol)) => symbol.to_owned(),
            None => String::new(),
        };
        SelectorError::Unexpected { found, expected }
    }

    fn requirement(&mut self) -> Result<Expression, SelectorError> {
        let absent = self.take("!");
        let Some(key) = self.word() else { return Err(self.unexpected("!, or a label key")) };
        if !is_label_key(&key) {
            return Err(SelectorError::Key(key));
        }
        if absent {
            return Ok(Expression::DoesNotExist(key));
        }
        if self.take("=") || self.take("==") {
            return Ok(Expression::Equal(key, self.value()?));
        }
        if self.take("!=") {
            return Ok(Expression::NotEqual(key, self.value()?));
        }
        match self.0.peek() {
            None | Some(Token::Symbol(",")) => Ok(Expression::Exists(key)),
            Some(Token::Word(word)) if word == "in" => Ok(Expression::In(key, self.set()?)),
            Some(Token::Word(word)) if word == "notin" => Ok(Expression::NotIn(key, self.set()?)),
            Some(_) => Err(self.unexpected("in, notin, =, ==, !=, ',' or the end")),
        }
    }

    fn value(&mut self) -> Result<String, SelectorError> {
        let value = self.word().unwrap_or_default();
        if is_label_value(&value) { Ok(value) } else { Err(SelectorError::Value(value)) }
    }

    /// Empty elements are the empty value, also in `()`.
    fn set(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        self.0.next();
        if !self.take("(") {
            return Err(self.unexpected("'('"));
        }
        let mut values = BTreeSet::from([self.value()?]);
        while self.take(",") {
            values.insert(self.value()?);
        }
        if self.take(")") { Ok(values) } else { Err(self.unexpected("',' or ')'")) }
    }
}

/// Parses a selector. An empty one selects everything.
///
/// # Errors
/// [`SelectorError`] names the token found and the expected ones.
pub fn parse(text: &str) -> Result<Selector, SelectorError> {
    let mut parser = Parser(tokens(text).into_iter().peekable());
    let mut selector = Selector::default();
    if parser.0.peek().is_none() {
        return Ok(selector);
    }
    loop {
        selector.extend(parser.requirement()?);
        if parser.0.peek().is_none() {
            return Ok(selector);
        }
        if !parser.take(",") {
            return Err(parser.unexpected("',' or the end"));
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::SelectorExt;

    use super::*;

    #[track_caller]
    fn matches(text: &str, wanted: bool) {
        let labels = [("variant_name", "a"), ("exported_namespace", "prod"), ("in", "in"), ("empty", "")];
        let labels = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        assert_eq!(parse(text).unwrap().matches(&labels), wanted, "{text}");
    }

    #[test]
    fn selects_like_the_api_server() {
        let yes = [
            "",
            "  ",
            "variant_name=a",
            "variant_name == a",
            " variant_name = a , exported_namespace=prod ",
            "variant_name",
            "!absent",
            "! absent",
            "variant_name!=b",
            "absent!=b",
            "variant_name in (a,b)",
            "variant_name in(b, a)",
            "variant_name notin (b)",
            "absent notin (b)",
            "variant_name in (a),exported_namespace notin (dev,test),!absent",
            "in in (in)",
            "in=in",
            "empty=",
            "empty in ()",
            "empty in (,b)",
            "empty in (b,)",
            "absent!=",
        ];
        let no = [
            "variant_name=b", "variant_name!=a", "absent", "!variant_name", "variant_name in (b,c)",
            "absent in (a)", "variant_name notin (a,b)", "variant_name=", "absent=",
            "variant_name=a,exported_namespace=dev",
        ];
        for text in yes {
            matches(text, true);
        }
        for text in no {
            matches(text, false);
        }
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let unexpected = |found: &str, expected| SelectorError::Unexpected { found: found.into(), expected };
        let operators = "in, notin, =, ==, !=, ',' or the end";
        let rows = [
            (",", unexpected(",", "!, or a label key")),
            ("a,", unexpected("", "!, or a label key")),
            ("a,,b", unexpected(",", "!, or a label key")),
            ("a=b c", unexpected("c", "',' or the end")),
            ("a b", unexpected("b", operators)),
            ("a > 5", unexpected(">", operators)),
            ("a (b)", unexpected("(", operators)),
            ("a in b", unexpected("b", "'('")),
            ("a in (b", unexpected("", "',' or ')'")),
            ("a in (b c)", unexpected("c", "',' or ')'")),
            ("!a=b", unexpected("=", "',' or the end")),
            ("a!==b", unexpected("=", "',' or the end")),
            ("a=!b", unexpected("!", "',' or the end")),
            ("a/b/c", SelectorError::Key("a/b/c".into())),
            ("A_/b", SelectorError::Key("A_/b".into())),
            ("-a=b", SelectorError::Key("-a".into())),
            ("a=b\"", SelectorError::Value("b\"".into())),
            ("a in (b-)", SelectorError::Value("b-".into())),
        ];
        for (text, error) in rows {
            assert_eq!(parse(text), Err(error), "{text}");
        }
        let long = "x".repeat(64);
        assert_eq!(parse(&format!("a={long}")), Err(SelectorError::Value(long.clone())));
        assert_eq!(parse(&long), Err(SelectorError::Key(long)));
    }
}
