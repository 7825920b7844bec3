//! Label matchers of `wva_desired_replicas` in the query of a ScaledObject.

use std::iter::Peekable;
use std::str::Chars;

use wva_crds::names::{DESIRED_REPLICAS_METRIC, LEGACY_DESIRED_REPLICAS_METRIC};

use crate::readers::{Operator, Requirement, SeriesSelector};

const QUOTES: [char; 3] = ['"', '\'', '`'];

/// One selector for each use of the metric. A selector that cannot be read requires nothing.
#[must_use]
pub(crate) fn selectors(query: &str) -> Vec<SeriesSelector> {
    let uses = [DESIRED_REPLICAS_METRIC, LEGACY_DESIRED_REPLICAS_METRIC].into_iter().flat_map(|metric| {
        let after = move |(at, _): (usize, &str)| {
            let (before, rest) = (&query[..at], &query[at + metric.len()..]);
            match list_around(before) {
                Some(start) => &query[start..],
                // A recording rule names its metric after the one that it reads.
                None if rest.starts_with(':') => rest.trim_start_matches(is_name).trim_start(),
                None if rest.starts_with(is_name) => "",
                None => rest.trim_start(),
            }
        };
        query.match_indices(metric).map(after)
    });
    uses.map(|rest| SeriesSelector(matchers(rest).unwrap_or_default().into())).collect()
}

/// Position of the list that has the metric as a value of `__name__`, or as a quoted name without a label.
fn list_around(before: &str) -> Option<usize> {
    let start = before.rfind('{').filter(|start| !before[*start..].contains('}'))?;
    let matcher = before[start + 1..].rsplit(',').next().unwrap_or_default().trim_start();
    let value = matcher.strip_prefix("__name__").and_then(|rest| rest.trim_start().strip_prefix('='));
    let value = value.map_or(matcher, |value| value.strip_prefix('~').unwrap_or(value).trim_start());
    value.starts_with(QUOTES).then_some(start)
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_:".contains(c)
}

/// `None` if `rest` does not begin with a valid list of matchers.
fn matchers(rest: &str) -> Option<Vec<Requirement>> {
    let mut chars = rest.strip_prefix('{')?.chars().peekable();
    let mut all = Vec::new();
    loop {
        skip_spaces(&mut chars);
        if chars.next_if_eq(&'}').is_some() {
            return Some(all);
        }
        // The name of the metric.
        if chars.peek().is_some_and(|c| QUOTES.contains(c)) {
            quoted(&mut chars)?;
            skip_spaces(&mut chars);
            chars.next_if_eq(&',');
            continue;
        }
        let mut key = String::new();
        while let Some(c) = chars.next_if(|c| is_name(*c)) {
            key.push(c);
        }
        skip_spaces(&mut chars);
        let operator = match (chars.next()?, chars.peek()?) {
            ('!', '=') => Some(Operator::NotIn),
            ('=' | '!', '~') => None,
            ('=', _) => Some(Operator::In),
            _ => return None,
        };
        chars.next_if(|c| "=~".contains(*c));
        skip_spaces(&mut chars);
        let value = quoted(&mut chars)?;
        // A regular expression requires nothing: any value may match it.
        all.extend(operator.map(|operator| Requirement {
            key: key.into(),
            operator,
            values: [value.into()].into(),
        }));
        skip_spaces(&mut chars);
        chars.next_if_eq(&',');
    }
}

fn quoted(chars: &mut Peekable<Chars<'_>>) -> Option<String> {
    let quote = chars.next_if(|c| QUOTES.contains(c))?;
    let mut value = String::new();
    loop {
        match chars.next()? {
            c if c == quote => return Some(value),
            '\\' if quote != '`' => value.push(chars.next()?),
            c => value.push(c),
        }
    }
}

fn skip_spaces(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| c.is_whitespace()).is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::SeriesLabels;

    /// The requirement that variant `a` of namespace `prod` does not meet, for each use of the metric.
    #[track_caller]
    fn check(query: &str, want: &[Option<&str>]) {
        let labels = SeriesLabels::published("prod", "a", "H100", None);
        let found = selectors(query);
        let found: Vec<_> = found.iter().map(|s| s.contradiction(&labels).map(|c| c.selected)).collect();
        assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), want, "{query}");
    }

    #[test]
    fn reads_matchers_of_the_metric() {
        check("max(wva_desired_replicas{variant_name=\"a\",exported_namespace=\"prod\"})", &[None]);
        check("max(wva_desired_replicas{ variant_name = 'b' , })", &[Some("variant_name=b")]);
        check("inferno_desired_replicas{variant_name!=\"a\"}", &[Some("variant_name notin (a)")]);
        check("wva_desired_replicas{exported_namespace=`dev`}", &[Some("exported_namespace=dev")]);
        check("wva_desired_replicas", &[None]);
        check("{__name__=\"wva_desired_replicas\",variant_name=\"b\"}", &[Some("variant_name=b")]);
        check("wva_desired_replicas {variant_name=\"b\"}", &[Some("variant_name=b")]);
        check("wva_desired_replicas\n  {variant_name=\"b\"}", &[Some("variant_name=b")]);
        check("{\"wva_desired_replicas\", variant_name=\"b\"}", &[Some("variant_name=b")]);
        check("{variant_name=\"b\", \"wva_desired_replicas\"}", &[Some("variant_name=b")]);
        check(
            "{__name__=~\"wva_desired_replicas|inferno_desired_replicas\",variant_name=\"b\"}",
            &[Some("variant_name=b"), Some("variant_name=b")],
        );
        check("wva_desired_replicas:max{variant_name=\"b\"}", &[Some("variant_name=b")]);
        check("up{variant_name=\"b\"}", &[]);
        check("label_replace(up{a=\"b\"}, \"c\", \"wva_desired_replicas\", \"d\", \"\")", &[None]);
        check(
            "wva_desired_replicas{variant_name=\"a\"} or inferno_desired_replicas{variant_name=\"b\"}",
            &[None, Some("variant_name=b")],
        );
    }

    #[test]
    fn unreadable_matchers_require_nothing() {
        for query in [
            "wva_desired_replicas{variant_name=~\"b|c\"}",
            "wva_desired_replicas{variant_name!~\"a\"}",
            "wva_desired_replicas{variant_name=",
            "wva_desired_replicas{variant_name=\"b",
            "wva_desired_replicas{variant_name>\"b\"}",
            "wva_desired_replicas_old{variant_name=\"b\"}",
        ] {
            check(query, &[None]);
        }
    }
}
