//! From a graph of objects to what is listed: tensors with their names, plain values beside them.
//!
//! The walk keeps its own stack, so nesting has no limit; an object that contains itself is entered once; an object that
//! is shared is listed under each of its names, until that costs more than the file justifies.

use super::{
    globals,
    pickle::{Graph, Id, NIL, Node},
    tensors::{Built, Form, Rebuilder, Storages},
};
use crate::{
    contents::{Contents, Data, Entry},
    error::Fault,
    input::Context,
};
use std::{
    collections::{
        HashMap, HashSet,
        hash_map::{self, DefaultHasher},
    },
    hash::{Hash, Hasher},
};
use twinscope_tensor::{FindingKind, Plain};

/// Visits of things already listed once. A tied embedding is a handful, a DAG bomb 2^40.
const AGAIN: u64 = 100_000;

/// Plain values listed; a pickled vocabulary is not what anybody compares.
const VALUES: usize = 100_000;

/// Containers inside containers. What is deeper has a name that fills a screen, and no writer makes it.
const DEEPEST: usize = 20_000;

/// A string longer than this is an object, not a value.
const LINE: usize = 4096;

/// Lists everything below `root`. What the pickle calls has been told by [`globals::inspect`] before.
pub(super) fn interpret(
    graph: &Graph,
    root: Id,
    storages: &dyn Storages,
    context: &Context,
    contents: &mut Contents,
    nested: usize,
) {
    contents.ordered = true;
    let mut walk = Walk {
        rebuilder: Rebuilder {
            graph,
            storages,
            context,
            nested,
        },
        graph,
        contents,
        name: String::new(),
        frames: Vec::new(),
        on_path: HashSet::new(),
        seen: vec![0; graph.len().div_ceil(64)],
        again: AGAIN,
        repeated: false,
        names: (16 << 20) + graph.input.len(),
        taken: HashMap::new(),
        left_out: 0,
    };
    walk.visit(root, 0, false);
    walk.run();
    let left_out = walk.left_out;
    if left_out > 0 {
        contents.find(FindingKind::Odd, format!("{left_out} more values, repeated objects or objects nested too deeply are not listed"));
    }
}

/// A file of which nothing can be listed: an error, or when it also tried to execute something a listing that says so.
pub(super) fn refuse(mut contents: Contents, fault: Fault) -> Result<Contents, Fault> {
    if !contents
        .findings
        .iter()
        .any(|finding| finding.kind.is_attack())
    {
        return Err(fault);
    }
    contents.skip("the rest", fault);
    Ok(contents)
}

/// The last part of a name.
#[derive(Clone, Copy)]
enum Key {
    Index(usize),
    Node(Id),
}

/// A container on the way down.
struct Frame {
    node: Id,
    children: std::vec::IntoIter<(Key, Id)>,
    /// Where its own name ends in the name being built.
    name: usize,
    /// The scalars of a set have no names worth telling.
    quiet: bool,
}

struct Walk<'a> {
    rebuilder: Rebuilder<'a>,
    graph: &'a Graph,
    contents: &'a mut Contents,
    name: String,
    frames: Vec<Frame>,
    on_path: HashSet<Id>,
    /// One bit for each node that was listed before.
    seen: Vec<u64>,
    again: u64,
    /// Whether the object at hand was listed before, so that its items count against the budget too.
    repeated: bool,
    /// Bytes of names that may still be made.
    names: usize,
    /// How often each name was given, by its hash.
    taken: HashMap<u64, u32>,
    left_out: u64,
}

impl Walk<'_> {
    fn run(&mut self) {
        while let Some(frame) = self.frames.last_mut() {
            let Some((key, child)) = frame.children.next() else {
                let node = frame.node;
                self.on_path.remove(&node);
                self.frames.pop();
                continue;
            };
            let (name, quiet) = (frame.name, frame.quiet);
            self.name.truncate(name);
            if self.frames.len() > 1 {
                self.name.push('.');
            }
            match key {
                Key::Index(index) => self.name.push_str(&index.to_string()),
                Key::Node(id) => match self.graph.text(id) {
                    Some(text) => self.name.push_str(&text),
                    None => self.name.push_str(&represent(self.graph, id)),
                },
            }
            self.visit(child, self.name.len(), quiet);
        }
    }

    /// Whether this may be listed: always the first time, later as long as the budget lasts.
    fn may_list(&mut self, id: Id) -> bool {
        self.repeated = false;
        let (word, bit) = (id as usize / 64, 1u64 << (id % 64));
        let Some(seen) = self.seen.get_mut(word) else {
            return true;
        };
        if *seen & bit == 0 {
            *seen |= bit;
            return true;
        }
        if self.again == 0 {
            self.left_out += 1;
            return false;
        }
        self.again -= 1;
        self.repeated = true;
        true
    }

    fn visit(&mut self, id: Id, name: usize, quiet: bool) {
        match self.graph.node(id) {
            Node::Call { .. } | Node::Persistent(_) => {
                if !self.may_list(id) || self.on_path.contains(&id) {
                    return;
                }
                match self.rebuilder.tensors(id) {
                    Ok(Some(tensors)) => {
                        tensors.into_iter().for_each(|tensor| self.list(tensor));
                        if self.has_attributes(id) {
                            self.enter(id, name);
                        }
                    }
                    Ok(None) => match (quiet, self.plain(id)) {
                        (false, Some(value)) => self.value(value),
                        (true, Some(_)) => {}
                        (_, None) => self.enter(id, name),
                    },
                    Err(fault) => {
                        if let Some(name) = self.named() {
                            self.contents.skip(name, fault);
                        }
                    }
                }
            }
            Node::Tuple { .. } | Node::List(_) | Node::Dict(_) | Node::Set(_) => {
                if !self.on_path.contains(&id) && self.may_list(id) {
                    self.enter(id, name);
                }
            }
            _ if quiet => {}
            _ => {
                if let Some(value) = self.plain(id) {
                    self.value(value);
                }
            }
        }
    }

    /// Whether this is a tensor that carries attributes of its own, which may be tensors too. Those of wrappers
    /// (DTensor) are the tensor itself.
    fn has_attributes(&self, id: Id) -> bool {
        let Some((function, arguments)) = self.graph.call(id) else {
            return false;
        };
        let typed = matches!(
            self.graph.global_name(function),
            Some("torch._tensor._rebuild_from_type_v2")
        );
        let inner = arguments
            .first()
            .and_then(|inner| self.graph.global_name(*inner));
        typed
            && inner.is_some_and(|inner| {
                inner.starts_with("torch._utils._rebuild_") && !inner.ends_with("_wrapper_subclass")
            })
    }

    fn enter(&mut self, id: Id, name: usize) {
        let (children, quiet) = self.children(id);
        if self.repeated {
            self.again = self.again.saturating_sub(children.len() as u64);
        }
        if children.is_empty() {
            return;
        }
        if self.frames.len() >= DEEPEST {
            self.left_out += 1;
            return;
        }
        self.on_path.insert(id);
        self.frames.push(Frame {
            node: id,
            children: children.into_iter(),
            name,
            quiet,
        });
    }

    /// The name as it stands, when names may still be made.
    fn named(&mut self) -> Option<String> {
        match self.names.checked_sub(self.name.len() + 16) {
            Some(left) => {
                self.names = left;
                Some(self.name.clone())
            }
            None => {
                self.left_out += 1;
                None
            }
        }
    }

    fn value(&mut self, value: Plain) {
        if self.contents.values.len() >= VALUES {
            self.left_out += 1;
        } else if let Some(name) = self.named() {
            self.contents.value(name, value);
        }
    }

    fn list(&mut self, tensor: Built) {
        let Some(mut name) = self.named() else { return };
        if let Some(suffix) = &tensor.suffix {
            if !name.is_empty() {
                name.push('.');
            }
            name.push_str(suffix);
        }
        let data = match tensor.data {
            Form::Data(data) => Ok(data),
            Form::Layout(layout) => layout.data(),
        };
        match data {
            Ok(data) => self.push(name, tensor.dtype, tensor.shape, tensor.meta, data),
            Err(fault) => self.contents.skip(name, fault),
        }
    }

    fn push(
        &mut self,
        mut name: String,
        dtype: twinscope_tensor::DType,
        shape: twinscope_tensor::Shape,
        meta: serde_json::Map<String, serde_json::Value>,
        data: Data,
    ) {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let times = self.taken.entry(hasher.finish()).or_insert(0);
        *times += 1;
        if *times > 1 {
            name.push_str(&format!("#{times}"));
        }
        let meta = (!meta.is_empty()).then(|| Box::new(meta));
        self.contents.entries.push(Entry {
            name,
            dtype,
            shape,
            meta,
            data,
        });
    }

    /// What is inside an object, with its keys, and whether its scalars are left out.
    fn children(&self, id: Id) -> (Vec<(Key, Id)>, bool) {
        match self.graph.node(id) {
            Node::Dict(chain) => (self.unique(self.graph.pairs_of(chain)), false),
            Node::List(chain) => (indexed(self.graph.chain(chain)), false),
            Node::Set(chain) => (indexed(self.graph.chain(chain)), true),
            Node::Tuple { start, len } => {
                (indexed(self.graph.tuple_items(start, len).to_vec()), false)
            }
            Node::Call { function, .. } => {
                let arguments = self
                    .graph
                    .call(id)
                    .map(|(_, arguments)| arguments.into_owned())
                    .unwrap_or_default();
                self.object(
                    id,
                    self.graph.global_name(function).unwrap_or_default(),
                    arguments,
                )
            }
            _ => (Vec::new(), false),
        }
    }

    fn object(&self, id: Id, class: &str, arguments: Vec<Id>) -> (Vec<(Key, Id)>, bool) {
        let extra = self.graph.extra(id);
        let pairs = || {
            extra
                .map(|extra| self.graph.pairs_of(extra.pairs))
                .unwrap_or_default()
        };
        let items = || {
            extra
                .map(|extra| self.graph.chain(extra.items))
                .unwrap_or_default()
        };
        let (module, last) = class.rsplit_once('.').unwrap_or(("", class));
        let builtin = matches!(module, "builtins" | "__builtin__");
        match (module, last) {
            ("collections", "OrderedDict" | "Counter" | "defaultdict")
            | ("builtins" | "__builtin__", "dict") => {
                let mut all = Vec::new();
                for argument in &arguments {
                    all.extend(self.pairs_in(*argument));
                }
                all.extend(pairs());
                (self.unique(all), false)
            }
            ("collections", "deque") | ("torch.jit._pickle", _) => (
                indexed(self.sequences(&arguments).chain(items()).collect()),
                false,
            ),
            _ if builtin && matches!(last, "list" | "tuple") => (
                indexed(self.sequences(&arguments).chain(items()).collect()),
                false,
            ),
            _ if builtin && matches!(last, "set" | "frozenset") => (
                indexed(self.sequences(&arguments).chain(items()).collect()),
                true,
            ),
            ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => {
                match super::numpy::objects(self.graph, id) {
                    Some(list) => (self.array_items(list), false),
                    None => (Vec::new(), false),
                }
            }
            ("torch._tensor" | "torch.tensor", "_rebuild_from_type_v2") => {
                let state = arguments.get(3).copied().unwrap_or(NIL);
                (self.state(state), false)
            }
            ("copyreg" | "copy_reg", "_reconstructor") => {
                let mut all = self.state(extra.map_or(NIL, |extra| extra.state));
                // A subclass of dict, list or tuple keeps its items in the third argument.
                let base = arguments
                    .get(1)
                    .and_then(|base| self.graph.global_name(*base))
                    .unwrap_or_default();
                match arguments.get(2) {
                    Some(own) if base.ends_with(".dict") => {
                        all.extend(self.unique(self.pairs_in(*own)));
                    }
                    Some(own) => all.extend(indexed(
                        self.graph.sequence(*own).unwrap_or_default().into_owned(),
                    )),
                    None => {}
                }
                all.extend(self.unique(pairs()));
                all.extend(indexed(items()));
                (all, false)
            }
            _ if globals::judge(class) == globals::Judgement::Inert => (Vec::new(), false),
            _ => {
                let mut all = indexed(arguments);
                // What a class is made from is told by index only where it is not a mere class itself.
                all.retain(|(_, id)| !matches!(self.graph.node(*id), Node::Global(_)));
                all.extend(self.state(extra.map_or(NIL, |extra| extra.state)));
                all.extend(self.unique(pairs()));
                all.extend(indexed(items()));
                (all, false)
            }
        }
    }

    /// An object array of no dimensions is its one object.
    fn array_items(&self, list: Id) -> Vec<(Key, Id)> {
        let items = self
            .graph
            .sequence(list)
            .map(std::borrow::Cow::into_owned)
            .unwrap_or_default();
        match items.as_slice() {
            [only] => match self.graph.node(*only) {
                Node::Dict(chain) => self.unique(self.graph.pairs_of(chain)),
                _ => indexed(items),
            },
            _ => indexed(items),
        }
    }

    fn sequences<'b>(&'b self, arguments: &'b [Id]) -> impl Iterator<Item = Id> + 'b {
        arguments
            .iter()
            .filter_map(|id| self.graph.sequence(*id))
            .flat_map(std::borrow::Cow::into_owned)
    }

    /// The pairs of a dict, or of a list of pairs.
    fn pairs_in(&self, id: Id) -> Vec<(Id, Id)> {
        if let Some(pairs) = self.graph.pairs(id) {
            return pairs;
        }
        let items = self
            .graph
            .sequence(id)
            .map(std::borrow::Cow::into_owned)
            .unwrap_or_default();
        items
            .iter()
            .filter_map(|item| self.graph.sequence(*item))
            .filter_map(|pair| Some((*pair.first()?, *pair.get(1)?)))
            .collect()
    }

    /// The attributes of an object: a dict, a pair of dicts (one for slots), or any other state by index.
    fn state(&self, state: Id) -> Vec<(Key, Id)> {
        match self.graph.node(state) {
            Node::Dict(chain) => self.unique(self.graph.pairs_of(chain)),
            Node::Tuple { start, len } => {
                let parts = self.graph.tuple_items(start, len);
                let attributes =
                    |id: &Id| matches!(self.graph.node(*id), Node::None | Node::Dict(_));
                if len == 2 && parts.iter().all(attributes) {
                    return self.unique(
                        parts
                            .iter()
                            .flat_map(|part| self.graph.pairs(*part).unwrap_or_default())
                            .collect(),
                    );
                }
                indexed(parts.to_vec())
            }
            Node::List(chain) => indexed(self.graph.chain(chain)),
            Node::Call { .. } => self.children(state).0,
            _ => Vec::new(),
        }
    }

    /// Pairs with each key once: the place of the first, the value of the last.
    fn unique(&self, pairs: Vec<(Id, Id)>) -> Vec<(Key, Id)> {
        // By their hashes: a vocabulary has a million keys, and one of 2^64 that collides would merge two of them.
        let mut places: HashMap<u64, u32> = HashMap::new();
        let mut out: Vec<(Key, Id)> = Vec::new();
        for (key, value) in pairs {
            let mut hasher = DefaultHasher::new();
            match (self.graph.text(key), self.graph.node(key)) {
                (Some(text), _) => ('t', text).hash(&mut hasher),
                // Objects as keys (an optimizer's parameters) are only equal to themselves.
                (
                    None,
                    Node::Call { .. }
                    | Node::Persistent(_)
                    | Node::List(_)
                    | Node::Dict(_)
                    | Node::Set(_),
                ) => {
                    ('#', key).hash(&mut hasher);
                }
                (None, Node::Int(number)) => ('i', number).hash(&mut hasher),
                (None, _) => ('r', represent(self.graph, key)).hash(&mut hasher),
            }
            match places.entry(hasher.finish()) {
                hash_map::Entry::Occupied(place) => out[*place.get() as usize].1 = value,
                hash_map::Entry::Vacant(place) => {
                    place.insert(out.len() as u32);
                    out.push((Key::Node(key), value));
                }
            }
        }
        out
    }

    fn plain(&self, id: Id) -> Option<Plain> {
        let other = |kind: &str, text: String| {
            Some(Plain::Other {
                kind: kind.to_owned(),
                text,
            })
        };
        match self.graph.node(id) {
            Node::None => Some(Plain::None),
            Node::Bool(value) => Some(Plain::Bool(value)),
            Node::Int(value) => Some(Plain::Int(value.to_string())),
            Node::Float(value) => Some(Plain::Float(value)),
            Node::Long(span) => match decimal(self.graph.raw(span)) {
                Some(digits) => Some(Plain::Int(digits)),
                None => other(
                    "int",
                    format!("an integer of {} bytes", self.graph.raw(span).len()),
                ),
            },
            Node::Digits(span) if self.graph.raw(span).len() <= 1300 => Some(Plain::Int(
                String::from_utf8_lossy(self.graph.raw(span)).into_owned(),
            )),
            Node::Digits(span) => other(
                "int",
                format!("an integer of {} digits", self.graph.raw(span).len()),
            ),
            Node::Text(span) | Node::Escaped(span) | Node::Quoted(span) | Node::PyStr(span)
                if self.graph.raw(span).len() > LINE =>
            {
                other(
                    "str",
                    format!("a string of {} bytes", self.graph.raw(span).len()),
                )
            }
            Node::Text(_) | Node::Escaped(_) | Node::Quoted(_) | Node::PyStr(_) => self
                .graph
                .text(id)
                .map(|text| Plain::Str(text.into_owned())),
            Node::Bytes(span) => Some(Plain::Bytes(self.graph.raw(span).len() as u64)),
            Node::Global(_) => word(self.graph.global_name(id)?),
            Node::Call { .. } => self.plain_call(id),
            _ => None,
        }
    }

    fn plain_call(&self, id: Id) -> Option<Plain> {
        let (function, arguments) = self.graph.call(id)?;
        let name = self.graph.global_name(function)?;
        let number = |at: usize| match self.graph.node(*arguments.get(at)?) {
            Node::Float(value) => Some(value),
            Node::Int(value) => Some(value as f64),
            _ => None,
        };
        let texts = || -> Vec<String> {
            arguments
                .iter()
                .filter_map(|id| {
                    self.graph
                        .text(*id)
                        .map(|text| text.into_owned())
                        .or_else(|| self.graph.int(*id).map(|n| n.to_string()))
                })
                .collect()
        };
        match name {
            "builtins.complex" | "__builtin__.complex" => {
                Some(Plain::Complex(number(0)?, number(1).unwrap_or(0.0)))
            }
            "_codecs.encode" | "builtins.bytes" | "__builtin__.bytes" => {
                super::layout::bytes_of(self.graph, id)
                    .ok()
                    .map(|bytes| Plain::Bytes(bytes.len()))
            }
            "torch.Size" => {
                let sizes = arguments
                    .first()
                    .and_then(|sizes| self.graph.sequence(*sizes))
                    .unwrap_or_default();
                let sizes: Vec<String> = sizes
                    .iter()
                    .take(1000)
                    .map(|id| represent(self.graph, *id))
                    .collect();
                Some(Plain::Other {
                    kind: "torch.Size".into(),
                    text: format!("[{}]", sizes.join(", ")),
                })
            }
            "torch.device" => Some(Plain::Other {
                kind: "torch.device".into(),
                text: texts().join(":"),
            }),
            "torch.serialization._get_layout" => Some(Plain::Other {
                kind: "torch.layout".into(),
                text: texts().join(""),
            }),
            _ if name.starts_with("pathlib.") => Some(Plain::Other {
                kind: "path".into(),
                text: texts().join("/").replacen("//", "/", 1),
            }),
            _ => None,
        }
    }
}

/// `torch.float32` and its like.
fn word(name: &str) -> Option<Plain> {
    let last = name.strip_prefix("torch.")?;
    let kind = match last {
        _ if super::layout::torch_dtype(last).is_some() => "torch.dtype",
        _ if last.ends_with("_affine")
            || last.ends_with("_symmetric")
            || last.ends_with("_qparams") =>
        {
            "torch.qscheme"
        }
        _ if last.ends_with("_format") => "torch.memory_format",
        _ => return None,
    };
    Some(Plain::Other {
        kind: kind.into(),
        text: name.to_owned(),
    })
}

fn indexed(items: Vec<Id>) -> Vec<(Key, Id)> {
    items
        .into_iter()
        .enumerate()
        .map(|(index, id)| (Key::Index(index), id))
        .collect()
}

/// A key as Python prints it.
fn represent(graph: &Graph, id: Id) -> String {
    match graph.node(id) {
        Node::Tuple { start, len } => {
            // One level is what keys have; deeper ones are shortened rather than followed.
            let parts: Vec<String> = graph
                .tuple_items(start, len)
                .iter()
                .take(100)
                .map(|id| quoted(graph, *id))
                .collect();
            if len == 1 {
                format!("({},)", parts[0])
            } else {
                format!("({})", parts.join(", "))
            }
        }
        _ => quoted(graph, id),
    }
}

fn quoted(graph: &Graph, id: Id) -> String {
    match graph.node(id) {
        Node::None => "None".into(),
        Node::Bool(value) => if value { "True" } else { "False" }.into(),
        Node::Int(value) => value.to_string(),
        Node::Float(value) => format!("{value:?}"),
        Node::Long(span) => decimal(graph.raw(span)).unwrap_or_else(|| "<int>".into()),
        Node::Digits(span) => String::from_utf8_lossy(graph.raw(span))
            .chars()
            .take(100)
            .collect(),
        Node::Bytes(span) => {
            format!(
                "b'{}'",
                graph
                    .raw(span)
                    .iter()
                    .take(100)
                    .flat_map(|byte| byte.escape_ascii())
                    .map(char::from)
                    .collect::<String>()
            )
        }
        Node::Global(_) => graph.global_name(id).unwrap_or_default().to_owned(),
        Node::Call { function, .. } => {
            format!("<{}>", graph.global_name(function).unwrap_or("object"))
        }
        Node::Tuple { .. } => "(...)".into(),
        Node::List(_) => "[...]".into(),
        Node::Dict(_) => "{...}".into(),
        Node::Set(_) => "{...}".into(),
        Node::Persistent(_) => "<persistent>".into(),
        Node::Text(_) | Node::Escaped(_) | Node::Quoted(_) | Node::PyStr(_) => {
            let text: String = graph
                .text(id)
                .unwrap_or_default()
                .chars()
                .take(LINE)
                .collect();
            if text.contains('\'') && !text.contains('"') {
                format!("\"{text}\"")
            } else {
                format!("'{}'", text.replace('\'', "\\'"))
            }
        }
    }
}

/// A little-endian two's complement integer in decimal; `None` when it is longer than anyone would read.
fn decimal(bytes: &[u8]) -> Option<String> {
    if bytes.len() > 512 {
        return None;
    }
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut magnitude = bytes.to_vec();
    if negative {
        let mut carry = true;
        for byte in &mut magnitude {
            let (flipped, overflow) = (!*byte).overflowing_add(u8::from(carry));
            (*byte, carry) = (flipped, overflow);
        }
    }
    let mut parts = Vec::new();
    while magnitude.iter().any(|byte| *byte != 0) {
        let mut rest = 0u64;
        for byte in magnitude.iter_mut().rev() {
            let value = rest << 8 | u64::from(*byte);
            *byte = (value / 1_000_000_000) as u8;
            rest = value % 1_000_000_000;
        }
        parts.push(rest);
    }
    let mut text = parts.pop().unwrap_or(0).to_string();
    for part in parts.iter().rev() {
        text.push_str(&format!("{part:09}"));
    }
    Some(if negative { format!("-{text}") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Cache, Limits,
        torch::{pickle::unpickle, tensors::NoStorages},
    };
    use std::sync::Arc;

    fn list(pickle: impl Into<Vec<u8>>) -> Contents {
        let context = Context::new(
            Limits::default(),
            Arc::new(Cache::new(std::env::temp_dir(), 1 << 20)),
            0,
        );
        let pickle = unpickle(&pickle.into().into(), 0, &context.limits);
        let mut contents = Contents::new("pickle");
        let root = pickle.result.expect("a whole pickle").root;
        interpret(&pickle.graph, root, &NoStorages, &context, &mut contents, 0);
        contents
    }

    fn names(contents: &Contents) -> Vec<&str> {
        contents
            .values
            .iter()
            .map(|value| value.name.as_str())
            .collect()
    }

    #[test]
    fn keys_are_joined_and_the_last_of_two_equal_keys_wins() {
        let contents = list(b"}(U\x01aK\x01U\x01b}U\x01c](K\x02K\x03esU\x01aK\x09K\x05K\x06u.");
        assert_eq!(names(&contents), ["a", "b.c.0", "b.c.1", "5"]);
        assert_eq!(contents.values[0].value, Plain::Int("9".into()));
    }

    #[test]
    fn an_object_that_contains_itself_is_entered_once() {
        assert_eq!(names(&list(b"]q\x00K\x01ah\x00a.")), ["0"]);
    }

    #[test]
    fn a_bomb_of_shared_lists_ends_soon_and_says_so() {
        let mut bomb = b"]q\x00K\x01a".to_vec();
        for level in 1..60u8 {
            bomb.extend([
                b']',
                b'q',
                level,
                b'(',
                b'h',
                level - 1,
                b'h',
                level - 1,
                b'e',
            ]);
        }
        bomb.push(b'.');
        let contents = list(bomb);
        assert!(contents.values.len() <= AGAIN as usize);
        assert!(
            contents
                .findings
                .iter()
                .any(|finding| finding.kind == FindingKind::Odd)
        );
    }

    #[test]
    fn deep_nesting_with_a_value_on_each_level_stops_at_the_bytes_of_names() {
        let mut deep = Vec::new();
        for _ in 0..100_000 {
            deep.extend(b"](K\x01");
        }
        deep.push(b'N');
        deep.extend(vec![b'e'; 100_000]);
        deep.push(b'.');
        let contents = list(deep);
        assert!(
            contents
                .values
                .iter()
                .map(|value| value.name.len())
                .sum::<usize>()
                < 20 << 20
        );
    }

    #[test]
    fn integers_of_any_size_are_printed_in_decimal() {
        assert_eq!(
            decimal(&[0, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap(),
            "18446744073709551616"
        );
        assert_eq!(
            decimal(&[0, 0, 0, 0, 0, 0, 0, 0, 0xff]).unwrap(),
            "-18446744073709551616"
        );
        assert_eq!(decimal(&[]).unwrap(), "0");
    }

    #[test]
    fn keys_that_are_no_text_are_shown_as_python_shows_them() {
        assert_eq!(
            names(&list(b"}(K\x01K\x02\x86NNN\x88N(U\x01aK\x01tNu.")),
            ["(1, 2)", "None", "True", "('a', 1)"]
        );
    }
}
