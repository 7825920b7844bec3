//! Parser of YAML and JSON that keeps the byte ranges of values and keys. After a document that fails to parse it
//! continues with the next.

pub(super) mod look_alikes;
mod scalars;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};
use serde_json::{Map, Value};

/// Shallow enough for recursion.
const MAX_DEPTH: usize = 128;
/// Includes repetitions by aliases and merge keys. A file of 16 MiB has fewer.
const MAX_VALUES: u64 = 1 << 21;
/// Most bytes of text in a document, including repetitions.
const MAX_TEXT: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct Node {
    /// Byte range; of a collection from its first entry to its end.
    pub(super) span: Range<usize>,
    pub(super) content: Content,
    /// 1 for a scalar.
    height: usize,
    size: Size,
}

#[derive(Debug)]
pub(super) enum Content {
    Scalar { value: Value, style: ScalarStyle },
    List(Vec<Item>),
    Map(Vec<Entry>),
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) node: Rc<Node>,
    /// Byte range of the node, or of the alias that refers to it.
    pub(super) at: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Rc<str>,
    pub(super) key_at: Range<usize>,
    pub(super) node: Rc<Node>,
    /// Byte range of the value, or of the alias that refers to it.
    pub(super) at: Range<usize>,
    is_merged: bool,
    /// kubectl takes the last of repeated keys without a warning.
    pub(super) is_repeated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) message: String,
    pub(super) at: Range<usize>,
}

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

pub(super) fn documents(text: &str) -> Vec<Result<Rc<Node>, Problem>> {
    let mut out = Vec::new();
    for part in parts(text) {
        let base = part.start + marked_length(&text[part.clone()]);
        let document = &text[base..part.end];
        if let Err(problem) = Reader::read(document, base, &mut out) {
            out.push(Err(look_alikes::name_cause(document, base, problem)));
        }
    }
    out
}

/// Bytes up to the byte order mark at the start of a document, which kubectl skips. 0 without one.
fn marked_length(document: &str) -> usize {
    let body = match document.split_once('\n') {
        Some((marker, body)) if marker.trim_end() == "---" => body,
        _ => document,
    };
    let content = body.strip_prefix('\u{feff}');
    content.map_or(0, |content| document.len() - content.len())
}

/// Splits like kubectl: into consecutive JSON values, or into YAML between `---` lines.
fn parts(text: &str) -> Vec<Range<usize>> {
    if text.trim_start().starts_with('{')
        && let Some(parts) = json_parts(text)
    {
        return parts;
    }
    let (mut parts, mut start, mut offset, mut has_content) = (Vec::new(), 0, 0, false);
    for line in text.split_inclusive('\n') {
        let is_marker = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if is_marker && has_content {
            parts.push(start..offset);
            start = offset;
        }
        // Comments and directives before the marker belong to the document after it.
        let content = if is_marker { line[3..].trim() } else { line.trim() };
        let is_empty =
            content.is_empty() || content.starts_with('#') || (!is_marker && line.starts_with('%'));
        has_content = (has_content && !is_marker) || !is_empty;
        offset += line.len();
    }
    parts.push(start..text.len());
    parts
}

/// `None` if the text is not JSON.
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

struct OpenCollection {
    start: usize,
    anchor: usize,
    content: PartialContent,
    height: usize,
    size: Size,
}

enum PartialContent {
    List(Vec<Item>),
    Map { entries: Vec<Entry>, indices: HashMap<Rc<str>, usize>, key: Option<Key> },
}

enum Key {
    Text(Rc<str>, Range<usize>),
    Merge,
}

/// Builds the trees from the events of the YAML parser.
struct Reader<'t> {
    base: usize,
    length: usize,
    open: Vec<OpenCollection>,
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
            let is_document_end = matches!(event, Event::DocumentEnd);
            let at = reader.range(&span);
            reader.handle(event, at)?;
            if is_document_end {
                reader.anchors.clear();
                // An empty document is one scalar of length 0.
                let has_content =
                    |n: &Rc<Node>| !n.span.is_empty() || !matches!(n.content, Content::Scalar { .. });
                out.extend(reader.root.take().filter(has_content).map(Ok));
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

    fn handle(&mut self, event: Event<'t>, at: Range<usize>) -> Result<(), Problem> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalars::resolve(&text, style, tag.as_deref())
                    .map_err(|message| Problem { message, at: at.clone() })?;
                let size = Size { values: 1, text: text.len() as u64 };
                let content = Content::Scalar { value, style };
                self.finish(Node { span: at, content, height: 1, size }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.open(at, anchor, PartialContent::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let map = PartialContent::Map { entries: Vec::new(), indices: HashMap::new(), key: None };
                self.open(at, anchor, map)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let content = match open.content {
                    PartialContent::List(items) => Content::List(items),
                    PartialContent::Map { entries, .. } => Content::Map(entries),
                };
                let span = open.start..at.end.max(open.start);
                self.finish(Node { span, content, height: open.height + 1, size: open.size }, open.anchor)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => self.add(Rc::clone(node), at),
                None => Err(problem("the alias refers to a value that contains it", at)),
            },
            _ => Ok(()),
        }
    }

    fn open(&mut self, at: Range<usize>, anchor: usize, content: PartialContent) -> Result<(), Problem> {
        if self.open.len() >= MAX_DEPTH {
            return Err(problem(format!("nested deeper than {MAX_DEPTH} levels"), at));
        }
        let size = Size { values: 1, text: 0 };
        self.open.push(OpenCollection { start: at.start, anchor, content, height: 0, size });
        Ok(())
    }

    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), Problem> {
        let at = node.span.clone();
        let node = Rc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        self.add(node, at)
    }

    /// Adds a value to the innermost open collection, or makes it the root.
    fn add(&mut self, node: Rc<Node>, at: Range<usize>) -> Result<(), Problem> {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.height = open.height.max(node.height);
        open.size = open.size.plus(node.size);
        if open.height >= MAX_DEPTH {
            return Err(problem(format!("nested deeper than {MAX_DEPTH} levels with aliases expanded"), at));
        }
        if open.size.values > MAX_VALUES || open.size.text > MAX_TEXT {
            let message =
                format!("more than {MAX_VALUES} values or {MAX_TEXT} bytes of text with aliases expanded");
            return Err(problem(message, at));
        }
        match &mut open.content {
            PartialContent::List(items) => items.push(Item { node, at }),
            PartialContent::Map { entries, indices, key } => match key.take() {
                None => *key = Some(read_key(&node, at)?),
                Some(Key::Text(key, key_at)) => {
                    let entry = Entry { key, key_at, node, at, is_merged: false, is_repeated: false };
                    put(entries, indices, entry);
                }
                Some(Key::Merge) => {
                    for source in merge_sources(&node, &at)? {
                        let Content::Map(merged) = &source.content else { continue };
                        for entry in merged {
                            let entry = Entry { is_merged: true, is_repeated: false, ..entry.clone() };
                            put(entries, indices, entry);
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
            None => Err(problem("a key must not be null: keys in JSON are strings", at)),
        },
        _ => Err(problem("a key must not be a list or mapping: keys in JSON are strings", at)),
    }
}

/// Later mappings overwrite earlier ones.
fn merge_sources(node: &Rc<Node>, at: &Range<usize>) -> Result<Vec<Rc<Node>>, Problem> {
    let is_map = |n: &Node| matches!(n.content, Content::Map(_));
    match &node.content {
        Content::Map(_) => Ok(vec![Rc::clone(node)]),
        Content::List(items) if items.iter().all(|i| is_map(&i.node)) => {
            Ok(items.iter().rev().map(|i| Rc::clone(&i.node)).collect())
        }
        _ => Err(problem("a merge key (<<) needs a mapping or a list of mappings", at.clone())),
    }
}

/// Adds or replaces an entry. As in kubectl the later entry wins, even over one before a merge key.
fn put(entries: &mut Vec<Entry>, indices: &mut HashMap<Rc<str>, usize>, mut entry: Entry) {
    if let Some(&index) = indices.get(&entry.key) {
        let previous = &entries[index];
        entry.is_repeated = previous.is_repeated || (!entry.is_merged && !previous.is_merged);
        entries[index] = entry;
    } else {
        indices.insert(Rc::clone(&entry.key), entries.len());
        entries.push(entry);
    }
}

impl Node {
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.content {
            Content::Map(entries) => entries.iter().find(|e| &*e.key == key),
            _ => None,
        }
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match &self.entry(key)?.node.content {
            Content::Scalar { value, .. } => value.as_str(),
            _ => None,
        }
    }

    /// JSON with aliases expanded. The parser bounds size and depth.
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

    /// Entries whose key appears more than once in its mapping.
    pub(super) fn repeated_keys(&self) -> Vec<&Entry> {
        self.all_entries().into_iter().filter(|entry| entry.is_repeated).collect()
    }

    /// Entries of this value, at any depth.
    fn all_entries(&self) -> Vec<&Entry> {
        let mut found = Vec::new();
        let mut left: Vec<&Node> = vec![self];
        while let Some(node) = left.pop() {
            match &node.content {
                Content::Scalar { .. } => {}
                Content::List(items) => left.extend(items.iter().map(|i| &*i.node)),
                Content::Map(entries) => {
                    found.extend(entries);
                    left.extend(entries.iter().map(|e| &*e.node));
                }
            }
        }
        found
    }
}
