//! Layout of the code, as in `docs/development/architecture.md`: allowed imports between folders of the controller, and
//! no import cycle of more than three files in any crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of the controller. Each uses only itself and those before it.
const FOLDERS: [&str; 7] = ["model", "observe", "collect", "config", "cycle", "publish", "actuate"];
const CRATES: [&str; 13] = [
    "src", "cli/src", "controller/src", "controller/scaling/src", "controller/simulator/src", "webhook/src",
    "webhook/rules/src", "runtime/src", "certs/src", "crds/src", "objects/src", "tests/testbed/src",
    "tests/experiments/src",
];
/// Maximum number of files in an import cycle.
const MAX_CYCLE: usize = 3;

/// A module: the segments of its path, without `crate`.
type Module = Vec<String>;
/// Modules that each module of a crate imports, except its ancestors and descendants.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

#[test]
fn folders_of_the_controller_import_only_earlier_ones() {
    let rank = |module: &Module| FOLDERS.iter().position(|folder| *folder == module[0]);
    let mut violations = Vec::new();
    for (from, targets) in imports("controller/src") {
        let Some(above) = from.first().map(|_| rank(&from)) else { continue };
        let above = above.unwrap_or_else(|| panic!("{} is in none of {FOLDERS:?}", from.join("::")));
        for to in targets.iter().filter(|to| !to.is_empty()) {
            if rank(to).is_none_or(|below| below > above) {
                violations.push(format!("{} uses {}", from.join("::"), to.join("::")));
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn no_import_cycle_has_more_than_three_files() {
    let large = |dir: &str| -> Vec<String> {
        let cycles = find_cycles(&imports(dir)).into_iter().filter(|cycle| cycle.len() > MAX_CYCLE);
        let names = |cycle: Vec<Module>| cycle.iter().map(|module| module.join("::")).collect::<Vec<_>>();
        cycles.map(|cycle| format!("{dir}: {}", names(cycle).join(", "))).collect()
    };
    let all: Vec<String> = CRATES.into_iter().flat_map(large).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn architecture_page_names_existing_files() {
    let page = include_str!("../../docs/development/architecture.md");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths =
        page.split('`').skip(1).step_by(2).filter(|word| word.contains(".rs") || word.ends_with('/'));
    // The page omits these folders in some paths.
    let folders = ["", "controller/src", "src/run", "controller/src/actuate"].map(|folder| root.join(folder));
    assert!(paths.clone().count() > 30);
    let missing = paths.find(|path| !folders.iter().any(|folder| folder.join(path).exists()));
    assert_eq!(missing, None);
}

#[test]
fn finds_cycles_and_nested_imports() {
    let module = |name: &str| vec![name.to_owned()];
    let edge = |from: &str, to: &[&str]| (module(from), to.iter().map(|to| module(to)).collect());
    let graph = Imports::from([edge("a", &["b"]), edge("b", &["c"]), edge("c", &["a", "d"]), edge("d", &[])]);
    assert_eq!(find_cycles(&graph), [["a", "b", "c"].map(module).to_vec()]);
    let text = "use crate::{a::{self, B}, c};\nuse super::d as e;\nfn f() { crate::g::h(); }";
    let at = ["x".to_owned(), "y".to_owned()];
    let found: Vec<String> = paths(text, &at).iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["a", "a::B", "c", "g::h", "x::d"]);
    assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {\n b\n}\nc"), "a\n\nc");
}

/// Imports of each module of the crate in `dir`, except those of tests.
fn imports(dir: &str) -> Imports {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let mut files = BTreeMap::new();
    collect(&root, &mut Vec::new(), &mut files);
    assert!(!files.is_empty(), "no files in {}", root.display());
    let related = |a: &Module, b: &Module| a.starts_with(b) || b.starts_with(a);
    let mut all = Imports::new();
    for (module, file) in &files {
        let text = without_tests(&fs::read_to_string(file).unwrap());
        let targets = paths(&text, module).into_iter().map(|mut path| {
            while !path.is_empty() && !files.contains_key(&path) {
                path.pop();
            }
            path
        });
        all.insert(module.clone(), targets.filter(|to| !related(to, module)).collect());
    }
    all
}

/// Collects the files of a folder by module, except tests.
fn collect(folder: &Path, above: &mut Module, files: &mut BTreeMap<Module, PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if ["tests", "fixture", "testing"].contains(&name.as_str()) {
            continue;
        }
        let is_root = ["mod", "lib", "main"].contains(&name.as_str());
        if !is_root {
            above.push(name);
        }
        if path.is_dir() {
            collect(&path, above, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.insert(above.clone(), path);
        }
        if !is_root {
            above.pop();
        }
    }
}

/// Source text without comments and `#[cfg(test)]` items.
fn without_tests(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut parts = text.split("#[cfg(test)]");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut depth = 0;
        let end = part.char_indices().find(|(_, c)| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth == 0 && (*c == ';' || *c == '}')
        });
        kept.push_str(end.map_or("", |(at, _)| &part[at + 1..]));
    }
    kept
}

/// Paths in a text that start with `crate` or `super`, from the root of the crate.
fn paths(text: &str, module: &[String]) -> Vec<Module> {
    let mut all = Vec::new();
    for start in ["crate::", "super::"] {
        let begins = |(at, _): &(usize, &str)| {
            let before = text[..*at].chars().next_back();
            before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':')
        };
        for (at, _) in text.match_indices(start).filter(begins) {
            // A `use` path can continue in braces up to the semicolon.
            let statement = text[..at].rsplit([';', '}', '\n']).next().unwrap_or_default();
            let end = if statement.trim_end().ends_with("use") {
                text[at..].find(';')
            } else {
                text[at..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':')
            };
            let path = &text[at..end.map_or(text.len(), |end| at + end)];
            expand(path, &mut Vec::new(), &mut |path| all.extend(absolute(path, module)));
        }
    }
    all
}

/// A path from the root of the crate; `None` for a path to another crate.
fn absolute(path: &[String], module: &[String]) -> Option<Module> {
    let up = path.iter().take_while(|segment| *segment == "super").count();
    let base = match path.first()?.as_str() {
        "crate" => return Some(path[1..].to_vec()),
        "super" => &module[..module.len().checked_sub(up)?],
        _ => return None,
    };
    Some(base.iter().chain(&path[up..]).cloned().collect())
}

/// Visits each path of a `use` tree.
fn expand(tree: &str, prefix: &mut Module, visit: &mut impl FnMut(&[String])) {
    let mut depth = 0;
    let branches = tree.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for branch in branches.map(str::trim).filter(|branch| !branch.is_empty()) {
        let (path, rest) = branch.split_once('{').unwrap_or((branch, ""));
        let path = path.split(" as ").next().unwrap_or_default();
        let segments =
            path.split("::").map(str::trim).filter(|segment| !segment.is_empty() && *segment != "self");
        let before = prefix.len();
        prefix.extend(segments.map(str::to_owned));
        if branch.contains('{') {
            expand(rest.strip_suffix('}').unwrap_or(rest), prefix, visit);
        } else {
            visit(prefix);
        }
        prefix.truncate(before);
    }
}

/// Import cycles: sets of modules that reach each other.
fn find_cycles(imports: &Imports) -> Vec<Vec<Module>> {
    let reachable_from = |from: &Module| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&Module> = imports[from].iter().collect();
        while let Some(module) = next.pop() {
            if seen.insert(module) {
                next.extend(imports.get(module).into_iter().flatten());
            }
        }
        seen
    };
    let reachable: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|m| (m, reachable_from(m))).collect();
    let cycle = |m: &Module| {
        let reaches_back = |other: &&Module| reachable.get(*other).is_some_and(|back| back.contains(m));
        reachable[m].iter().copied().filter(reaches_back).cloned().collect::<Vec<_>>()
    };
    let all: BTreeSet<Vec<Module>> = imports.keys().map(cycle).filter(|cycle| cycle.len() > 1).collect();
    all.into_iter().collect()
}
