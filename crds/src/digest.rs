//! Digest that is the same in every process and release, for event names.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a digest, 64 bits.
#[must_use]
pub fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(OFFSET, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// A byte that is not valid UTF-8 separates the texts, so that `["ab", "c"]` differs from `["a", "bc"]`.
#[must_use]
pub fn digest(texts: &[&str]) -> u64 {
    fnv1a(texts.iter().flat_map(|text| text.bytes().chain([0xff])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_stable_across_releases() {
        assert_eq!(digest(&[]), OFFSET);
        assert_eq!(digest(&["a"]), 0x089b_c907_b544_c769);
        assert_eq!(digest(&["ab", "c"]), 0x20ba_9b30_25a8_b421);
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
    }
}
