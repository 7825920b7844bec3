//! Text that is kept compressed, as a part of a gzip stream. Several parts make a page without being compressed again.

use std::io::{self, BufWriter, Cursor, IntoInnerError, Read, Write};
use std::sync::Arc;

use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// Bytes of text that are compressed or expanded at once.
const BUFFER: usize = 32 * 1024;
/// Begins a gzip stream (RFC 1952, section 2.3): deflate, no flags, no time, the fastest method, no file system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];
/// A last block without data (RFC 1951, section 3.2.3).
const LAST_BLOCK: [u8; 2] = [3, 0];

/// Compressed text. Clones share it.
#[derive(Clone, Debug)]
pub struct PackedText(Arc<Part>);

#[derive(Debug)]
struct Part {
    /// Ends on a byte, and is not the end of the stream.
    deflate: Vec<u8>,
    /// Checksum and length of the text.
    crc: Crc,
}

impl PackedText {
    /// Compresses what `text` writes.
    ///
    /// # Errors
    /// Those of `text`.
    pub fn new(text: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Self> {
        let encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        // Writers of text write single words.
        let mut to = BufWriter::with_capacity(BUFFER, Checked { encoder, crc: Crc::new() });
        text(&mut to)?;
        let Checked { mut encoder, crc } = to.into_inner().map_err(IntoInnerError::into_error)?;
        encoder.flush()?;
        let mut deflate = std::mem::take(encoder.get_mut());
        // A page may be kept for long.
        deflate.shrink_to_fit();
        Ok(Self(Arc::new(Part { deflate, crc })))
    }

    /// A gzip stream of the parts.
    #[must_use]
    pub fn gzip(parts: &[Self]) -> Vec<u8> {
        let mut all = HEADER.to_vec();
        let mut crc = Crc::new();
        for Self(part) in parts {
            all.extend_from_slice(&part.deflate);
            crc.combine(&part.crc);
        }
        all.extend_from_slice(&LAST_BLOCK);
        all.extend_from_slice(&crc.sum().to_le_bytes());
        all.extend_from_slice(&crc.amount().to_le_bytes());
        all
    }

    /// The text again, a piece at a time.
    pub fn pieces(self) -> impl Iterator<Item = io::Result<Vec<u8>>> {
        let mut text = DeflateDecoder::new(Cursor::new(self).chain(&LAST_BLOCK[..]));
        std::iter::from_fn(move || {
            let mut piece = vec![0; BUFFER];
            match text.read(&mut piece) {
                Ok(0) => None,
                Ok(length) => {
                    piece.truncate(length);
                    Some(Ok(piece))
                }
                Err(error) => Some(Err(error)),
            }
        })
    }
}

impl AsRef<[u8]> for PackedText {
    fn as_ref(&self) -> &[u8] {
        &self.0.deflate
    }
}

/// Counts what it compresses.
struct Checked {
    encoder: DeflateEncoder<Vec<u8>>,
    crc: Crc,
}

impl Write for Checked {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let written = self.encoder.write(text)?;
        self.crc.update(&text[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn parts_are_one_stream_and_their_text_comes_back() {
        let long = "line of some length\n".repeat(9000);
        for texts in [&[][..], &[""], &["a"], &["a", "", &long, "b"]] {
            let parts: Vec<PackedText> = texts
                .iter()
                .map(|text| PackedText::new(|to| to.write_all(text.as_bytes())).unwrap())
                .collect();
            let mut read = String::new();
            GzDecoder::new(&PackedText::gzip(&parts)[..]).read_to_string(&mut read).unwrap();
            assert_eq!(read, texts.concat());
            let pieces =
                parts.into_iter().flat_map(PackedText::pieces).collect::<io::Result<Vec<_>>>().unwrap();
            assert!(pieces.iter().all(|piece| piece.len() <= BUFFER));
            assert_eq!(pieces.concat(), texts.concat().as_bytes());
        }
    }

    #[test]
    fn a_failed_writer_makes_no_text() {
        let failed = PackedText::new(|_| Err(io::Error::other("broken")));
        assert_eq!(failed.unwrap_err().to_string(), "broken");
    }
}
