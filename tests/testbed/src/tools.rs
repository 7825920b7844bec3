//! Paths of the control plane's programs. `tools/build.sh` builds missing ones from pinned Go modules into a cache
//! and prints the paths; this module runs it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// Programs of a testbed, built and ready to run.
#[derive(Debug, Clone)]
pub struct Tools {
    paths: BTreeMap<String, PathBuf>,
}

impl Tools {
    /// Builds missing programs: minutes on a cold cache, with progress on stderr; milliseconds otherwise.
    pub fn ready() -> anyhow::Result<Self> {
        Self::named(&[])
    }

    /// Path of a program that is built only on request, such as `vegeta`.
    pub fn on_request(name: &str) -> anyhow::Result<PathBuf> {
        Self::named(&[name])?.path(name).map(Path::to_owned)
    }

    /// Builds only these programs, which may be optional ones.
    pub fn named(names: &[&str]) -> anyhow::Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/build.sh");
        let built = Command::new("bash")
            .arg(&script)
            .args(names)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot run bash {}", script.display()))?;
        if !built.status.success() {
            bail!("{} failed ({}): see the lines above", script.display(), built.status);
        }
        Ok(Self { paths: parse(&String::from_utf8_lossy(&built.stdout)) })
    }

    /// Path of one program, by its name in the script's output.
    pub fn path(&self, name: &str) -> anyhow::Result<&Path> {
        self.paths.get(name).map(PathBuf::as_path).with_context(|| {
            format!("tools/build.sh printed no line {name}=PATH, only {:?}", self.paths.keys())
        })
    }

    /// Folder of a Go module required by `tools/<folder>/go.mod`, with CRDs and RBAC of a program.
    pub fn module(folder: &str, module: &str) -> anyhow::Result<PathBuf> {
        let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools").join(folder);
        let go = |args: &[&str]| -> anyhow::Result<String> {
            let ran = Command::new("go").args(args).current_dir(&tool).stdin(Stdio::null()).output();
            let ran = ran.with_context(|| format!("cannot run go {args:?}"))?;
            if !ran.status.success() {
                bail!("go {args:?} in {}: {}", tool.display(), String::from_utf8_lossy(&ran.stderr));
            }
            Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
        };
        // A cached program needs no modules, so they may be missing.
        go(&["mod", "download", module])?;
        Ok(go(&["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module])?.into())
    }

    pub fn all(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.paths.iter().map(|(name, path)| (name.as_str(), path.as_path()))
    }
}

fn parse(printed: &str) -> BTreeMap<String, PathBuf> {
    printed
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, path)| (name.trim().to_owned(), PathBuf::from(path.trim())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_output_of_script() {
        let paths = parse("etcd=/c/etcd-1/etcd\n\nkwok=/c d/kwok=x\nno path here\n");
        let read: Vec<_> = paths.iter().map(|(name, path)| (name.as_str(), path.to_str().unwrap())).collect();
        assert_eq!(read, [("etcd", "/c/etcd-1/etcd"), ("kwok", "/c d/kwok=x")]);
    }
}
