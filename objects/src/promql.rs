//! Label matchers of `wva_desired_replicas` in the query of a ScaledObject.

use std::iter::Peekable;
use std::str::Chars;

use wva_crds::names::{DESIRED_REPLICAS_METRIC, LEGACY_DESIRED_REPLICAS_METRIC};

use crate::readers::{Operator, Requirement, SeriesSelector};

/// One selector for each use of the metric. A selector that cannot be read requires nothing.
#[must_use]
pub(crate) fn selectors(query: &str) -> Vec<SeriesSelector> {
    let uses = [DESIRED_REPLICAS_METRIC, LEGACY_DESIRED_REPLICAS_METRIC].into_iter().flat_map(|metric| {
        let after = move |(at, _): (usize, &str)| {
            let (before, rest) = (&query[..at], &query[at + metric.len()..]);
            rest.starts_with(|c| !is_name(c))
                .then(|| list_around(before).map_or(rest, |start| &query[start..]))
        };
        query.match_indices(metric).map(move |found| after(found).unwrap_or_default())
    });
    uses.map(|rest| SeriesSelector(matchers(rest).unwrap_or_default().into())).collect()
}

/// Position of the list that has the metric as the value of `__name__`.
fn list_around(before: &str) -> Option<usize> {
    let key = before.strip_suffix(['"', '\'', '`'])?.trim_end().strip_suffix('=')?.trim_end();
    before.rfind('{').filter(|_| key.ends_with("__name__"))
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
    let quote = chars.next_if(|c| "\"'`".contains(*c))?;
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
        check("up{variant_name=\"b\"}", &[]);
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
