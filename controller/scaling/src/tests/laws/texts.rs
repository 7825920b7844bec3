//! Texts of decisions are for people.

use proptest::prelude::*;

use crate::decide;
use crate::tests::generate::any_case;
use crate::trace::render_with_signals;

/// Longest run of digits after a decimal point.
fn decimals(text: &str) -> usize {
    let fractions = text.split('.').skip(1);
    fractions.map(|rest| rest.bytes().take_while(u8::is_ascii_digit).count()).max().unwrap_or(0)
}

proptest! {
    #[test]
    fn figures_have_at_most_three_decimals(case in any_case()) {
        let text = render_with_signals(&case, &decide(&case));
        prop_assert!(decimals(&text) <= 3, "{text}");
    }
}
