//! Regular expression of a Go duration above 0, for JSON Schemas. It is generated from the table of units and uses no
//! look-around, so that ECMA-262, RE2 and Rust all accept it.

/// Unit of a part of a duration.
struct Unit {
    /// Pattern of its name.
    name: &'static str,
    /// Maximum digits of the whole part.
    whole: u32,
    /// Digits of the fraction down to a nanosecond.
    fraction: u32,
}

/// Units of Go durations.
///
/// A part is below 10^18 ns, so that [`MAX_PARTS`] parts stay within the 292 years of a Go duration. A regular expression
/// cannot add, so it refuses some valid durations from 100000h (11 years) on.
const UNITS: &[Unit] = &[
    Unit { name: "h", whole: 5, fraction: 12 },
    Unit { name: "m", whole: 7, fraction: 10 },
    Unit { name: "s", whole: 9, fraction: 9 },
    Unit { name: "ms", whole: 12, fraction: 6 },
    Unit { name: "[uµμ]s", whole: 15, fraction: 3 },
    // Fractions of a nanosecond are truncated.
    Unit { name: "ns", whole: 18, fraction: 0 },
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
        .map(|Unit { name, whole, .. }| format!(r"(0*[0-9]{{1,{whole}}}(\.[0-9]*)?|\.[0-9]+){name}"))
        .collect::<Vec<_>>()
        .join("|");
    let above_zero = UNITS.iter().map(part_above_zero).collect::<Vec<_>>().join("|");
    format!(r"^\+?({any}){{0,{OTHER_PARTS}}}({above_zero})({any}){{0,{OTHER_PARTS}}}$")
}

/// Pattern of a part above 0: its whole part is above 0, or a counting digit of its fraction.
fn part_above_zero(Unit { name, whole, fraction }: &Unit) -> String {
    let more = whole - 1;
    let by_whole = format!(r"0*[1-9][0-9]{{0,{more}}}(\.[0-9]*)?");
    if *fraction == 0 {
        return format!("{by_whole}{name}");
    }
    let zeros = fraction - 1;
    format!(r"({by_whole}|0*\.0{{0,{zeros}}}[1-9][0-9]*){name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GoDuration;

    #[test]
    fn the_longest_match_is_a_valid_duration() {
        for Unit { name, whole, .. } in UNITS {
            let unit = name.replace("[uµμ]", "u");
            let nines = "9".repeat(usize::try_from(*whole).unwrap());
            let text = format!("{nines}.{nines}{unit}").repeat(usize::try_from(MAX_PARTS).unwrap());
            assert!(text.parse::<GoDuration>().is_ok(), "{text}");
        }
    }
}
