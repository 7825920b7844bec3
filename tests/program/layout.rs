//! Layout of the code, as in `docs/development/architecture.md`: allowed imports between folders of the controller, no
//! import cycle of more than three files in any crate, and no tuple as a parameter.

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
fn no_function_takes_a_tuple() {
    let mut found = Vec::new();
    for dir in CRATES.into_iter().filter(|dir| !dir.starts_with("tests/")) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = BTreeMap::new();
        collect(&root.join(dir), &mut Vec::new(), &mut files);
        for path in files.values() {
            let text = without_tests(&fs::read_to_string(path).unwrap());
            let file = path.strip_prefix(root).unwrap().display();
            found.extend(tuple_parameters(&text).iter().map(|place| format!("{file}: {place}")));
        }
    }
    let remedy = "take separate parameters, a type that has these fields, or a small struct that names them";
    assert!(found.is_empty(), "{remedy}:\n{}", found.join("\n"));
}

#[test]
fn finds_tuples_among_parameters() {
    let text = "fn a<F: Fn(u8) -> (u8, u8)>(x: u8, (y, z): (f64, Vec<(u8, u8)>)) -> u8 {}
        fn b(&self, pairs: &[(u8, u8)], f: &(impl Fn(u8, u8) + Sync), unit: (), g: fn((u8, u8)) -> u8) {}
        fn c<'a>(mut self, range: &'a mut (f64, f64)) where Self: Sized {}
        fn d(maybe: Option<(usize, usize)>) { all.map(|(k, v): (u8, u8)| k) }";
    let found = ["fn a takes (y, z): (f64, Vec<(u8, u8)>)", "fn c takes range: &'a mut (f64, f64)"];
    let option = "fn d takes maybe: Option<(usize, usize)>";
    assert_eq!(tuple_parameters(text), [&found[..], &[option]].concat());
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
fn architecture_page_names_every_task() {
    let page = include_str!("../../docs/development/architecture.md");
    let section = page.split("## Tasks").nth(1).and_then(|rest| rest.split("## ").next()).unwrap();
    let listed: BTreeSet<&str> = section.split('"').skip(1).step_by(2).collect();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = BTreeMap::new();
    collect(&src, &mut Vec::new(), &mut files);
    let texts: Vec<String> =
        files.values().map(|file| without_tests(&fs::read_to_string(file).unwrap())).collect();
    let started = |text: &str| -> Vec<String> {
        let calls = [".spawn(", ".spawn_leading(", ".start_file_certs("].map(|call| text.split(call).skip(1));
        let argument = |call: &str| call.trim_start().strip_prefix('"')?.split('"').next().map(str::to_owned);
        calls.into_iter().flatten().filter_map(argument).collect()
    };
    let started: Vec<String> = texts.iter().flat_map(|text| started(text)).collect();
    let started: BTreeSet<&str> = started.iter().map(String::as_str).collect();
    assert_eq!(listed, started);
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
    let files = [
        ("", "mod a; mod b;"),
        ("a", "mod own; pub(crate) use own::Item; pub use self::own::Other as Name;"),
        ("a::own", ""),
        ("b", "use crate::a::{Item, Name};\nfn f() { crate::a::f(); }"),
    ];
    let module =
        |path: &str| path.split("::").filter(|s| !s.is_empty()).map(str::to_owned).collect::<Module>();
    let files = files.map(|(path, text)| (module(path), text.to_owned()));
    let found = imports_of(&BTreeMap::from(files)).remove(&module("b")).unwrap();
    assert_eq!(
        found,
        BTreeSet::from([module("a"), module("a::own")]),
        "re-exports lead to where they come from"
    );
    assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {\n b\n}\nc"), "a\n\nc");
}

/// Imports of each module of the crate in `dir`, except those of tests. A path to a re-export counts as one to the module
/// that it comes from.
fn imports(dir: &str) -> Imports {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(dir);
    let mut files = BTreeMap::new();
    collect(&root, &mut Vec::new(), &mut files);
    assert!(!files.is_empty(), "no files in {}", root.display());
    let texts: BTreeMap<Module, String> = files
        .into_iter()
        .map(|(module, file)| (module, without_tests(&fs::read_to_string(file).unwrap())))
        .collect();
    imports_of(&texts)
}

fn imports_of(texts: &BTreeMap<Module, String>) -> Imports {
    let names = texts.iter().map(|(module, text)| (module.clone(), imported_names(text, module))).collect();
    let names: BTreeMap<Module, BTreeMap<String, Module>> = names;
    let related = |a: &Module, b: &Module| a.starts_with(b) || b.starts_with(a);
    let mut all = Imports::new();
    for (module, text) in texts {
        let targets = paths(text, module).into_iter().map(|path| origin(path, &names));
        all.insert(module.clone(), targets.filter(|to| !related(to, module)).collect());
    }
    all
}

/// The module that an item comes from, through the re-exports of the modules on its path.
fn origin(mut path: Module, names: &BTreeMap<Module, BTreeMap<String, Module>>) -> Module {
    // A module may import a name from itself by two paths.
    for _ in 0..16 {
        let depth = (0..=path.len()).rev().find(|depth| names.contains_key(&path[..*depth])).unwrap_or(0);
        let found = path.get(depth).and_then(|name| names.get(&path[..depth])?.get(name));
        let Some(found) = found.filter(|found| !path.starts_with(found)) else {
            path.truncate(depth);
            return path;
        };
        path = found.iter().chain(&path[depth + 1..]).cloned().collect();
    }
    panic!("{} is imported in a circle", path.join("::"));
}

/// Names that a module has by `use`, also of its children, with their paths from the root of the crate.
fn imported_names(text: &str, module: &[String]) -> BTreeMap<String, Module> {
    let mut all = BTreeMap::new();
    let is_child =
        |name: &str| [format!("mod {name};"), format!("mod {name} {{")].iter().any(|m| text.contains(m));
    for statement in text.split(';') {
        let Some((before, tree)) = statement.rsplit_once("use ") else { continue };
        let visibility = before.rsplit(['}', '\n']).next().unwrap_or_default().trim();
        if !(visibility.is_empty() || visibility.starts_with("pub")) {
            continue;
        }
        expand(tree, &mut Vec::new(), &mut |path, name| {
            let path = match path.first().map(String::as_str) {
                Some("crate" | "super") => absolute(path, module),
                Some(first) if is_child(first) => Some([module, path].concat()),
                _ => None,
            };
            all.extend(path.map(|path| (name.to_owned(), path)));
        });
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
            expand(path, &mut Vec::new(), &mut |path, _| all.extend(absolute(path, module)));
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

/// Visits each path of a `use` tree, and the name that it gives.
fn expand(tree: &str, prefix: &mut Module, visit: &mut impl FnMut(&[String], &str)) {
    let mut depth = 0;
    let branches = tree.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for branch in branches.map(str::trim).filter(|branch| !branch.is_empty()) {
        let (path, rest) = branch.split_once('{').unwrap_or((branch, ""));
        let (path, name) =
            path.split_once(" as ").map_or((path, None), |(path, name)| (path, Some(name.trim())));
        let segments =
            path.split("::").map(str::trim).filter(|segment| !segment.is_empty() && *segment != "self");
        let before = prefix.len();
        prefix.extend(segments.map(str::to_owned));
        if branch.contains('{') {
            expand(rest.strip_suffix('}').unwrap_or(rest), prefix, visit);
        } else {
            let own = prefix.last().map(String::as_str).unwrap_or_default();
            visit(prefix, name.unwrap_or(own));
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

/// Parameters of functions that are tuples, also optional ones. Pairs in slices and those of closures do not count.
fn tuple_parameters(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (at, _) in text.match_indices("fn ").filter(|(at, _)| !text[..*at].ends_with(is_word)) {
        let rest = &text[at + "fn ".len()..];
        let (name, mut rest) = rest.split_at(rest.find(|c| !is_word(c)).unwrap_or(rest.len()));
        if rest.starts_with('<') {
            rest = &rest[closing_bracket(rest) + 1..];
        }
        if name.is_empty() || !rest.starts_with('(') {
            continue;
        }
        for parameter in split_outside_brackets(&rest[1..closing_bracket(rest)], ',') {
            let mut kind = split_outside_brackets(parameter, ':').get(1).copied().unwrap_or_default().trim();
            kind = kind.strip_prefix("Option<").and_then(|kind| kind.strip_suffix('>')).unwrap_or(kind);
            while let Some(inner) = kind.strip_prefix('&') {
                let lifetime = inner.strip_prefix('\'').and_then(|inner| inner.split_once(' '));
                kind = lifetime.map_or(inner, |(_, inner)| inner);
                kind = kind.strip_prefix("mut ").unwrap_or(kind);
            }
            let members = kind.strip_prefix('(').map(|_| &kind[1..closing_bracket(kind)]);
            if members.is_some_and(|members| split_outside_brackets(members, ',').len() > 1) {
                let parameter = parameter.split_whitespace().collect::<Vec<_>>().join(" ");
                all.push(format!("fn {name} takes {parameter}"));
            }
        }
    }
    all
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Change of the depth in brackets at a character after another one. The heads of `->` and `=>` are none.
fn bracket(before: char, c: char) -> i32 {
    match c {
        '(' | '[' | '{' | '<' => 1,
        '>' if "-=".contains(before) => 0,
        ')' | ']' | '}' | '>' => -1,
        _ => 0,
    }
}

/// Position of the bracket that closes the one at the start of the text.
fn closing_bracket(text: &str) -> usize {
    let (mut depth, mut before) = (0, ' ');
    let closes = |(_, c): &(usize, char)| {
        depth += bracket(std::mem::replace(&mut before, *c), *c);
        depth == 0
    };
    text.char_indices().find(closes).map_or(text.len(), |(at, _)| at)
}

fn split_outside_brackets(text: &str, separator: char) -> Vec<&str> {
    let (mut depth, mut before) = (0, ' ');
    let separates = |c: char| {
        depth += bracket(std::mem::replace(&mut before, c), c);
        depth == 0 && c == separator
    };
    text.split(separates).filter(|part| !part.trim().is_empty()).collect()
}
