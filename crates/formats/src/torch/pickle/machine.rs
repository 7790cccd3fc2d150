//! The pickle machine: opcodes of protocols 0 to 5 in, a graph out. Nothing is imported and nothing is called.
//!
//! It stops at the first thing that is no pickle, and hands over what was built until then: CPython would have called
//! whatever came before.

use super::graph::{Chain, Graph, Id, Node};
use crate::{error::Fault, limits::Limits};
use std::collections::HashMap;
use twinscope_tensor::Bytes;

/// A pickle that was followed: its objects, and where it ended or why it could not be followed to its end.
#[derive(Debug)]
pub(crate) struct Pickle {
    pub(crate) graph: Graph,
    pub(crate) result: Result<End, Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) root: Id,
    /// The position after STOP.
    pub(crate) at: usize,
}

/// Follows the pickle that begins at byte `at`.
pub(crate) fn unpickle(input: &Bytes, at: usize, limits: &Limits) -> Pickle {
    let mut machine = Machine {
        graph: Graph::new(input.clone()),
        at,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::default(),
        // What the graph of a real checkpoint takes is about twice its pickle, that of a list of small integers (a tokenized
        // text) seven times; the rest is for small ones.
        budget: (24 << 20) + input.len().saturating_sub(at).saturating_mul(8),
        ops: limits.pickle_ops,
        small: vec![Id::MAX; 1024],
    };
    let result = machine.run();
    Pickle {
        graph: machine.graph,
        result,
    }
}

/// Remembered nodes. Writers count up from zero, so nearly all are in the vector; a hostile index costs one entry.
#[derive(Default)]
struct Memo {
    dense: Vec<Id>,
    sparse: HashMap<u64, Id>,
}

impl Memo {
    fn put(&mut self, index: u64, id: Id) {
        match usize::try_from(index) {
            Ok(index) if index < self.dense.len() => self.dense[index] = id,
            Ok(index) if index == self.dense.len() => self.dense.push(id),
            _ => {
                self.sparse.insert(index, id);
            }
        }
    }

    fn get(&self, index: u64) -> Option<Id> {
        let dense = usize::try_from(index)
            .ok()
            .and_then(|index| self.dense.get(index));
        dense.or_else(|| self.sparse.get(&index)).copied()
    }

    fn len(&self) -> u64 {
        (self.dense.len() + self.sparse.len()) as u64
    }
}

struct Machine {
    graph: Graph,
    at: usize,
    stack: Vec<Id>,
    /// Heights of the stack at each MARK.
    marks: Vec<u32>,
    memo: Memo,
    budget: usize,
    ops: u64,
    /// Small integers, made once.
    small: Vec<Id>,
}

type Step<T> = Result<T, Fault>;

impl Machine {
    fn corrupt(&self, what: &str) -> Fault {
        Fault::CorruptPickle {
            what: format!("{what} at byte {}", self.at),
        }
    }

    fn take(&mut self, len: u64) -> Step<usize> {
        let left = self.graph.input.len() - self.at;
        match usize::try_from(len) {
            Ok(len) if len <= left => {
                let start = self.at;
                self.at += len;
                Ok(start)
            }
            _ => Err(Fault::Truncated {
                what: format!(
                    "a pickle needs {len} bytes at byte {}, {left} are left",
                    self.at
                ),
            }),
        }
    }

    fn number<const N: usize>(&mut self) -> Step<[u8; N]> {
        let start = self.take(N as u64)?;
        Ok(self.graph.input[start..start + N]
            .try_into()
            .expect("N bytes were taken"))
    }

    fn byte(&mut self) -> Step<u8> {
        Ok(self.number::<1>()?[0])
    }

    /// A line without its newline: where it starts and how long it is.
    fn line(&mut self) -> Step<(usize, usize)> {
        let rest = &self.graph.input[self.at..];
        let len = rest.iter().position(|byte| *byte == b'\n');
        let len = len.ok_or_else(|| Fault::Truncated {
            what: format!("a line of a pickle that begins at byte {}", self.at),
        })?;
        let start = self.at;
        self.at += len + 1;
        Ok((start, len))
    }

    fn line_text(&mut self) -> Step<String> {
        let (start, len) = self.line()?;
        Ok(String::from_utf8_lossy(&self.graph.input[start..start + len]).into_owned())
    }

    fn push(&mut self, node: Node) {
        let id = self.graph.push(node);
        self.stack.push(id);
    }

    fn push_int(&mut self, value: i64) {
        let slot = usize::try_from(value)
            .ok()
            .filter(|value| *value < self.small.len());
        let id = match slot {
            Some(slot) if self.small[slot] != Id::MAX => self.small[slot],
            Some(slot) => {
                self.small[slot] = self.graph.push(Node::Int(value));
                self.small[slot]
            }
            None => self.graph.push(Node::Int(value)),
        };
        self.stack.push(id);
    }

    fn floor(&self) -> usize {
        self.marks.last().map_or(0, |mark| *mark as usize)
    }

    fn pop(&mut self) -> Step<Id> {
        if self.stack.len() <= self.floor() {
            return Err(self.corrupt("the stack is empty"));
        }
        self.stack
            .pop()
            .ok_or_else(|| self.corrupt("the stack is empty"))
    }

    fn top(&self) -> Step<Id> {
        if self.stack.len() <= self.floor() {
            return Err(self.corrupt("the stack is empty"));
        }
        self.stack
            .last()
            .copied()
            .ok_or_else(|| self.corrupt("the stack is empty"))
    }

    /// Takes everything above the last MARK off the stack.
    fn pop_mark(&mut self) -> Step<Vec<Id>> {
        let mark = self
            .marks
            .pop()
            .ok_or_else(|| self.corrupt("there is no mark"))?;
        Ok(self.stack.split_off(mark as usize))
    }

    fn push_span(&mut self, len: u64, node: fn(super::graph::Span) -> Node) -> Step<()> {
        let start = self.take(len)?;
        let span = self.graph.span(start, len as usize);
        self.push(node(span));
        Ok(())
    }

    fn push_tuple(&mut self, len: usize) -> Step<()> {
        if self.stack.len() < self.floor() + len {
            return Err(self.corrupt("the stack is too short for a tuple"));
        }
        let items = self.stack.split_off(self.stack.len() - len);
        let id = self.graph.tuple(&items);
        self.stack.push(id);
        Ok(())
    }

    fn push_call(&mut self, function: Id, arguments: Id) -> Step<()> {
        if !matches!(self.graph.node(arguments), Node::Tuple { .. }) {
            return Err(self.corrupt("a call whose arguments are no tuple"));
        }
        self.push(Node::Call {
            function,
            arguments,
            extra: super::graph::NIL,
        });
        Ok(())
    }

    fn append(&mut self, items: &[Id]) -> Step<()> {
        let top = self.top()?;
        match self.graph.node(top) {
            Node::List(chain) => {
                let chain = self.graph.extend(chain, items);
                self.graph.nodes[top as usize] = Node::List(chain);
            }
            Node::Set(chain) => {
                let chain = self.graph.extend(chain, items);
                self.graph.nodes[top as usize] = Node::Set(chain);
            }
            Node::Call { .. } => {
                let before = self
                    .graph
                    .extra_mut(top)
                    .map_or(Chain::EMPTY, |extra| extra.items);
                let after = self.graph.extend(before, items);
                if let Some(extra) = self.graph.extra_mut(top) {
                    extra.items = after;
                }
            }
            _ => return Err(self.corrupt("an append to what is no list")),
        }
        Ok(())
    }

    fn set_items(&mut self, items: &[Id]) -> Step<()> {
        if !items.len().is_multiple_of(2) {
            return Err(self.corrupt("a key without a value"));
        }
        let top = self.top()?;
        match self.graph.node(top) {
            Node::Dict(chain) => {
                let chain = self.graph.extend(chain, items);
                self.graph.nodes[top as usize] = Node::Dict(chain);
            }
            Node::Call { .. } => {
                let before = self
                    .graph
                    .extra_mut(top)
                    .map_or(Chain::EMPTY, |extra| extra.pairs);
                let after = self.graph.extend(before, items);
                if let Some(extra) = self.graph.extra_mut(top) {
                    extra.pairs = after;
                }
            }
            _ => return Err(self.corrupt("a key set on what is no dict")),
        }
        Ok(())
    }

    fn build(&mut self) -> Step<()> {
        let state = self.pop()?;
        let top = self.top()?;
        match self.graph.node(top) {
            Node::Call { .. } => {
                if let Some(extra) = self.graph.extra_mut(top) {
                    extra.state = state;
                }
                Ok(())
            }
            // Other objects have no state we would look at; their own contents stand.
            Node::Dict(_)
            | Node::List(_)
            | Node::Set(_)
            | Node::Tuple { .. }
            | Node::Global(_)
            | Node::Persistent(_) => Ok(()),
            _ => Err(self.corrupt("state for what has none")),
        }
    }

    fn push_long(&mut self, len: u64) -> Step<()> {
        let start = self.take(len)?;
        let bytes = &self.graph.input[start..self.at];
        if bytes.len() <= 8 {
            let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
            let mut wide = [if negative { 0xff } else { 0 }; 8];
            wide[..bytes.len()].copy_from_slice(bytes);
            self.push_int(i64::from_le_bytes(wide));
        } else {
            let span = self.graph.span(start, len as usize);
            self.push(Node::Long(span));
        }
        Ok(())
    }

    /// A decimal line, of INT (where `00` and `01` are booleans) or LONG (with an `L` behind).
    fn push_decimal(&mut self, booleans: bool) -> Step<()> {
        let (start, len) = self.line()?;
        let line = &self.graph.input[start..start + len];
        if booleans && (line == b"00" || line == b"01") {
            let value = line == b"01";
            self.push(Node::Bool(value));
            return Ok(());
        }
        let digits = line.strip_suffix(b"L").unwrap_or(line);
        let digits_len = digits.len();
        let unsigned = digits.strip_prefix(b"-").unwrap_or(digits);
        if unsigned.is_empty() || !unsigned.iter().all(u8::is_ascii_digit) {
            return Err(self.corrupt("no decimal number"));
        }
        match std::str::from_utf8(digits)
            .ok()
            .and_then(|text| text.parse().ok())
        {
            Some(value) => self.push_int(value),
            None => {
                let span = self.graph.span(start, digits_len);
                self.push(Node::Digits(span));
            }
        }
        Ok(())
    }

    fn memo_line(&mut self) -> Step<u64> {
        let text = self.line_text()?;
        text.trim()
            .parse()
            .map_err(|_| self.corrupt("no memo index"))
    }

    fn remember(&mut self, index: u64) -> Step<()> {
        let top = self.top()?;
        self.memo.put(index, top);
        Ok(())
    }

    fn recall(&mut self, index: u64) -> Step<()> {
        let id = self
            .memo
            .get(index)
            .ok_or_else(|| self.corrupt(&format!("nothing is remembered under {index}")))?;
        self.stack.push(id);
        Ok(())
    }

    fn check(&mut self) -> Step<()> {
        if self.ops == 0 {
            return Err(Fault::Limit {
                what: format!("the pickle is still going on at byte {}", self.at),
            });
        }
        self.ops -= 1;
        let weight = self.graph.weight()
            + self.stack.len() * 4
            + self.marks.len() * 4
            + self.memo.dense.len() * 4
            + self.memo.sparse.len() * 32;
        if weight > self.budget {
            return Err(Fault::Limit {
                what: format!(
                    "the objects of a pickle take more than {} bytes at byte {}",
                    self.budget, self.at
                ),
            });
        }
        Ok(())
    }

    fn run(&mut self) -> Step<End> {
        loop {
            self.check()?;
            let op = self.byte().map_err(|_| Fault::Truncated {
                what: format!("a pickle without its end at byte {}", self.at),
            })?;
            if op == b'.' {
                return Ok(End {
                    root: self.pop()?,
                    at: self.at,
                });
            }
            self.step(op)?;
        }
    }

    fn step(&mut self, op: u8) -> Step<()> {
        match op {
            b'(' => self.marks.push(self.stack.len() as u32),
            // POP of a mark is legal, and takes it off.
            b'0' if self.stack.len() <= self.floor() => {
                self.marks
                    .pop()
                    .ok_or_else(|| self.corrupt("the stack is empty"))?;
            }
            b'0' => {
                self.pop()?;
            }
            b'1' => {
                self.pop_mark()?;
            }
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'N' | 0x88 | 0x89 | b'K' | b'M' | b'J' | b'I' | b'L' | 0x8a | 0x8b | b'F' | b'G' => {
                self.scalar(op)?;
            }
            b'S' | b'T' | b'U' | b'V' | b'X' | 0x8c | 0x8d | b'B' | b'C' | 0x8e | 0x96 => {
                self.string(op)?;
            }
            b')' | b't' | 0x85 | 0x86 | 0x87 | b']' | b'l' | b'}' | b'd' | 0x8f | 0x91 => {
                self.container(op)?;
            }
            b'a' | b'e' | 0x90 | b's' | b'u' | b'b' => self.fill(op)?,
            b'c' | 0x93 | b'R' | 0x81 | 0x92 | b'i' | b'o' | b'Q' | b'P' => self.object(op)?,
            b'h' | b'j' | b'g' | b'q' | b'r' | b'p' | 0x94 => self.memory(op)?,
            0x80 => {
                let protocol = self.byte()?;
                if protocol > 5 {
                    return Err(Fault::Unsupported {
                        what: format!("pickle protocol {protocol}"),
                    });
                }
            }
            0x95 => {
                let len = u64::from_le_bytes(self.number()?);
                if len > (self.graph.input.len() - self.at) as u64 {
                    return Err(Fault::Truncated {
                        what: format!("a frame of {len} bytes at byte {}", self.at),
                    });
                }
            }
            0x82..=0x84 => {
                return Err(Fault::Unsupported {
                    what: "an extension code, which stands for an unknown callable".into(),
                });
            }
            0x97 | 0x98 => {
                return Err(Fault::Unsupported {
                    what: "a buffer that is kept outside the pickle".into(),
                });
            }
            other => return Err(self.corrupt(&format!("opcode 0x{other:02x} does not exist"))),
        }
        Ok(())
    }

    fn scalar(&mut self, op: u8) -> Step<()> {
        match op {
            b'N' => self.push(Node::None),
            0x88 => self.push(Node::Bool(true)),
            0x89 => self.push(Node::Bool(false)),
            b'K' => {
                let value = self.byte()?;
                self.push_int(i64::from(value));
            }
            b'M' => {
                let value = u16::from_le_bytes(self.number()?);
                self.push_int(i64::from(value));
            }
            b'J' => {
                let value = i32::from_le_bytes(self.number()?);
                self.push_int(i64::from(value));
            }
            b'I' => self.push_decimal(true)?,
            b'L' => self.push_decimal(false)?,
            0x8a => {
                let len = self.byte()?;
                self.push_long(u64::from(len))?;
            }
            0x8b => {
                let len = i32::from_le_bytes(self.number()?);
                let len = u64::try_from(len)
                    .map_err(|_| self.corrupt("an integer of negative length"))?;
                self.push_long(len)?;
            }
            b'F' => {
                let text = self.line_text()?;
                let value = text.trim().parse().map_err(|_| self.corrupt("no number"))?;
                self.push(Node::Float(value));
            }
            _ => {
                let value = f64::from_be_bytes(self.number()?);
                self.push(Node::Float(value));
            }
        }
        Ok(())
    }

    fn string(&mut self, op: u8) -> Step<()> {
        match op {
            b'S' | b'V' => {
                let (start, len) = self.line()?;
                let span = self.graph.span(start, len);
                self.push(if op == b'S' {
                    Node::Quoted(span)
                } else {
                    Node::Escaped(span)
                });
                Ok(())
            }
            b'T' => {
                let len = i32::from_le_bytes(self.number()?);
                let len =
                    u64::try_from(len).map_err(|_| self.corrupt("a string of negative length"))?;
                self.push_span(len, Node::PyStr)
            }
            b'U' => {
                let len = u64::from(self.byte()?);
                self.push_span(len, Node::PyStr)
            }
            b'X' => {
                let len = u64::from(u32::from_le_bytes(self.number()?));
                self.push_span(len, Node::Text)
            }
            0x8c => {
                let len = u64::from(self.byte()?);
                self.push_span(len, Node::Text)
            }
            0x8d => {
                let len = u64::from_le_bytes(self.number()?);
                self.push_span(len, Node::Text)
            }
            b'B' => {
                let len = u64::from(u32::from_le_bytes(self.number()?));
                self.push_span(len, Node::Bytes)
            }
            b'C' => {
                let len = u64::from(self.byte()?);
                self.push_span(len, Node::Bytes)
            }
            // BINBYTES8 and BYTEARRAY8.
            _ => {
                let len = u64::from_le_bytes(self.number()?);
                self.push_span(len, Node::Bytes)
            }
        }
    }

    fn container(&mut self, op: u8) -> Step<()> {
        match op {
            b')' => self.push_tuple(0)?,
            0x85 => self.push_tuple(1)?,
            0x86 => self.push_tuple(2)?,
            0x87 => self.push_tuple(3)?,
            b't' => {
                let items = self.pop_mark()?;
                let id = self.graph.tuple(&items);
                self.stack.push(id);
            }
            b']' => self.push(Node::List(Chain::EMPTY)),
            b'}' => self.push(Node::Dict(Chain::EMPTY)),
            0x8f => self.push(Node::Set(Chain::EMPTY)),
            b'l' | 0x91 => {
                let items = self.pop_mark()?;
                let chain = self.graph.extend(Chain::EMPTY, &items);
                self.push(if op == b'l' {
                    Node::List(chain)
                } else {
                    Node::Set(chain)
                });
            }
            _ => {
                let items = self.pop_mark()?;
                if !items.len().is_multiple_of(2) {
                    return Err(self.corrupt("a key without a value"));
                }
                let chain = self.graph.extend(Chain::EMPTY, &items);
                self.push(Node::Dict(chain));
            }
        }
        Ok(())
    }

    fn fill(&mut self, op: u8) -> Step<()> {
        match op {
            b'a' => {
                let item = self.pop()?;
                self.append(&[item])
            }
            b'e' | 0x90 => {
                let items = self.pop_mark()?;
                self.append(&items)
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set_items(&[key, value])
            }
            b'u' => {
                let items = self.pop_mark()?;
                self.set_items(&items)
            }
            _ => self.build(),
        }
    }

    fn object(&mut self, op: u8) -> Step<()> {
        match op {
            b'c' => {
                let (module, name) = (self.line_text()?, self.line_text()?);
                let id = self.graph.global(format!("{module}.{name}"));
                self.stack.push(id);
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Some(name), Some(module)) = (self.graph.text(name), self.graph.text(module))
                else {
                    return Err(self.corrupt("a global whose name is no text"));
                };
                let full = format!("{module}.{name}");
                let id = self.graph.global(full);
                self.stack.push(id);
            }
            b'R' | 0x81 => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                self.push_call(function, arguments)?;
            }
            0x92 => {
                // The keyword arguments become items of the call, so that what is in them is seen.
                let (keywords, arguments, function) = (self.pop()?, self.pop()?, self.pop()?);
                self.push_call(function, arguments)?;
                if let Some(pairs) = self.graph.pairs(keywords) {
                    let flat: Vec<Id> = pairs
                        .into_iter()
                        .flat_map(|(key, value)| [key, value])
                        .collect();
                    self.set_items(&flat)?;
                }
            }
            b'i' => {
                let (module, name) = (self.line_text()?, self.line_text()?);
                let items = self.pop_mark()?;
                let function = self.graph.global(format!("{module}.{name}"));
                let arguments = self.graph.tuple(&items);
                self.push_call(function, arguments)?;
            }
            b'o' => {
                let items = self.pop_mark()?;
                let (function, arguments) = items
                    .split_first()
                    .ok_or_else(|| self.corrupt("an object without a class"))?;
                let arguments = self.graph.tuple(arguments);
                self.push_call(*function, arguments)?;
            }
            b'Q' => {
                let id = self.pop()?;
                self.push(Node::Persistent(id));
            }
            _ => {
                let (start, len) = self.line()?;
                let span = self.graph.span(start, len);
                let id = self.graph.push(Node::PyStr(span));
                self.push(Node::Persistent(id));
            }
        }
        Ok(())
    }

    fn memory(&mut self, op: u8) -> Step<()> {
        match op {
            b'h' => {
                let index = self.byte()?;
                self.recall(u64::from(index))
            }
            b'j' => {
                let index = u32::from_le_bytes(self.number()?);
                self.recall(u64::from(index))
            }
            b'g' => {
                let index = self.memo_line()?;
                self.recall(index)
            }
            b'q' => {
                let index = self.byte()?;
                self.remember(u64::from(index))
            }
            b'r' => {
                let index = u32::from_le_bytes(self.number()?);
                self.remember(u64::from(index))
            }
            b'p' => {
                let index = self.memo_line()?;
                self.remember(index)
            }
            _ => self.remember(self.memo.len()),
        }
    }
}
