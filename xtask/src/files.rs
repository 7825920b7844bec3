//! Generated files: writes those that change, or says where they are outdated.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::Context as _;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// What generated files should contain.
#[derive(Default)]
pub(crate) struct Files(Vec<File>);

struct File {
    /// From the root of the repository. A file `*.gz` is packed.
    path: String,
    /// `None` if nothing generates it any longer.
    wanted: Option<String>,
}

impl Files {
    pub(crate) fn add(&mut self, path: &str, wanted: &str) {
        self.0.push(File { path: path.to_owned(), wanted: Some(wanted.to_owned()) });
    }

    /// Removes the files of this folder that are not added.
    pub(crate) fn remove_others(&mut self, root: &Path, folder: &str) {
        for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
            let path = format!("{folder}/{}", entry.file_name().display());
            if !self.0.iter().any(|file| file.path == path) {
                self.0.push(File { path, wanted: None });
            }
        }
    }

    /// Writes the files that are outdated, and returns their paths.
    pub(crate) fn write(&self, root: &Path) -> anyhow::Result<Vec<&str>> {
        let mut changed = Vec::new();
        for File { path, wanted } in self.0.iter().filter(|file| file.difference(root).is_some()) {
            let file = root.join(path);
            let written = match wanted {
                Some(text) => write(&file, text),
                None => fs::remove_file(file),
            };
            written.with_context(|| format!("cannot write {path}"))?;
            changed.push(path.as_str());
        }
        Ok(changed)
    }

    /// A message for each file that is outdated.
    pub(crate) fn outdated(&self, root: &Path) -> Vec<String> {
        let message = |file: &File| {
            let (path, difference) = (&file.path, file.difference(root)?);
            Some(format!("{path} is outdated: run `make generate` and commit the result\n  {difference}"))
        };
        self.0.iter().filter_map(message).collect()
    }
}

impl File {
    /// The first difference; `None` if the file is current.
    fn difference(&self, root: &Path) -> Option<String> {
        let file = root.join(&self.path);
        match (&self.wanted, read(&file)) {
            (Some(wanted), Some(found)) => first_difference(&found, wanted),
            (Some(_), None) => Some("it is missing or cannot be read".to_owned()),
            (None, _) => file.exists().then(|| "nothing generates it".to_owned()),
        }
    }
}

/// Unpacked, because another compressor may write other bytes. `None` if it is missing or cannot be read.
fn read(file: &Path) -> Option<String> {
    if !is_packed(file) {
        return fs::read_to_string(file).ok();
    }
    let mut text = String::new();
    GzDecoder::new(fs::File::open(file).ok()?).read_to_string(&mut text).ok()?;
    Some(text)
}

fn write(file: &Path, text: &str) -> std::io::Result<()> {
    if !is_packed(file) {
        return fs::write(file, text);
    }
    let mut packed = GzEncoder::new(fs::File::create(file)?, Compression::best());
    packed.write_all(text.as_bytes())?;
    packed.finish().map(drop)
}

fn is_packed(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "gz")
}

/// The first line that differs, with its number.
fn first_difference(found: &str, wanted: &str) -> Option<String> {
    let (mut found, mut wanted) = (found.split('\n'), wanted.split('\n'));
    let lines = (1..).map(|number| (number, found.next(), wanted.next()));
    let (number, found, wanted) =
        lines.take_while(|line| (line.1, line.2) != (None, None)).find(|line| line.1 != line.2)?;
    let [found, wanted] = [found, wanted].map(|line| line.unwrap_or("(the end of the file)"));
    let same = found.chars().zip(wanted.chars()).take_while(|(a, b)| a == b).count();
    let [found, wanted] = [found, wanted].map(|line| part(line, same));
    Some(format!("line {number} is        {found}\n  line {number} should be {wanted}"))
}

/// The part of a long line around the first character that differs.
fn part(line: &str, differs: usize) -> String {
    const BEFORE: usize = 40;
    const LONGEST: usize = 120;
    let skipped = if line.chars().count() > LONGEST { differs.saturating_sub(BEFORE) } else { 0 };
    let shown: String = line.chars().skip(skipped).take(LONGEST).collect();
    let before = if skipped > 0 { "..." } else { "" };
    let after = if line.chars().count() > skipped + LONGEST { "..." } else { "" };
    format!("{before}{shown}{after}")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A folder with nothing but a folder `pages`.
    fn scratch(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(root.join("pages")).unwrap();
        root
    }

    #[test]
    fn outdated_files_are_named_with_their_first_difference() {
        let root = scratch("check");
        let mut wanted = Files::default();
        wanted.add("a.md", "# A\n\nnew\n");
        wanted.add("b.md", "b\n");
        wanted.add("c.md", "c\n");
        wanted.add("long.json", &format!("{}{{\"id\": 2}}", "x".repeat(300)));
        fs::write(root.join("a.md"), "# A\n\nold\n").unwrap();
        fs::write(root.join("b.md"), "b\n").unwrap();
        fs::write(root.join("long.json"), format!("{}{{\"id\": 1}}", "x".repeat(300))).unwrap();
        fs::write(root.join("pages/removed.md"), "").unwrap();
        wanted.remove_others(&root, "pages");
        let command = "run `make generate` and commit the result";
        let around = format!("...{}{{\"id\": ", "x".repeat(33));
        assert_eq!(
            wanted.outdated(&root),
            [
                format!("a.md is outdated: {command}\n  line 3 is        old\n  line 3 should be new"),
                format!("c.md is outdated: {command}\n  it is missing or cannot be read"),
                format!(
                    "long.json is outdated: {command}\n  line 1 is        {around}1}}\n  line 1 should be {around}2}}"
                ),
                format!("pages/removed.md is outdated: {command}\n  nothing generates it"),
            ]
        );
        assert_eq!(fs::read_to_string(root.join("a.md")).unwrap(), "# A\n\nold\n");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn only_files_that_change_are_written() {
        let root = scratch("write");
        let mut wanted = Files::default();
        wanted.add("pages/a.md", "new\n");
        wanted.add("pages/b.md", "b\n");
        wanted.add("pages.gz", "packed\n");
        fs::write(root.join("pages/a.md"), "new\n\n").unwrap();
        fs::write(root.join("pages/b.md"), "b\n").unwrap();
        fs::write(root.join("pages/removed.md"), "").unwrap();
        wanted.remove_others(&root, "pages");
        assert_eq!(wanted.write(&root).unwrap(), ["pages/a.md", "pages.gz", "pages/removed.md"]);
        assert_eq!(wanted.write(&root).unwrap(), Vec::<&str>::new());
        assert_eq!(wanted.outdated(&root), Vec::<String>::new());
        assert!(!root.join("pages/removed.md").exists());
        fs::remove_dir_all(root).unwrap();
    }
}
