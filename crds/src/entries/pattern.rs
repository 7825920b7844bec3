//! The regular expression of a Go duration above 0, for JSON Schemas. It is made from the table of units rather than
//! written by hand, and uses nothing that one of the dialects in use (ECMA-262, RE2, Rust) lacks: no look-around.

/// A unit, the most digits its whole part may have, and how many digits of its fraction are worth a nanosecond.
///
/// A part is below 10^18 ns, so that [`MOST_PARTS`] of them stay within the 292 years that a Go duration can hold. A
/// regular expression cannot add: from 100000h (11 years) on, a text may be refused that is a duration.
const UNITS: &[(&str, u32, u32)] = &[
    ("h", 5, 12),
    ("m", 7, 10),
    ("s", 9, 9),
    ("ms", 12, 6),
    ("[uµμ]s", 15, 3),
    // A fraction of a nanosecond is cut off.
    ("ns", 18, 0),
];

/// Parts before and after the one that is above 0: a text of five parts always fits.
const OTHER_PARTS: u32 = 4;

/// Parts of a duration at most.
#[cfg(test)]
const MOST_PARTS: u32 = 2 * OTHER_PARTS + 1;

/// Matches what [`crate::entries::PositiveDuration`] reads, up to 99999h in five parts.
pub(super) fn duration_pattern() -> String {
    let any = UNITS
        .iter()
        .map(|(unit, whole, _)| format!(r"(0*[0-9]{{1,{whole}}}(\.[0-9]*)?|\.[0-9]+){unit}"))
        .collect::<Vec<_>>()
        .join("|");
    let above_zero = UNITS.iter().map(|unit| part_above_zero(*unit)).collect::<Vec<_>>().join("|");
    format!(r"^\+?({any}){{0,{OTHER_PARTS}}}({above_zero})({any}){{0,{OTHER_PARTS}}}$")
}

/// Either the whole part is above 0, or one of the digits of the fraction that count is.
fn part_above_zero((unit, whole, fraction): (&str, u32, u32)) -> String {
    let more = whole - 1;
    let by_whole = format!(r"0*[1-9][0-9]{{0,{more}}}(\.[0-9]*)?");
    if fraction == 0 {
        return format!("{by_whole}{unit}");
    }
    let zeros = fraction - 1;
    format!(r"({by_whole}|0*\.0{{0,{zeros}}}[1-9][0-9]*){unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GoDuration;

    #[test]
    fn the_longest_text_that_matches_is_a_duration() {
        for (unit, whole, _) in UNITS {
            let unit = unit.replace("[uµμ]", "u");
            let nines = "9".repeat(usize::try_from(*whole).unwrap());
            let text = format!("{nines}.{nines}{unit}").repeat(usize::try_from(MOST_PARTS).unwrap());
            assert!(text.parse::<GoDuration>().is_ok(), "{text}");
        }
    }
}
