//! Quantities of Kubernetes, in the units of ResourceQuotas.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use wva_scaling::snapshot::QuotaAmount;

/// Suffix, and its factor as base and exponent.
const SUFFIXES: [(&str, u128, i32); 14] = [
    ("Ki", 1024, 1),
    ("Mi", 1024, 2),
    ("Gi", 1024, 3),
    ("Ti", 1024, 4),
    ("Pi", 1024, 5),
    ("Ei", 1024, 6),
    ("n", 10, -9),
    ("u", 10, -6),
    ("m", 10, -3),
    ("k", 10, 3),
    ("M", 10, 6),
    ("G", 10, 9),
    ("T", 10, 12),
    ("P", 10, 15),
];
/// Longer numbers are no amounts.
const MAX_DIGITS: usize = 20;

/// How a fraction of a unit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// Up, for what pods use.
    Up,
    /// Down, for what a quota allows.
    Down,
}

/// Amount of a resource: millicores of CPU, else whole units. `None`: not a quantity, or below 0.
pub(crate) fn quota_amount(resource: &str, quantity: &Quantity, rounding: Rounding) -> Option<QuotaAmount> {
    let Number { mantissa, base, exponent, decimals } = parse(quantity.0.as_str())?;
    let (scale, mut divisor) = (if QuotaAmount::is_millicores(resource) { 1000_u128 } else { 1 }, 1_u128);
    let factor = base.checked_pow(exponent.unsigned_abs())?;
    divisor = divisor.checked_mul(10_u128.checked_pow(decimals)?)?;
    let mut dividend = mantissa.checked_mul(scale)?;
    if exponent < 0 {
        divisor = divisor.checked_mul(factor)?;
    } else {
        dividend = dividend.saturating_mul(factor);
    }
    let amount = match rounding {
        Rounding::Up => dividend.div_ceil(divisor),
        Rounding::Down => dividend / divisor,
    };
    Some(QuotaAmount(u64::try_from(amount).unwrap_or(u64::MAX)))
}

/// `mantissa * base^exponent / 10^decimals`.
struct Number {
    mantissa: u128,
    base: u128,
    exponent: i32,
    decimals: u32,
}

fn parse(text: &str) -> Option<Number> {
    let text = text.trim().trim_start_matches('+');
    let suffix = SUFFIXES.iter().find_map(|(suffix, base, exponent)| {
        text.strip_suffix(suffix).map(|number| (number, *base, *exponent))
    });
    let (number, base, exponent) = match (suffix, text.split_once(['e', 'E'])) {
        (Some(suffix), _) => suffix,
        (None, Some((number, ""))) if text.ends_with('E') => (number, 10, 18),
        (None, Some((number, exponent))) => (number, 10, exponent.parse().ok()?),
        (None, None) => (text, 10, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = [whole, fraction].concat();
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let decimals = u32::try_from(fraction.len()).ok()?;
    Some(Number { mantissa: digits.parse().ok()?, base, exponent, decimals })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(resource: &str, text: &str, rounding: Rounding) -> Option<u64> {
        quota_amount(resource, &Quantity(text.to_owned()), rounding).map(|amount| amount.0)
    }

    #[test]
    fn reads_every_form_of_a_quantity() {
        for (resource, text, want) in [
            ("requests.cpu", "2", 2000),
            ("cpu", "500m", 500),
            ("limits.cpu", "0.25", 250),
            ("cpu", "1500u", 2),
            ("requests.memory", "16Gi", 16 << 30),
            ("memory", "1.5Gi", 3 << 29),
            ("memory", "128M", 128_000_000),
            ("memory", "1e3", 1000),
            ("memory", "12E2", 1200),
            ("memory", "1E", 1_000_000_000_000_000_000),
            ("memory", "1500m", 2),
            ("memory", "100Ei", u64::MAX),
            ("requests.nvidia.com/gpu", "8", 8),
            ("pods", "1k", 1000),
            ("pods", "+3", 3),
            ("pods", "0", 0),
        ] {
            assert_eq!(read(resource, text, Rounding::Up), Some(want), "{text}");
        }
        assert_eq!(read("memory", "1500m", Rounding::Down), Some(1));
        for text in ["", "-1", "many", "1.2.3", "1x", "Gi", "1e", "1e999", "e3", "123456789012345678901"] {
            assert_eq!(read("memory", text, Rounding::Up), None, "{text}");
        }
    }
}
