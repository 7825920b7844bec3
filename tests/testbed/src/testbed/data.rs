//! Folders of a testbed: a data folder that is removed when the program ends, even by a crash, and a log folder that
//! stays until the next testbed with the same name.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, bail, ensure};

/// Creates an empty log folder.
pub(super) fn log_folder(name: &str) -> anyhow::Result<PathBuf> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(fits) {
        bail!("the testbed's name {name:?} must consist of lower-case letters, digits and '-'");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    let folder = target.join("testbed").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    folder.canonicalize().with_context(|| format!("cannot resolve {}", folder.display()))
}

/// Copies a folder with all that it holds.
pub(super) fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().context("cannot run cp")?;
    ensure!(copied.success(), "cannot copy {} to {}: {copied}", from.display(), to.display());
    Ok(())
}

/// Data folder. A shell that waits on a pipe removes it when this process ends, even by a crash.
pub(crate) struct Data {
    pub(crate) path: PathBuf,
    janitor: Option<Child>,
}

impl Data {
    pub(super) fn create(keep: bool) -> anyhow::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let path = loop {
            let name =
                format!("wva-testbed-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            // The folder holds the admin's token; no other user may read it.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break path,
                // A kept folder of an earlier process with the same id.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("cannot create the data folder {}", path.display()));
                }
            }
        };
        let mut data = Self { path, janitor: None };
        if !keep {
            // Several rounds, since programs may still write while their watchers end them.
            let script =
                r#"read -r _; for _ in 1 2 3 4 5; do rm -rf -- "$1"; [ -e "$1" ] || exit 0; sleep 1; done"#;
            let janitor = Command::new("sh")
                .args(["-c", script, "janitor"])
                .arg(&data.path)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .process_group(0)
                .spawn()
                .context("cannot start sh as the janitor of the data folder")?;
            data.janitor = Some(janitor);
        }
        Ok(data)
    }

    /// Writes a file. Only this user can enter the folder.
    pub(crate) fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if let Some(mut janitor) = self.janitor.take() {
            // Waiting closes the pipe first, which is the janitor's signal.
            let _ = janitor.wait();
        }
    }
}
