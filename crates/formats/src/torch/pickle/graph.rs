//! What a pickle describes, as a graph of small nodes in one arena.
//!
//! Nodes are 16 bytes and refer to each other by number, so cycles, shared objects and 300,000 levels of nesting cost
//! nothing special: there is nothing to recurse into, not even when the graph is dropped. Strings and bytes stay where
//! they are in the input, as ranges.

use std::{borrow::Cow, collections::HashMap};
use twinscope_tensor::Bytes;

/// A node's number.
pub(crate) type Id = u32;

/// "There is none", where a node's number could be.
pub(crate) const NIL: Id = u32::MAX;

/// A range of the input, in three words so that a node stays small. A length that does not fit is kept apart, under its
/// index in `low`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    low: u32,
    high: u32,
    len: u32,
}

/// Items of a list, set or dict: a chain of runs, because they arrive in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
}

impl Chain {
    pub(super) const EMPTY: Chain = Chain {
        first: NIL,
        last: NIL,
    };
}

#[derive(Clone, Copy, Debug)]
struct Run {
    start: u32,
    len: u32,
    next: u32,
}

/// One object of the pickle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Node {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// A little-endian two's complement integer that needs more than 64 bits.
    Long(Span),
    /// A decimal integer that needs more than 64 bits.
    Digits(Span),
    /// UTF-8.
    Text(Span),
    /// A protocol 0 string with `\u` escapes.
    Escaped(Span),
    /// A protocol 0 `str` literal with quotes and escapes.
    Quoted(Span),
    /// A Python 2 `str`: bytes or text, whoever uses it decides.
    PyStr(Span),
    Bytes(Span),
    Tuple {
        start: u32,
        len: u32,
    },
    List(Chain),
    /// Keys and values take turns.
    Dict(Chain),
    Set(Chain),
    /// `module.name`, by its number in the table of names.
    Global(u32),
    /// Something that would be called: nothing ever is.
    Call {
        function: Id,
        arguments: Id,
        extra: u32,
    },
    Persistent(Id),
}

/// What was done to a called object afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extra {
    pub(crate) state: Id,
    pub(crate) items: Chain,
    pub(crate) pairs: Chain,
}

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) input: Bytes,
    pub(super) nodes: Vec<Node>,
    items: Vec<Id>,
    runs: Vec<Run>,
    extras: Vec<Extra>,
    names: Vec<String>,
    name_numbers: HashMap<String, u32>,
    wide: Vec<(u64, u64)>,
    name_bytes: usize,
}

impl Graph {
    pub(super) fn new(input: Bytes) -> Self {
        Self {
            input,
            nodes: Vec::new(),
            items: Vec::new(),
            runs: Vec::new(),
            extras: Vec::new(),
            names: Vec::new(),
            name_numbers: HashMap::new(),
            wide: Vec::new(),
            name_bytes: 0,
        }
    }

    /// Bytes held, near enough to bound them.
    pub(super) fn weight(&self) -> usize {
        self.nodes.len() * size_of::<Node>()
            + self.items.len() * size_of::<Id>()
            + self.runs.len() * size_of::<Run>()
            + self.extras.len() * size_of::<Extra>()
            + self.names.len() * 100
            + self.name_bytes * 2
    }

    pub(super) fn push(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        (self.nodes.len() - 1) as Id
    }

    pub(super) fn span(&mut self, start: usize, len: usize) -> Span {
        match u32::try_from(len) {
            Ok(len) if len != u32::MAX => Span {
                low: start as u32,
                high: (start as u64 >> 32) as u32,
                len,
            },
            _ => {
                self.wide.push((start as u64, len as u64));
                Span {
                    low: self.wide.len() as u32 - 1,
                    high: 0,
                    len: u32::MAX,
                }
            }
        }
    }

    pub(super) fn tuple(&mut self, items: &[Id]) -> Id {
        let start = self.items.len() as u32;
        self.items.extend_from_slice(items);
        self.push(Node::Tuple {
            start,
            len: items.len() as u32,
        })
    }

    pub(super) fn global(&mut self, name: String) -> Id {
        let number = match self.name_numbers.get(&name) {
            Some(number) => *number,
            None => {
                let number = self.names.len() as u32;
                self.name_bytes += name.len();
                self.names.push(name.clone());
                self.name_numbers.insert(name, number);
                number
            }
        };
        self.push(Node::Global(number))
    }

    /// Appends to a chain and returns the chain as it is now.
    pub(super) fn extend(&mut self, chain: Chain, items: &[Id]) -> Chain {
        if items.is_empty() {
            return chain;
        }
        let start = self.items.len() as u32;
        self.items.extend_from_slice(items);
        if chain.last != NIL {
            let last = &mut self.runs[chain.last as usize];
            if last.start + last.len == start {
                last.len += items.len() as u32;
                return chain;
            }
        }
        let run = self.runs.len() as u32;
        self.runs.push(Run {
            start,
            len: items.len() as u32,
            next: NIL,
        });
        if chain.last == NIL {
            return Chain {
                first: run,
                last: run,
            };
        }
        self.runs[chain.last as usize].next = run;
        Chain {
            first: chain.first,
            last: run,
        }
    }

    /// What was done to a call afterwards, made when first needed.
    pub(super) fn extra_mut(&mut self, call: Id) -> Option<&mut Extra> {
        let next = self.extras.len() as u32;
        let Some(Node::Call { extra, .. }) = self.nodes.get_mut(call as usize) else {
            return None;
        };
        if *extra == NIL {
            *extra = next;
            self.extras.push(Extra {
                state: NIL,
                items: Chain::EMPTY,
                pairs: Chain::EMPTY,
            });
        }
        let at = *extra;
        self.extras.get_mut(at as usize)
    }

    /// The node of that number; NIL and anything unknown are `None` objects.
    pub(crate) fn node(&self, id: Id) -> Node {
        self.nodes.get(id as usize).copied().unwrap_or(Node::None)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (Id, Node)> {
        self.nodes
            .iter()
            .enumerate()
            .map(|(id, node)| (id as Id, *node))
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn extra(&self, id: Id) -> Option<Extra> {
        match self.node(id) {
            Node::Call { extra, .. } => self.extras.get(extra as usize).copied(),
            _ => None,
        }
    }

    pub(crate) fn chain(&self, chain: Chain) -> Vec<Id> {
        let mut out = Vec::new();
        let mut at = chain.first;
        while let Some(run) = self.runs.get(at as usize) {
            out.extend_from_slice(&self.items[run.start as usize..(run.start + run.len) as usize]);
            at = run.next;
        }
        out
    }

    pub(crate) fn tuple_items(&self, start: u32, len: u32) -> &[Id] {
        &self.items[start as usize..(start + len) as usize]
    }

    /// The items of a tuple or list.
    pub(crate) fn sequence(&self, id: Id) -> Option<Cow<'_, [Id]>> {
        match self.node(id) {
            Node::Tuple { start, len } => Some(Cow::Borrowed(self.tuple_items(start, len))),
            Node::List(chain) | Node::Set(chain) => Some(Cow::Owned(self.chain(chain))),
            _ => None,
        }
    }

    /// The pairs of a plain dict, as written.
    pub(crate) fn pairs(&self, id: Id) -> Option<Vec<(Id, Id)>> {
        match self.node(id) {
            Node::Dict(chain) => Some(self.pairs_of(chain)),
            _ => None,
        }
    }

    pub(crate) fn pairs_of(&self, chain: Chain) -> Vec<(Id, Id)> {
        self.chain(chain)
            .chunks_exact(2)
            .map(|pair| (pair[0], pair[1]))
            .collect()
    }

    /// The last value under a text key of a plain dict.
    pub(crate) fn get(&self, dict: Id, key: &str) -> Option<Id> {
        let pairs = self.pairs(dict)?;
        pairs
            .into_iter()
            .rev()
            .find(|(found, _)| self.text(*found).is_some_and(|text| text == key))
            .map(|(_, value)| value)
    }

    pub(crate) fn call(&self, id: Id) -> Option<(Id, Cow<'_, [Id]>)> {
        match self.node(id) {
            Node::Call {
                function,
                arguments,
                ..
            } => Some((
                function,
                self.sequence(arguments).unwrap_or(Cow::Borrowed(&[])),
            )),
            _ => None,
        }
    }

    /// `module.name` of a global.
    pub(crate) fn global_name(&self, id: Id) -> Option<&str> {
        match self.node(id) {
            Node::Global(name) => self.names.get(name as usize).map(String::as_str),
            _ => None,
        }
    }

    pub(crate) fn int(&self, id: Id) -> Option<i64> {
        match self.node(id) {
            Node::Int(value) => Some(value),
            _ => None,
        }
    }

    /// Where a span lies in the input.
    pub(crate) fn range(&self, span: Span) -> std::ops::Range<u64> {
        let near = (
            u64::from(span.high) << 32 | u64::from(span.low),
            u64::from(span.len),
        );
        let (start, len) = if span.len == u32::MAX {
            self.wide[span.low as usize]
        } else {
            near
        };
        start..start + len
    }

    pub(crate) fn raw(&self, span: Span) -> &[u8] {
        let range = self.range(span);
        &self.input.as_slice()[range.start as usize..range.end as usize]
    }

    /// The text of a string of any kind; what is no text is shown with replacement characters.
    pub(crate) fn text(&self, id: Id) -> Option<Cow<'_, str>> {
        match self.node(id) {
            Node::Text(span) => Some(String::from_utf8_lossy(self.raw(span))),
            Node::Escaped(span) => Some(Cow::Owned(unescape_unicode(self.raw(span)))),
            Node::Quoted(span) => Some(text_or_latin1(Cow::Owned(unquote(self.raw(span))))),
            Node::PyStr(span) => Some(text_or_latin1(Cow::Borrowed(self.raw(span)))),
            _ => None,
        }
    }
}

fn text_or_latin1(bytes: Cow<'_, [u8]>) -> Cow<'_, str> {
    let latin1 = |bytes: &[u8]| Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect());
    match bytes {
        Cow::Borrowed(bytes) => {
            std::str::from_utf8(bytes).map_or_else(|_| latin1(bytes), Cow::Borrowed)
        }
        Cow::Owned(bytes) => {
            String::from_utf8(bytes).map_or_else(|error| latin1(error.as_bytes()), Cow::Owned)
        }
    }
}

/// `\u` with four hexadecimal digits and `\U` with eight, in latin-1 text.
fn unescape_unicode(raw: &[u8]) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let digits = match raw[at..] {
            [b'\\', b'u', ..] => 4,
            [b'\\', b'U', ..] => 8,
            _ => 0,
        };
        let code = raw
            .get(at + 2..at + 2 + digits)
            .and_then(|hex| u32::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match code {
            Some(code) if digits > 0 => {
                out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                at += 2 + digits;
            }
            _ => {
                out.push(char::from(raw[at]));
                at += 1;
            }
        }
    }
    out
}

/// The bytes of a Python string literal, quotes taken off and escapes resolved.
fn unquote(raw: &[u8]) -> Vec<u8> {
    let inner = match raw {
        [first @ (b'\'' | b'"'), inner @ .., last] if first == last => inner,
        other => other,
    };
    let mut out = Vec::with_capacity(inner.len());
    let mut at = 0;
    while at < inner.len() {
        if inner[at] != b'\\' || at + 1 == inner.len() {
            out.push(inner[at]);
            at += 1;
            continue;
        }
        let (byte, used) = match inner[at + 1] {
            b'n' => (b'\n', 2),
            b't' => (b'\t', 2),
            b'r' => (b'\r', 2),
            b'a' => (7, 2),
            b'b' => (8, 2),
            b'f' => (12, 2),
            b'v' => (11, 2),
            b'x' => {
                let hex = inner
                    .get(at + 2..at + 4)
                    .and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
                hex.map_or((b'x', 2), |byte| (byte, 4))
            }
            b'0'..=b'7' => {
                let len = inner[at + 1..]
                    .iter()
                    .take(3)
                    .take_while(|digit| (b'0'..=b'7').contains(digit))
                    .count();
                let value = inner[at + 1..at + 1 + len]
                    .iter()
                    .fold(0u16, |value, digit| value * 8 + u16::from(digit - b'0'));
                (value as u8, 1 + len)
            }
            other => (other, 2),
        };
        out.push(byte);
        at += used;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_sixteen_bytes() {
        assert_eq!(size_of::<Node>(), 16);
    }

    #[test]
    fn protocol_0_strings_lose_their_quotes_and_escapes() {
        assert_eq!(unquote(b"'a\\x41\\n\\'\\101'"), b"aA\n'A");
        assert_eq!(
            unescape_unicode(b"a\\u00e9\\U0001f525\\q"),
            "a\u{e9}\u{1f525}\\q"
        );
    }
}
