//! Regular expression of a Go duration above 0, for JSON Schemas. It is generated from the table of units and uses no
//! look-around, so that ECMA-262, RE2 and Rust all accept it.

/// Unit, maximum digits of the whole part, and number of fraction digits down to a nanosecond.
///
/// A part is below 10^18 ns, so that [`MAX_PARTS`] parts stay within the 292 years of a Go duration. A regular expression
/// cannot add, so it refuses some valid durations from 100000h (11 years) on.
const UNITS: &[(&str, u32, u32)] = &[
    ("h", 5, 12),
    ("m", 7, 10),
    ("s", 9, 9),
    ("ms", 12, 6),
    ("[uµμ]s", 15, 3),
    // Fractions of a nanosecond are truncated.
    ("ns", 18, 0),
];

/// Maximum parts before and after the part that is above 0, so that five parts always match.
const OTHER_PARTS: u32 = 4;

/// Maximum parts of a duration.
#[cfg(test)]
const MAX_PARTS: u32 = 2 * OTHER_PARTS + 1;

/// Pattern of the durations that [`crate::entries::PositiveDuration`] accepts, up to 99999h in five parts.
pub(super) fn duration_pattern() -> String {
    let any = UNITS
        .iter()
        .map(|(unit, whole, _)| format!(r"(0*[0-9]{{1,{whole}}}(\.[0-9]*)?|\.[0-9]+){unit}"))
        .collect::<Vec<_>>()
        .join("|");
    let above_zero = UNITS.iter().map(|unit| part_above_zero(*unit)).collect::<Vec<_>>().join("|");
    format!(r"^\+?({any}){{0,{OTHER_PARTS}}}({above_zero})({any}){{0,{OTHER_PARTS}}}$")
}

/// Pattern of a part above 0: its whole part is above 0, or a counting digit of its fraction.
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
    fn the_longest_match_is_a_valid_duration() {
        for (unit, whole, _) in UNITS {
            let unit = unit.replace("[uµμ]", "u");
            let nines = "9".repeat(usize::try_from(*whole).unwrap());
            let text = format!("{nines}.{nines}{unit}").repeat(usize::try_from(MAX_PARTS).unwrap());
            assert!(text.parse::<GoDuration>().is_ok(), "{text}");
        }
    }
}
