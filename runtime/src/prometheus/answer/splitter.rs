//! Splitter of answers as they arrive. It knows strings, brackets and two keys; serde judges everything else.

use memchr::memchr2;

/// Depth of the elements of `{"data": {"result": [...]}}`.
const ELEMENTS: u32 = 3;
/// An element in the frame.
const TAKEN: &[u8] = b"null";

/// Place of the next byte.
#[derive(Clone, Copy, Default, PartialEq)]
enum InString {
    #[default]
    Outside,
    Inside,
    /// Inside, after a backslash.
    Escaped,
}

/// Splits the text of an answer, as it arrives, into the objects of its result and the frame around them.
#[derive(Default)]
pub(super) struct Splitter {
    /// The answer with `null` in place of each object.
    pub(super) frame: Vec<u8>,
    /// Begin of the present object, if its end has not arrived.
    element: Vec<u8>,
    /// Open objects and lists.
    depth: u32,
    string: InString,
    is_in_element: bool,
    /// Last string in the frame outside of the result, with its quotes: a key, if a colon follows.
    last: std::ops::Range<usize>,
    /// The present value is that of `data`, and in it that of `result`.
    is_data: bool,
    is_result: bool,
}

impl Splitter {
    /// Takes more text, and calls `take` with each object of the result that ends in it.
    pub(super) fn push(&mut self, text: &[u8], mut take: impl FnMut(&[u8])) {
        // Text before `from` is in the frame, in the element, or taken.
        let (mut from, mut at) = (0, 0);
        while at < text.len() {
            if self.string != InString::Outside {
                at += self.skip_in_string(&text[at..]);
                if self.string == InString::Outside && self.depth < ELEMENTS {
                    self.last.end = self.frame.len() + at - from;
                }
                continue;
            }
            match text[at] {
                b'"' => {
                    self.string = InString::Inside;
                    if self.depth < ELEMENTS {
                        self.last.start = self.frame.len() + at - from;
                    }
                }
                b':' if self.depth < ELEMENTS => {
                    self.frame.extend_from_slice(&text[from..at]);
                    from = at;
                    let key = self.frame.get(self.last.clone()).unwrap_or_default();
                    match self.depth {
                        1 => (self.is_data, self.is_result) = (key == b"\"data\"", false),
                        _ => self.is_result = self.is_data && key == b"\"result\"",
                    }
                }
                b'{' if self.depth == ELEMENTS && self.is_result => {
                    self.frame.extend_from_slice(&text[from..at]);
                    self.frame.extend_from_slice(TAKEN);
                    from = at;
                    self.is_in_element = true;
                    self.depth += 1;
                }
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.is_in_element && self.depth == ELEMENTS {
                        self.end_element(&text[from..=at], &mut take);
                        from = at + 1;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        let rest = if self.is_in_element { &mut self.element } else { &mut self.frame };
        rest.extend_from_slice(&text[from..]);
    }

    /// Length of the text up to the end of the present string, or of what arrived of it.
    fn skip_in_string(&mut self, text: &[u8]) -> usize {
        if self.string == InString::Escaped {
            self.string = InString::Inside;
            return 1;
        }
        let Some(end) = memchr2(b'"', b'\\', text) else { return text.len() };
        self.string = if text[end] == b'"' { InString::Outside } else { InString::Escaped };
        end + 1
    }

    /// Passes on the object that ends with this text.
    fn end_element(&mut self, text: &[u8], take: &mut impl FnMut(&[u8])) {
        self.is_in_element = false;
        if self.element.is_empty() {
            take(text);
        } else {
            self.element.extend_from_slice(text);
            take(&self.element);
            self.element.clear();
        }
    }
}
