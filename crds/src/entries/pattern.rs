//! The regular expression of a Go duration above 0, for JSON Schemas. It is made from the table of units rather than
//! written by hand, and uses nothing that one of the dialects in use (ECMA-262, RE2, Rust) lacks: no look-around.

/// A unit, the most digits its whole part may have, and how many digits of its fraction are worth a nanosecond.
///
/// At most [`MOST_PARTS`] parts of fewer than so many digits stay below the 292 years that a Go duration can hold:
/// each is below 6 * 10^17 ns. A regular expression cannot add, so what is longer (100000h in one part) is refused.
const UNITS: &[(&str, u32, u32)] = &[
    ("h", 5, 12),
    ("m", 7, 10),
    ("s", 8, 9),
    ("ms", 11, 6),
    ("[uµμ]s", 14, 3),
    // A fraction of a nanosecond is cut off.
    ("ns", 17, 0),
];

/// Parts before and after the one that is above 0. There are six units; a text that names one twice still fits.
const OTHER_PARTS: u32 = 5;

/// Parts of a duration at most.
#[cfg(test)]
const MOST_PARTS: u32 = 2 * OTHER_PARTS + 1;

/// Matches what [`crate::entries::PositiveDuration`] reads, up to about 11 years a part.
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
    match fraction {
        0 => format!("{by_whole}{unit}"),
        _ => {
            let zeros = fraction - 1;
            format!(r"({by_whole}|0*\.0{{0,{zeros}}}[1-9][0-9]*){unit}")
        }
    }
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
