//! Samples for the remote write receiver of Prometheus: its protocol buffers and the framing of snappy, by hand. The
//! literals of snappy are not compressed, which the format allows.

/// A series.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// In order of their names.
    pub(super) labels: Vec<(String, String)>,
    /// Milliseconds since the epoch, and value.
    pub(super) samples: Vec<(i64, f64)>,
}

/// Adds series to the message of a request.
pub(super) fn add(request: &mut Vec<u8>, series: &[Series]) {
    for one in series.iter().filter(|series| !series.samples.is_empty()) {
        let mut message = Vec::new();
        for (name, value) in &one.labels {
            let mut label = Vec::new();
            field(&mut label, 1, name.as_bytes());
            field(&mut label, 2, value.as_bytes());
            field(&mut message, 1, &label);
        }
        for (at, value) in &one.samples {
            let mut sample = vec![0x09];
            sample.extend(value.to_le_bytes());
            sample.push(0x10);
            varint(&mut sample, at.cast_unsigned());
            field(&mut message, 2, &sample);
        }
        field(request, 1, &message);
    }
}

/// A field of bytes.
fn field(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    message.push(number << 3 | 2);
    varint(message, bytes.len() as u64);
    message.extend(bytes);
}

#[expect(clippy::cast_possible_truncation, reason = "seven bits each")]
fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// Literals of at most 64 KiB.
pub(super) fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 1000 + 16);
    varint(&mut out, bytes.len() as u64);
    for chunk in bytes.chunks(1 << 16) {
        let length = u16::try_from(chunk.len() - 1).unwrap_or(u16::MAX);
        out.push(61 << 2);
        out.extend(length.to_le_bytes());
        out.extend(chunk);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snappy_has_the_length_and_a_literal() {
        assert_eq!(snappy(b"abc"), [3, 61 << 2, 2, 0, b'a', b'b', b'c']);
        let long = snappy(&vec![7; 70_000]);
        assert_eq!(&long[..6], [0xf0, 0xa2, 0x04, 61 << 2, 0xff, 0xff]);
        assert_eq!(long.len(), 3 + 3 + 65_536 + 3 + 4_464);
    }

    #[test]
    fn series_without_samples_are_left_out() {
        let labels = vec![("__name__".to_owned(), "up".to_owned())];
        let mut request = Vec::new();
        add(&mut request, &[Series { labels: labels.clone(), samples: Vec::new() }]);
        assert!(request.is_empty());
        add(&mut request, &[Series { labels, samples: vec![(1, 2.0)] }]);
        assert_eq!(request[0], 0x0a);
    }
}
