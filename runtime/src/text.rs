//! Texts of errors.

/// Message of an HTTP answer without its status code in front, which texts name themselves: `404 page not found`.
#[must_use]
pub fn without_code(code: u16, message: &str) -> &str {
    let rest = message
        .strip_prefix(code.to_string().as_str())
        .filter(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
    rest.map_or(message, |rest| rest.trim_start_matches([' ', ':']))
}

/// Error and its causes on one line.
#[must_use]
pub fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |e| e.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_code_is_not_repeated() {
        for (message, want) in [
            ("404 page not found", "page not found"),
            ("404: no", "no"),
            ("4040 pods", "4040 pods"),
            ("no 404", "no 404"),
            ("404", ""),
        ] {
            assert_eq!(without_code(404, message), want);
        }
    }
}
