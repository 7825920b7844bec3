//! Files and standard input (`-`) as input of commands, with a size limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Name of standard input in messages.
pub(crate) const STDIN: &str = "<stdin>";

pub(crate) fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    if is_stdin(path) { Ok(Box::new(io::stdin().lock())) } else { Ok(Box::new(File::open(path)?)) }
}

/// `None` if there are more than `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= limit))
}
