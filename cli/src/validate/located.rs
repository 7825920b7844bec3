//! YAML and JSON text with positions: documents as trees in which every value and every key knows where it stands.
//! Comments, anchors, aliases and merge keys keep their places, since positions are those of the text itself. A
//! document that fails to parse is a problem with a place, and the documents after it are still read.

mod scalars;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};
use serde_json::{Map, Value};

/// Deeper than any manifest, and shallow enough for recursion.
const DEPTH: usize = 128;
/// The most values of a document, counting what aliases and merge keys repeat. A list of 16 MiB has fewer.
const VALUES: u64 = 1 << 21;
/// The most bytes of all texts of a document, counted likewise.
const TEXT: u64 = 64 << 20;

/// One value of a document.
#[derive(Debug)]
pub(super) struct Node {
    /// Where it stands, in bytes. Of a collection from its first entry to its end.
    pub(super) span: Range<usize>,
    pub(super) content: Content,
    /// How deep it nests; a scalar is 1.
    height: usize,
    size: Size,
}

/// What a value is.
#[derive(Debug)]
pub(super) enum Content {
    Scalar { value: Value, style: ScalarStyle },
    List(Vec<Item>),
    Map(Vec<Entry>),
}

/// One element of a list.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) node: Rc<Node>,
    /// Where the element stands in this list: the node, or the alias that stands for it.
    pub(super) at: Range<usize>,
}

/// One entry of a mapping.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Rc<str>,
    pub(super) key_at: Range<usize>,
    pub(super) node: Rc<Node>,
    /// Where the value stands in this mapping: the node, or the alias that stands for it.
    pub(super) at: Range<usize>,
    /// It came through a merge key.
    merged: bool,
    /// The same key stood there before. kubectl takes the last without a word.
    pub(super) repeated: bool,
}

/// Why a document is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) message: String,
    pub(super) at: Range<usize>,
}

/// What a value amounts to once aliases are written out.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    values: u64,
    text: u64,
}

impl Size {
    fn plus(self, other: Self) -> Self {
        Self { values: self.values.saturating_add(other.values), text: self.text.saturating_add(other.text) }
    }
}

/// All documents of a text, in order. Documents without content are left out.
pub(super) fn documents(text: &str) -> Vec<Result<Rc<Node>, Problem>> {
    let mut out = Vec::new();
    for part in parts(text) {
        let base = part.start;
        if let Err(problem) = Reader::read(&text[part], base, &mut out) {
            out.push(Err(problem));
        }
    }
    out
}

/// The ranges that are read on their own, as kubectl splits a stream: JSON values one after the other, or YAML from
/// one `---` line to the next.
fn parts(text: &str) -> Vec<Range<usize>> {
    if text.trim_start().starts_with('{')
        && let Some(parts) = json_parts(text)
    {
        return parts;
    }
    let (mut parts, mut start, mut offset, mut filled) = (Vec::new(), 0, 0, false);
    for line in text.split_inclusive('\n') {
        let marker = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if marker && filled {
            parts.push(start..offset);
            start = offset;
        }
        // Comments and directives before the marker belong to the document after it.
        let content = if marker { line[3..].trim() } else { line.trim() };
        let nothing = content.is_empty() || content.starts_with('#') || (!marker && line.starts_with('%'));
        filled = (filled && !marker) || !nothing;
        offset += line.len();
    }
    parts.push(start..text.len());
    parts
}

/// JSON values one after the other; `None` where the text is something else.
fn json_parts(text: &str) -> Option<Vec<Range<usize>>> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    let (mut parts, mut start) = (Vec::new(), 0);
    while let Some(value) = values.next() {
        value.ok()?;
        parts.push(start..values.byte_offset());
        start = values.byte_offset();
    }
    Some(parts)
}

/// A collection that is still open.
struct Open {
    start: usize,
    anchor: usize,
    collected: Collected,
    height: usize,
    size: Size,
}

enum Collected {
    List(Vec<Item>),
    Map { entries: Vec<Entry>, known: HashMap<Rc<str>, usize>, key: Option<Key> },
}

/// The key whose value comes next.
enum Key {
    Text(Rc<str>, Range<usize>),
    Merge,
}

/// Builds the trees of one part from the events of the YAML parser.
struct Reader<'t> {
    base: usize,
    length: usize,
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    root: Option<Rc<Node>>,
    parser: Parser<'t, granit_parser::StrInput<'t>>,
}

impl<'t> Reader<'t> {
    fn read(text: &'t str, base: usize, out: &mut Vec<Result<Rc<Node>, Problem>>) -> Result<(), Problem> {
        let mut options = granit_parser::Options::default();
        options.set_emit_comments(false);
        let mut reader = Reader {
            base,
            length: text.len(),
            open: Vec::new(),
            anchors: HashMap::new(),
            root: None,
            parser: Parser::new_from_str_with_options(text, options),
        };
        while let Some(next) = reader.parser.next_event() {
            let (event, span) = next.map_err(|e| reader.scan_error(&e))?;
            let ended = matches!(event, Event::DocumentEnd);
            let at = reader.range(&span);
            reader.event(event, at)?;
            if ended {
                reader.anchors.clear();
                // An empty document holds one scalar of no length.
                let filled =
                    |n: &Rc<Node>| !n.span.is_empty() || !matches!(n.content, Content::Scalar { .. });
                out.extend(reader.root.take().filter(filled).map(Ok));
            }
        }
        Ok(())
    }

    fn scan_error(&self, error: &ScanError) -> Problem {
        let offset = error.marker().byte_offset().unwrap_or_default().min(self.length);
        Problem { message: error.info(), at: self.base + offset..self.base + offset }
    }

    fn range(&self, span: &Span) -> Range<usize> {
        let range = span.byte_range().unwrap_or_default();
        let start = range.start.min(self.length);
        self.base + start..self.base + range.end.clamp(start, self.length)
    }

    fn event(&mut self, event: Event<'t>, at: Range<usize>) -> Result<(), Problem> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalars::resolve(&text, style, tag.as_deref())
                    .map_err(|message| Problem { message, at: at.clone() })?;
                let size = Size { values: 1, text: text.len() as u64 };
                let content = Content::Scalar { value, style };
                self.finished(Node { span: at, content, height: 1, size }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.opened(at, anchor, Collected::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let map = Collected::Map { entries: Vec::new(), known: HashMap::new(), key: None };
                self.opened(at, anchor, map)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let content = match open.collected {
                    Collected::List(items) => Content::List(items),
                    Collected::Map { entries, .. } => Content::Map(entries),
                };
                let span = open.start..at.end.max(open.start);
                self.finished(Node { span, content, height: open.height + 1, size: open.size }, open.anchor)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => self.add(Rc::clone(node), at),
                None => Err(problem("an alias inside what it stands for: it would never end", at)),
            },
            _ => Ok(()),
        }
    }

    fn opened(&mut self, at: Range<usize>, anchor: usize, collected: Collected) -> Result<(), Problem> {
        if self.open.len() >= DEPTH {
            return Err(problem(format!("nested deeper than {DEPTH}"), at));
        }
        let size = Size { values: 1, text: 0 };
        self.open.push(Open { start: at.start, anchor, collected, height: 0, size });
        Ok(())
    }

    fn finished(&mut self, node: Node, anchor: usize) -> Result<(), Problem> {
        let at = node.span.clone();
        let node = Rc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        self.add(node, at)
    }

    /// Puts a value where it belongs: into the collection that is open, as key or as value, or as the document.
    fn add(&mut self, node: Rc<Node>, at: Range<usize>) -> Result<(), Problem> {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.height = open.height.max(node.height);
        open.size = open.size.plus(node.size);
        if open.height >= DEPTH {
            return Err(problem(format!("nested deeper than {DEPTH}, through aliases"), at));
        }
        if open.size.values > VALUES || open.size.text > TEXT {
            let message =
                format!("more than {VALUES} values or {TEXT} bytes of text, counting what aliases repeat");
            return Err(problem(message, at));
        }
        match &mut open.collected {
            Collected::List(items) => items.push(Item { node, at }),
            Collected::Map { entries, known, key } => match key.take() {
                None => *key = Some(read_key(&node, at)?),
                Some(Key::Text(key, key_at)) => {
                    put(entries, known, Entry { key, key_at, node, at, merged: false, repeated: false });
                }
                Some(Key::Merge) => {
                    for source in merge_sources(&node, &at)? {
                        let Content::Map(merged) = &source.content else { continue };
                        for entry in merged {
                            put(entries, known, Entry { merged: true, repeated: false, ..entry.clone() });
                        }
                    }
                }
            },
        }
        Ok(())
    }
}

fn problem(message: impl Into<String>, at: Range<usize>) -> Problem {
    Problem { message: message.into(), at }
}

fn read_key(node: &Node, at: Range<usize>) -> Result<Key, Problem> {
    match &node.content {
        Content::Scalar { value: Value::String(text), style: ScalarStyle::Plain } if text == "<<" => {
            Ok(Key::Merge)
        }
        Content::Scalar { value, .. } => match scalars::key(value) {
            Some(text) => Ok(Key::Text(text.into(), at)),
            None => Err(problem("a key must not be null: JSON has texts as keys alone", at)),
        },
        _ => Err(problem("a key must be a text: JSON has no lists or mappings as keys", at)),
    }
}

/// The mappings that a merge key names, in the order in which they are written over each other.
fn merge_sources(node: &Rc<Node>, at: &Range<usize>) -> Result<Vec<Rc<Node>>, Problem> {
    let is_map = |n: &Node| matches!(n.content, Content::Map(_));
    match &node.content {
        Content::Map(_) => Ok(vec![Rc::clone(node)]),
        Content::List(items) if items.iter().all(|i| is_map(&i.node)) => {
            Ok(items.iter().rev().map(|i| Rc::clone(&i.node)).collect())
        }
        _ => Err(problem("a merge key (<<) takes a mapping or a list of mappings", at.clone())),
    }
}

/// The later entry wins, also over one that stands before a merge key: so does kubectl.
fn put(entries: &mut Vec<Entry>, known: &mut HashMap<Rc<str>, usize>, mut entry: Entry) {
    if let Some(&index) = known.get(&entry.key) {
        entry.repeated = entries[index].repeated || (!entry.merged && !entries[index].merged);
        entries[index] = entry;
    } else {
        known.insert(Rc::clone(&entry.key), entries.len());
        entries.push(entry);
    }
}

impl Node {
    /// The entry of a mapping.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.content {
            Content::Map(entries) => entries.iter().find(|e| &*e.key == key),
            _ => None,
        }
    }

    /// The text of a mapping's entry.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match &self.entry(key)?.node.content {
            Content::Scalar { value, .. } => value.as_str(),
            _ => None,
        }
    }

    /// The value as JSON, with aliases written out. Its size and depth were bounded when it was read.
    pub(super) fn to_value(&self) -> Value {
        match &self.content {
            Content::Scalar { value, .. } => value.clone(),
            Content::List(items) => items.iter().map(|i| i.node.to_value()).collect(),
            Content::Map(entries) => {
                let pairs = entries.iter().map(|e| (e.key.to_string(), e.node.to_value()));
                Value::Object(pairs.collect::<Map<String, Value>>())
            }
        }
    }

    /// Keys that stand twice in one mapping of this value.
    pub(super) fn repeated_keys(&self) -> Vec<&Entry> {
        let mut found = Vec::new();
        let mut left: Vec<&Node> = vec![self];
        while let Some(node) = left.pop() {
            match &node.content {
                Content::Scalar { .. } => {}
                Content::List(items) => left.extend(items.iter().map(|i| &*i.node)),
                Content::Map(entries) => {
                    found.extend(entries.iter().filter(|e| e.repeated));
                    left.extend(entries.iter().map(|e| &*e.node));
                }
            }
        }
        found
    }
}
