//! ONNX models: the tensors inside a protobuf, read where they lie.
//!
//! A small scanner walks the wire format; nothing is copied but names. Listed are the initializers of the graph, sparse ones
//! as `name.values` and `name.indices`, and what subgraphs and node attributes hold, as `graph/node/tensor`. `raw_data` and
//! packed floats are mapped in place, the varint fields are decoded when asked for. External data must lie in the model's
//! own folder. The order of initializers means nothing.

mod tensor;
mod wire;

use crate::{
    contents::{Contents, Data, Entry},
    error::Fault,
    input::{Context, Input},
};
use serde_json::{Map, Value, json};
use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    ops::Range,
};
use tensor::{External, Tensor};
use twinscope_tensor::{FindingKind, Meta, Shape};
use wire::{Field, Fields, Wire};

/// Graphs inside nodes of graphs; protobuf's own bound.
const DEPTH: usize = 100;
/// What a graph's and a node's name may add to each of their tensors, so that one long name cannot be multiplied.
const PREFIX: usize = 256;
/// Findings to tell; a file that tries to escape a thousand times is understood before.
const FINDINGS: usize = 64;
/// Broken tensors to tell.
const BROKEN: usize = 4096;
/// A version of the format that may still come.
const VERSIONS: Range<u64> = 1..64;

/// By the extension, or when the file begins like a `ModelProto`: a version, a few known fields, a graph.
pub(crate) fn recognise(input: &Input) -> bool {
    input.extension() == "onnx" || looks_like_a_model(&input.bytes)
}

fn looks_like_a_model(bytes: &[u8]) -> bool {
    let mut fields = Fields::new(bytes, 0..bytes.len());
    match fields.next() {
        Some(Ok(Field {
            number: 1,
            wire: Wire::Number(version),
            ..
        })) if VERSIONS.contains(&version) => {}
        _ => return false,
    }
    for field in fields.take(64) {
        match field {
            Ok(Field {
                number: 7,
                wire: Wire::Bytes(range),
                cut: false,
            }) => {
                return Fields::new(bytes, range)
                    .take(4)
                    .all(|field| field.is_ok_and(|field| (1..=16).contains(&field.number)));
            }
            Ok(Field {
                number: 2..=4 | 6 | 8 | 14 | 20 | 25 | 26,
                wire: Wire::Bytes(_),
                cut: false,
            }) => {}
            Ok(Field {
                number: 5,
                wire: Wire::Number(_),
                ..
            }) => {}
            _ => return false,
        }
    }
    false
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let mut reader = Reader {
        input,
        context,
        contents: Contents::new("onnx"),
        graphs: Vec::new(),
        external: External::new(input.path.as_deref()),
        names: HashSet::new(),
        spent: 0,
        collisions: HashMap::new(),
    };
    reader.model()?;
    while let Some(graph) = reader.graphs.pop() {
        let name = graph.prefix.clone();
        if let Err(fault) = reader.graph(graph) {
            let name = if name.is_empty() {
                "graph".to_owned()
            } else {
                name
            };
            reader.contents.skip(name, fault);
        }
    }
    Ok(reader.contents)
}

/// A graph still to be walked: a worklist instead of recursion, so nesting costs no stack.
struct Graph {
    range: Range<usize>,
    /// Comes before the names of its tensors; empty for the model's own graph.
    prefix: String,
    depth: usize,
    /// The field that holds nodes: a function is a graph with other numbers.
    nodes: u64,
}

struct Reader<'a> {
    input: &'a Input,
    context: &'a Context,
    contents: Contents,
    graphs: Vec<Graph>,
    external: External,
    /// Of the model's initializers, which must differ.
    names: HashSet<String>,
    /// Bytes of names made by joining.
    spent: usize,
    /// How often a name of the others was met.
    collisions: HashMap<String, u64>,
}

impl Reader<'_> {
    fn fields(&self, range: Range<usize>) -> Fields<'_> {
        Fields::new(self.input.bytes.as_slice(), range)
    }

    fn text(&self, range: &Range<usize>) -> String {
        String::from_utf8_lossy(&self.input.bytes[range.clone()]).into_owned()
    }

    fn model(&mut self) -> Result<(), Fault> {
        let all: Vec<_> = self.fields(0..self.input.bytes.len()).collect();
        let mut meta = Map::new();
        let (mut found, mut broken) = (false, None);
        for field in all {
            let Field { number, wire, cut } = match field {
                Ok(field) => field,
                Err(fault) => {
                    broken = Some(fault);
                    break;
                }
            };
            let (nodes, prefix) = match number {
                7 => (1, ""),
                20 => (1, "training"),
                25 => (7, "function"),
                _ => {
                    self.describe(number, &wire, &mut meta);
                    continue;
                }
            };
            let Wire::Bytes(range) = wire else { continue };
            found |= number == 7;
            if cut {
                let what = format!(
                    "the graph is longer than the {} bytes of the file",
                    self.input.bytes.len()
                );
                broken = Some(Fault::Truncated { what });
            }
            match number {
                20 => self.training(range),
                _ => self.graphs.push(Graph {
                    range,
                    prefix: prefix.to_owned(),
                    depth: 0,
                    nodes,
                }),
            }
        }
        if let Some(fault) = broken {
            if !found {
                return Err(fault);
            }
            self.contents.skip("model", fault);
        }
        if !found {
            return Err(Fault::BadHeader {
                what: "no graph in it".to_owned(),
            });
        }
        // The last is walked first: the model's own graph.
        self.graphs.sort_by_key(|graph| graph.prefix.is_empty());
        self.contents.meta = (!meta.is_empty()).then(|| Box::new(meta));
        Ok(())
    }

    /// What the model says about itself.
    fn describe(&self, number: u64, wire: &Wire, meta: &mut Map<String, Value>) {
        match (number, wire) {
            (1, Wire::Number(version)) => meta.insert("ir_version".into(), (*version).into()),
            (2, Wire::Bytes(range)) => meta.insert("producer_name".into(), self.text(range).into()),
            (3, Wire::Bytes(range)) => {
                meta.insert("producer_version".into(), self.text(range).into())
            }
            (4, Wire::Bytes(range)) => meta.insert("domain".into(), self.text(range).into()),
            (5, Wire::Number(version)) => {
                meta.insert("model_version".into(), (*version as i64).into())
            }
            (14, Wire::Bytes(range)) => {
                let (key, value) = self.pair(range.clone());
                meta.insert(key, value.into())
            }
            _ => None,
        };
    }

    /// A `StringStringEntryProto`.
    fn pair(&self, range: Range<usize>) -> (String, String) {
        let (mut key, mut value) = (String::new(), String::new());
        for field in self.fields(range).map_while(Result::ok) {
            match (field.number, field.wire) {
                (1, Wire::Bytes(range)) => key = self.text(&range),
                (2, Wire::Bytes(range)) => value = self.text(&range),
                _ => {}
            }
        }
        (key, value)
    }

    /// A `TrainingInfoProto` has a graph for initialization and one for the algorithm.
    fn training(&mut self, range: Range<usize>) {
        let graphs: Vec<_> = self.fields(range).map_while(Result::ok).collect();
        for field in graphs {
            if let (1 | 2, Wire::Bytes(range)) = (field.number, field.wire) {
                let prefix = if field.number == 1 {
                    "training/initialization"
                } else {
                    "training/algorithm"
                };
                self.graphs.push(Graph {
                    range,
                    prefix: prefix.to_owned(),
                    depth: 0,
                    nodes: 1,
                });
            }
        }
    }

    fn graph(&mut self, graph: Graph) -> Result<(), Fault> {
        let (nodes, end) = self.initializers(&graph);
        // Nodes come after the initializers, whose names they must not take.
        nodes
            .into_iter()
            .try_for_each(|range| self.node(range, &graph))?;
        end
    }

    /// Lists what a graph holds itself; returns where its nodes are, and why the scan stopped early if it did.
    fn initializers(&mut self, graph: &Graph) -> (Vec<Range<usize>>, Result<(), Fault>) {
        let bytes = self.input.bytes.clone();
        let mut nodes = Vec::new();
        for field in Fields::new(&bytes, graph.range.clone()) {
            let Field { number, wire, cut } = match field {
                Ok(field) => field,
                Err(fault) => return (nodes, Err(fault)),
            };
            let Wire::Bytes(range) = wire else { continue };
            if number == graph.nodes {
                nodes.push(range);
            } else if graph.nodes == 1 && number == 5 {
                self.initializer(range, graph, cut);
            } else if graph.nodes == 1 && number == 15 {
                self.sparse(range, &graph.prefix);
            }
            if cut {
                let what = format!("a field of the graph ends beyond byte {}", graph.range.end);
                return (nodes, Err(Fault::Truncated { what }));
            }
        }
        (nodes, Ok(()))
    }

    fn initializer(&mut self, range: Range<usize>, graph: &Graph, cut: bool) {
        let (name, tensor) = Tensor::parse(&self.input.bytes, range.clone());
        let tensor = if cut {
            tensor.and(Err(Fault::Truncated {
                what: format!("it ends beyond byte {}", range.end),
            }))
        } else {
            tensor
        };
        if !graph.prefix.is_empty() {
            return self.push(join(&graph.prefix, &name), tensor, None);
        }
        if !self.names.insert(name.clone()) {
            self.contents.skip(
                &name,
                Fault::DuplicateName {
                    what: format!("`{name}`; the first one is listed"),
                },
            );
            return;
        }
        self.add(name, tensor, None);
    }

    /// A `SparseTensorProto` is named after its values; both parts are listed.
    fn sparse(&mut self, range: Range<usize>, prefix: &str) {
        let bytes = self.input.bytes.clone();
        let (mut values, mut indices, mut dims) = (None, None, Vec::new());
        for field in Fields::new(&bytes, range).map_while(Result::ok) {
            match (field.number, field.wire) {
                (1, Wire::Bytes(range)) => values = Some(range),
                (2, Wire::Bytes(range)) => indices = Some(range),
                (3, wire) => wire.numbers(&bytes, &mut dims),
                _ => {}
            }
        }
        dims.truncate(self.context.limits.rank);
        let Some(values) = values else { return };
        let (name, values) = Tensor::parse(&bytes, values);
        let name = join(prefix, &name);
        let meta = |part: &str| -> Meta {
            json!({"layout": "sparse_coo", "part": part, "dims": dims})
                .as_object()
                .map(|map| Box::new(map.clone()))
        };
        self.push(format!("{name}.values"), values, meta("values"));
        if let Some(indices) = indices {
            let (_, indices) = Tensor::parse(&bytes, indices);
            self.push(format!("{name}.indices"), indices, meta("indices"));
        }
    }

    /// The tensors and graphs among a node's attributes.
    fn node(&mut self, range: Range<usize>, graph: &Graph) -> Result<(), Fault> {
        let bytes = self.input.bytes.clone();
        let (mut name, mut output, mut attributes) = (None, None, Vec::new());
        for field in Fields::new(&bytes, range) {
            let field = field?;
            match (field.number, field.wire) {
                (3, Wire::Bytes(range)) => name = Some(range),
                (2, Wire::Bytes(range)) if output.is_none() => output = Some(range),
                (5, Wire::Bytes(range)) => attributes.push(range),
                _ => {}
            }
        }
        if attributes.is_empty() {
            return Ok(());
        }
        let named = |range: Option<Range<usize>>| {
            range
                .map(|range| self.text(&range))
                .filter(|name| !name.is_empty())
        };
        let node = Node {
            name: named(name),
            output: named(output).unwrap_or_default(),
        };
        attributes
            .into_iter()
            .try_for_each(|range| self.attribute(range, graph, &node))
    }

    fn attribute(&mut self, range: Range<usize>, graph: &Graph, node: &Node) -> Result<(), Fault> {
        let bytes = self.input.bytes.clone();
        for field in Fields::new(&bytes, range) {
            let Field { number, wire, .. } = field?;
            let Wire::Bytes(range) = wire else { continue };
            match number {
                // `t` and `tensors`
                5 | 10 => {
                    let (name, tensor) = Tensor::parse(&bytes, range);
                    self.push(node.tensor_name(&graph.prefix, &name), tensor, None);
                }
                // `sparse_tensor` and `sparse_tensors`
                22 | 23 => self.sparse(range, &node.tensor_name(&graph.prefix, "")),
                // `g` and `graphs`
                6 | 11 => {
                    if graph.depth == DEPTH {
                        return Err(Fault::Limit {
                            what: format!("graphs {DEPTH} deep inside each other"),
                        });
                    }
                    let own = self
                        .fields(range.clone())
                        .map_while(Result::ok)
                        .find_map(|field| match (field.number, field.wire) {
                            (2, Wire::Bytes(range)) => Some(self.text(&range)),
                            _ => None,
                        });
                    let own = own.filter(|name| !name.is_empty()).unwrap_or_else(|| {
                        node.name.clone().unwrap_or_else(|| node.output.clone())
                    });
                    self.graphs.push(Graph {
                        range,
                        prefix: join(&graph.prefix, &own),
                        depth: graph.depth + 1,
                        nodes: 1,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A tensor that shares its name with nobody by rule; a second one gets `#2`.
    fn push(&mut self, mut name: String, tensor: Result<Tensor, Fault>, meta: Meta) {
        // Prefixes repeat: together they may be a few times the file, then names go without.
        self.spent = self.spent.saturating_add(name.len());
        if self.spent / 4 > self.input.bytes.len() {
            name = name.rsplit('/').next().unwrap_or_default().to_owned();
        }
        let met = self
            .collisions
            .entry(name.clone())
            .and_modify(|n| *n += 1)
            .or_insert(1);
        let name = match *met {
            1 if !self.names.contains(&name) => name,
            1 => {
                *met = 2;
                format!("{name}#2")
            }
            n => format!("{name}#{n}"),
        };
        self.add(name, tensor, meta);
    }

    fn add(&mut self, name: String, tensor: Result<Tensor, Fault>, meta: Meta) {
        let located = tensor.and_then(|tensor| {
            let dtype = tensor.dtype()?;
            let shape = tensor.shape(self.context.limits.rank)?;
            let data = self.locate(&name, &tensor, dtype, &shape)?;
            Ok(Entry {
                name: name.clone(),
                dtype,
                shape,
                meta,
                data,
            })
        });
        match located {
            Ok(entry) => self.contents.entries.push(entry),
            Err(fault) => {
                if let Fault::PathEscape { what } = &fault
                    && self.contents.findings.len() < FINDINGS
                {
                    self.contents.find(
                        FindingKind::PathEscape,
                        format!("`{name}` asks for {what}; not followed"),
                    );
                }
                match self.contents.skipped.len().cmp(&BROKEN) {
                    Ordering::Less => self.contents.skip(name, fault),
                    Ordering::Equal => self.contents.skip(
                        "more",
                        Fault::Limit {
                            what: format!("{BROKEN} broken tensors are told"),
                        },
                    ),
                    Ordering::Greater => {}
                }
            }
        }
    }

    fn locate(
        &mut self,
        name: &str,
        tensor: &Tensor,
        dtype: twinscope_tensor::DType,
        shape: &Shape,
    ) -> Result<Data, Fault> {
        let overflow = || Fault::Overflow {
            what: format!("the sizes {shape} have no countable product"),
        };
        let len = shape
            .elements()
            .and_then(|elements| dtype.byte_len(elements))
            .ok_or_else(overflow)?;
        if tensor.external {
            return self
                .external
                .find(&tensor.pairs(&self.input.bytes), len)
                .map(Data::Plain);
        }
        tensor.data(self.input, self.context, name, dtype, shape, len)
    }
}

/// What a node adds to the names of its tensors.
struct Node {
    name: Option<String>,
    output: String,
}

impl Node {
    /// `graph/node/tensor`, without the parts that are empty; a node's output stands in when nothing else has a name.
    fn tensor_name(&self, prefix: &str, tensor: &str) -> String {
        match (&self.name, tensor) {
            (Some(node), "") => join(prefix, node),
            (Some(node), tensor) => join(&join(prefix, node), tensor),
            (None, "") => join(prefix, &self.output),
            (None, tensor) => join(prefix, tensor),
        }
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        return name.to_owned();
    }
    let mut end = prefix.len().min(PREFIX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}/{name}", &prefix[..end])
}

#[cfg(test)]
mod tests;
