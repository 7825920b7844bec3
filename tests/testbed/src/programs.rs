//! The programs under test.

use std::path::{Path, PathBuf};

/// The manager in the folder of a program wva.
pub fn manager(wva: &Path) -> PathBuf {
    wva.with_file_name("manager")
}
