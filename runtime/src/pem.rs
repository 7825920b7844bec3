//! Files of connections: certificates, keys and tokens.

use std::io::{self, Read};
use std::path::Path;

/// Bytes. A bundle of all public CAs has a fifth.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads a regular file of at most 1 MiB.
///
/// # Errors
/// It is not a regular file, too long, or cannot be read.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    // Opening a pipe would block until it has a writer.
    if !std::fs::metadata(&path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(&path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("longer than {MAX_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

/// A certificate and its key as one text.
#[must_use]
pub fn join(mut cert: Vec<u8>, key: Vec<u8>) -> Vec<u8> {
    cert.push(b'\n');
    cert.extend(key);
    cert
}
