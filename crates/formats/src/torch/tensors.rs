//! The calls with which torch and NumPy rebuild tensors, understood instead of made.

use super::{
    layout::{Layout, Origin, bytes_of, storage_dtype, storage_len, torch_dtype},
    legacy, numpy,
    pickle::{Graph, Id, NIL, Node},
    sparse::{self, Sparse},
};
use crate::{contents::Data, error::Fault, input::Context};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use twinscope_tensor::{DType, Quant, Shape};

/// Where the storages of a container are.
pub(super) trait Storages {
    /// The bytes of a storage, of which the pickle says that they are `len`.
    fn bytes(&self, key: &str, len: u64) -> Result<Origin, Fault>;

    fn big_endian(&self) -> bool {
        false
    }

    /// The tensor that a persistent id names, in containers whose ids name tensors.
    fn tensor(&self, _key: &str) -> Option<Result<Layout, Fault>> {
        None
    }
}

/// A pickle that has no storages beside it.
pub(super) struct NoStorages;

impl Storages for NoStorages {
    fn bytes(&self, key: &str, _len: u64) -> Result<Origin, Fault> {
        Err(Fault::Missing {
            what: format!("the storage `{key}`: a plain pickle has none"),
        })
    }
}

/// A tensor, ready to be listed.
pub(super) struct Built {
    /// What comes after the object's own name: the index of a component, or nothing.
    pub(super) suffix: Option<String>,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) data: Form,
    pub(super) meta: Map<String, Value>,
}

/// Where its values are; layouts are kept as such, so that others can be made from them.
pub(super) enum Form {
    Layout(Layout),
    Data(Data),
}

impl Built {
    fn new(layout: Layout) -> Self {
        Self {
            suffix: None,
            dtype: layout.dtype,
            shape: layout.shape.clone(),
            data: Form::Layout(layout),
            meta: Map::new(),
        }
    }

    fn noting(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.meta.insert(key.to_owned(), value.into());
        self
    }

    pub(super) fn layout(self) -> Result<Layout, Fault> {
        match self.data {
            Form::Layout(layout) => Ok(layout),
            Form::Data(_) => Err(Fault::Unsupported {
                what: "a tensor inside a tensor that is not strided".into(),
            }),
        }
    }
}

/// A storage of the file.
pub(super) struct Stored {
    pub(super) origin: Origin,
    pub(super) dtype: DType,
    pub(super) key: String,
}

/// Understands the calls of one pickle.
pub(super) struct Rebuilder<'a> {
    pub(super) graph: &'a Graph,
    pub(super) storages: &'a dyn Storages,
    pub(super) context: &'a Context,
    /// How many pickles we are inside of.
    pub(super) nested: usize,
}

/// Tensors in tensors (a parameter of a subclass of ...): more than this is no tensor.
const DEEPEST: usize = 20;

type Tensors = Result<Option<Vec<Built>>, Fault>;

fn corrupt(what: impl Into<String>) -> Fault {
    Fault::CorruptPickle { what: what.into() }
}

impl Rebuilder<'_> {
    /// The tensors this object is, or `None` when it is something else.
    pub(super) fn tensors(&self, id: Id) -> Tensors {
        self.rebuild(id, 0)
    }

    fn rebuild(&self, id: Id, depth: usize) -> Tensors {
        if depth > DEEPEST {
            return Err(Fault::Limit {
                what: format!("tensors inside tensors, more than {DEEPEST} deep"),
            });
        }
        match self.graph.node(id) {
            Node::Persistent(pid) => self.persistent(id, pid),
            Node::Call {
                function,
                arguments,
                ..
            } => {
                let Some(name) = self.graph.global_name(function) else {
                    return Ok(None);
                };
                let arguments = self.graph.sequence(arguments).unwrap_or_default();
                self.call(id, name, &arguments, depth)
            }
            _ => Ok(None),
        }
    }

    /// Calls by name; everything the table of formats.md 1.5 has.
    fn call(&self, id: Id, name: &str, arguments: &[Id], depth: usize) -> Tensors {
        let Some((module, last)) = name.rsplit_once('.') else {
            return Ok(None);
        };
        match (module, last) {
            ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => {
                self.dense(arguments, None, 6).map(one)
            }
            ("torch._utils", "_rebuild_tensor_v3") => {
                let dtype = self.dtype(
                    *arguments
                        .get(6)
                        .ok_or_else(|| corrupt("a tensor without its dtype"))?,
                )?;
                self.dense(arguments, Some(dtype), 7).map(one)
            }
            ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state")
            | ("torch.nn.parameter", "Parameter") => self.parameter(arguments, depth),
            ("torch._tensor" | "torch.tensor", "_rebuild_from_type_v2" | "_rebuild_from_type") => {
                self.typed(arguments, depth)
            }
            ("torch._utils", "_rebuild_qtensor") => self.quantized(arguments, depth).map(one),
            ("torch._utils", "_rebuild_sparse_tensor" | "_rebuild_sparse_csr_tensor") => {
                self.sparse(arguments, depth).map(one)
            }
            ("torch._utils", "_rebuild_nested_tensor") => self.nested(arguments, depth).map(Some),
            ("torch.nested._internal.nested_tensor", "_rebuild_njt") => {
                self.jagged(arguments, depth).map(Some)
            }
            ("torch._utils", "_rebuild_meta_tensor_no_storage") => self.meta(arguments).map(one),
            (
                "torch._utils",
                "_rebuild_device_tensor_from_cpu_tensor"
                | "_rebuild_device_tensor_from_numpy"
                | "_rebuild_xla_tensor",
            ) => self.rebuild(
                *arguments
                    .first()
                    .ok_or_else(|| corrupt("a device tensor without its values"))?,
                depth + 1,
            ),
            ("torch.storage", "_load_from_bytes") => self.loaded(id),
            ("torch.jit._pickle", "restore_type_tag") => arguments
                .first()
                .map_or(Ok(None), |inner| self.rebuild(*inner, depth + 1)),
            ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => {
                if numpy::objects(self.graph, id).is_some() {
                    return Ok(None);
                }
                Ok(numpy::array(self.graph, id)?
                    .map(|layout| vec![Built::new(layout).noting("numpy", true)]))
            }
            ("numpy.ma.core" | "numpy.ma", "_mareconstruct") => Ok(numpy::array(self.graph, id)?
                .map(|layout| vec![Built::new(layout).noting("numpy", "masked")])),
            ("numpy.core.multiarray" | "numpy._core.multiarray", "scalar") => {
                numpy::scalar(self.graph, arguments)
                    .map(|layout| one(Built::new(layout).noting("numpy", "scalar")))
            }
            ("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer") => {
                numpy::from_buffer(self.graph, arguments)
                    .map(|layout| one(Built::new(layout).noting("numpy", true)))
            }
            _ => Ok(None),
        }
    }

    /// A persistent id outside a tensor: a storage on its own, or a tensor in a container whose ids name tensors.
    fn persistent(&self, id: Id, pid: Id) -> Tensors {
        if let Some(tensor) = self.key(pid).and_then(|key| self.storages.tensor(&key)) {
            return tensor.map(|layout| one(Built::new(layout)));
        }
        if self.graph.sequence(pid).is_some_and(|parts| {
            parts
                .first()
                .is_some_and(|tag| self.graph.text(*tag).is_some_and(|tag| tag == "module"))
        }) {
            return Ok(None);
        }
        let stored = self.storage(id)?;
        self.storage_object(stored).map(one)
    }

    fn storage_object(&self, stored: Stored) -> Result<Built, Fault> {
        let per_byte = stored.dtype.itemsize().map_or(1, |item| item as u64);
        let dtype = if stored.dtype.itemsize().is_some() {
            stored.dtype
        } else {
            DType::U8
        };
        let mut layout = Layout::row_major(
            dtype,
            Shape::from([stored.origin.len() / per_byte.max(1)]),
            stored.origin,
        )?;
        layout.big_endian = self.storages.big_endian();
        Ok(Built::new(layout)
            .noting("object", "storage")
            .noting("storage", stored.key))
    }

    fn key(&self, id: Id) -> Option<String> {
        match self.graph.int(id) {
            Some(number) => Some(number.to_string()),
            None => self.graph.text(id).map(std::borrow::Cow::into_owned),
        }
    }

    /// `("storage", class, key, location, numel[, view])`, or a storage that is a file of its own.
    pub(super) fn storage(&self, id: Id) -> Result<Stored, Fault> {
        let pid = match self.graph.node(id) {
            Node::Persistent(pid) => pid,
            Node::Call { .. } => {
                let name = self
                    .graph
                    .call(id)
                    .and_then(|(function, _)| self.graph.global_name(function));
                return match name {
                    Some("torch.storage._load_from_bytes") => self.nested_storage(id),
                    _ => Err(corrupt("a tensor whose storage is no storage")),
                };
            }
            _ => return Err(corrupt("a tensor whose storage is no storage")),
        };
        let parts = self.graph.sequence(pid).ok_or_else(|| {
            corrupt(
                "its storage is named by text, not by a tuple (torch.save with protocol 0 writes such files, and torch.load refuses them)",
            )
        })?;
        let tag = parts.first().and_then(|tag| self.graph.text(*tag));
        if tag.as_deref() != Some("storage") || parts.len() < 5 {
            return Err(corrupt(format!(
                "a persistent id of {} parts, tagged {tag:?}",
                parts.len()
            )));
        }
        let class = self
            .graph
            .global_name(parts[1])
            .ok_or_else(|| corrupt("a storage without a class"))?;
        let dtype = storage_dtype(class).ok_or_else(|| Fault::BadDtype {
            what: format!("the storage class {class}"),
        })?;
        let key = self
            .key(parts[2])
            .ok_or_else(|| corrupt("a storage without a key"))?;
        let count = self.graph.int(parts[4]).ok_or_else(|| Fault::BadShape {
            what: format!("storage `{key}` has no number of elements"),
        })?;
        let mut origin = self.storages.bytes(&key, storage_len(dtype, count)?)?;
        if let Some(view) = parts.get(5).and_then(|view| self.graph.sequence(*view)) {
            let number = |at: usize| {
                view.get(at)
                    .and_then(|id| self.graph.int(*id))
                    .unwrap_or(-1)
            };
            let (start, len) = (
                storage_len(dtype, number(1))?,
                storage_len(dtype, number(2))?,
            );
            let outside = || Fault::OutOfBounds {
                what: format!(
                    "a view of bytes {start}..{start}+{len} of storage `{key}`, which has {}",
                    origin.len()
                ),
            };
            origin = origin.slice(start, len).ok_or_else(outside)?;
        }
        Ok(Stored { origin, dtype, key })
    }

    fn nested_storage(&self, call: Id) -> Result<Stored, Fault> {
        let bytes = self.nested_bytes(call)?;
        legacy::nested_storage(&bytes, self.context, self.nested + 1)
    }

    fn nested_bytes(&self, call: Id) -> Result<twinscope_tensor::Bytes, Fault> {
        if self.nested >= 4 {
            return Err(Fault::Limit {
                what: "pickles inside pickles, deeper than 4".into(),
            });
        }
        let argument = self
            .graph
            .call(call)
            .and_then(|(_, arguments)| arguments.first().copied());
        bytes_of(
            self.graph,
            argument.ok_or_else(|| corrupt("no bytes to load"))?,
        )?
        .fetch()
    }

    /// A storage that was pickled on its own.
    fn loaded(&self, call: Id) -> Tensors {
        let stored = self.nested_storage(call)?;
        self.storage_object(stored).map(one)
    }

    fn integers(&self, id: Id, what: &str) -> Result<Vec<i64>, Fault> {
        let wrong = || Fault::BadShape {
            what: format!("{what} that are no integers"),
        };
        let mut id = id;
        // torch.Size is a tuple in a call.
        if let Some((function, arguments)) = self.graph.call(id)
            && self.graph.global_name(function) == Some("torch.Size")
        {
            id = arguments.first().copied().unwrap_or(NIL);
            if id == NIL {
                return Ok(Vec::new());
            }
        }
        let items = self.graph.sequence(id).ok_or_else(wrong)?;
        if items.len() > self.context.limits.rank {
            return Err(Fault::BadShape {
                what: format!(
                    "{} dimensions, the limit is {}",
                    items.len(),
                    self.context.limits.rank
                ),
            });
        }
        items
            .iter()
            .map(|id| self.graph.int(*id).ok_or_else(wrong))
            .collect()
    }

    pub(super) fn shape(&self, id: Id) -> Result<Shape, Fault> {
        let dims = self.integers(id, "sizes")?;
        let dims: Result<Vec<u64>, _> = dims.iter().map(|dim| u64::try_from(*dim)).collect();
        dims.map(Shape::from).map_err(|_| Fault::BadShape {
            what: "a negative size".into(),
        })
    }

    pub(super) fn dtype(&self, id: Id) -> Result<DType, Fault> {
        let name = self.graph.global_name(id).ok_or_else(|| Fault::BadDtype {
            what: "no dtype".into(),
        })?;
        name.strip_prefix("torch.")
            .and_then(torch_dtype)
            .ok_or_else(|| Fault::BadDtype {
                what: name.to_owned(),
            })
    }

    fn flag(&self, id: Option<&Id>) -> bool {
        id.is_some_and(|id| matches!(self.graph.node(*id), Node::Bool(true)))
    }

    fn strided(
        &self,
        stored: &Stored,
        arguments: &[Id],
        dtype: Option<DType>,
    ) -> Result<Layout, Fault> {
        let [_, offset, sizes, strides, ..] = arguments else {
            return Err(corrupt(format!(
                "a tensor is rebuilt from {} parts, four are needed",
                arguments.len()
            )));
        };
        let offset = self.graph.int(*offset).ok_or_else(|| Fault::BadShape {
            what: "an offset that is no integer".into(),
        })?;
        let offset = u64::try_from(offset).map_err(|_| Fault::OutOfBounds {
            what: format!("a storage offset of {offset}"),
        })?;
        let strides = self.integers(*strides, "strides")?;
        if let Some(stride) = strides.iter().find(|stride| **stride < 0) {
            return Err(Fault::BadShape {
                what: format!("a stride of {stride}"),
            });
        }
        let mut layout = Layout::new(
            dtype.unwrap_or(stored.dtype),
            self.shape(*sizes)?,
            strides,
            offset,
            stored.origin.clone(),
        )?;
        layout.big_endian = self.storages.big_endian();
        Ok(layout)
    }

    /// `(storage, offset, size, stride, requires_grad, hooks, ...)`, with a dict of lazy bits at `extras`.
    fn dense(&self, arguments: &[Id], dtype: Option<DType>, extras: usize) -> Result<Built, Fault> {
        let storage = arguments
            .first()
            .ok_or_else(|| corrupt("a tensor without a storage"))?;
        let stored = self.storage(*storage)?;
        let mut layout = self.strided(&stored, arguments, dtype)?;
        let bit = |name: &str| {
            arguments
                .get(extras)
                .and_then(|dict| self.graph.get(*dict, name))
                .is_some_and(|bit| self.flag(Some(&bit)))
        };
        (layout.conjugate, layout.negate) = (bit("conj"), bit("neg"));
        let (conjugate, negate) = (layout.conjugate, layout.negate);
        let mut built = Built::new(layout).noting("storage", stored.key);
        if conjugate {
            built = built.noting("conj", true);
        }
        if negate {
            built = built.noting("neg", true);
        }
        if self.flag(arguments.get(4)) {
            built = built.noting("requires_grad", true);
        }
        Ok(built)
    }

    fn parameter(&self, arguments: &[Id], depth: usize) -> Tensors {
        let Some(data) = arguments.first() else {
            return Ok(None);
        };
        let mut built = self.rebuild(*data, depth + 1)?;
        for tensor in built.iter_mut().flatten() {
            tensor.meta.insert("param".into(), true.into());
            if self.flag(arguments.get(1)) {
                tensor.meta.insert("requires_grad".into(), true.into());
            }
        }
        Ok(built)
    }

    /// `(function, type, arguments, state)`: subclasses of tensors, and tensors with attributes.
    fn typed(&self, arguments: &[Id], depth: usize) -> Tensors {
        let [function, class, inner, rest @ ..] = arguments else {
            return Err(corrupt("a tensor subclass without its parts"));
        };
        let name = self.graph.global_name(*function).unwrap_or_default();
        let class = self.graph.global_name(*class).unwrap_or_default();
        let inner_arguments = self.graph.sequence(*inner).unwrap_or_default();
        let built = if name == "torch._utils._rebuild_wrapper_subclass" {
            self.wrapped(
                &inner_arguments,
                rest.first().copied().unwrap_or(NIL),
                depth,
            )?
        } else {
            self.call(NIL, name, &inner_arguments, depth + 1)?
        };
        let plain = matches!(
            class,
            "" | "torch.Tensor" | "torch.nn.parameter.Parameter" | "torch.nn.parameter.Buffer"
        );
        Ok(built.map(|mut tensors| {
            for tensor in &mut tensors {
                match class {
                    "torch.nn.parameter.Parameter" => {
                        drop(tensor.meta.insert("param".into(), true.into()));
                    }
                    "torch.nn.parameter.Buffer" => {
                        drop(tensor.meta.insert("buffer".into(), true.into()));
                    }
                    _ if !plain => drop(tensor.meta.insert("class".into(), class.into())),
                    _ => {}
                }
            }
            tensors
        }))
    }

    /// An attribute of an object: from its state, or from either dict of a `(dict, slots)` state.
    pub(super) fn attribute(&self, object: Id, name: &str) -> Option<Id> {
        let state = self.graph.extra(object)?.state;
        self.graph.get(state, name).or_else(|| {
            let parts = self.graph.sequence(state)?;
            parts.iter().find_map(|part| self.graph.get(*part, name))
        })
    }

    /// DTensor and ShardedTensor: the shards this file holds. Other wrappers are objects whose tensors are attributes.
    fn wrapped(&self, arguments: &[Id], state: Id, depth: usize) -> Tensors {
        let parts = self
            .graph
            .sequence(state)
            .map(std::borrow::Cow::into_owned)
            .unwrap_or_else(|| vec![state]);
        let global = arguments.get(2).and_then(|size| self.shape(*size).ok());
        for part in &parts {
            if let Some(local) = self.graph.get(*part, "_local_tensor") {
                let placements = self
                    .graph
                    .get(*part, "_spec")
                    .and_then(|spec| self.placements(spec));
                let mut built = self.rebuild(local, depth + 1)?;
                for tensor in built.iter_mut().flatten() {
                    if let Some(global) = &global {
                        tensor
                            .meta
                            .insert("global_shape".into(), json!(global.dims()));
                    }
                    if let Some(placements) = &placements {
                        tensor.meta.insert("placements".into(), json!(placements));
                    }
                }
                return Ok(built);
            }
        }
        for part in &parts {
            if let Node::List(chain) = self.graph.node(*part) {
                let shards: Vec<Id> = self
                    .graph
                    .chain(chain)
                    .into_iter()
                    .filter(|shard| self.attribute(*shard, "tensor").is_some())
                    .collect();
                if !shards.is_empty() {
                    return self.shards(&shards, &parts, depth).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn shards(&self, shards: &[Id], parts: &[Id], depth: usize) -> Result<Vec<Built>, Fault> {
        let global = parts
            .iter()
            .find_map(|part| self.attribute(*part, "size"))
            .and_then(|size| self.shape(size).ok());
        let mut out = Vec::new();
        for (index, shard) in shards.iter().enumerate() {
            let Some(tensor) = self.attribute(*shard, "tensor") else {
                continue;
            };
            let offsets = self
                .attribute(*shard, "metadata")
                .and_then(|metadata| self.attribute(metadata, "shard_offsets"));
            let offsets = offsets.and_then(|offsets| self.integers(offsets, "offsets").ok());
            for mut built in self.rebuild(tensor, depth + 1)?.unwrap_or_default() {
                if shards.len() > 1 {
                    built.suffix = Some(index.to_string());
                }
                if let Some(global) = &global {
                    built
                        .meta
                        .insert("global_shape".into(), json!(global.dims()));
                }
                if let Some(offsets) = &offsets {
                    built.meta.insert("shard_offsets".into(), json!(offsets));
                }
                out.push(built);
            }
        }
        Ok(out)
    }

    /// `Shard(dim=0)` as `S(0)`, `Replicate()` as `R`, `Partial("sum")` as `P(sum)`.
    fn placements(&self, spec: Id) -> Option<Vec<String>> {
        let placements = self.graph.sequence(self.attribute(spec, "placements")?)?;
        placements
            .iter()
            .map(|placement| {
                let (function, _) = self.graph.call(*placement)?;
                let name = self.graph.global_name(function)?.rsplit('.').next()?;
                Some(match name {
                    "Shard" | "_StridedShard" => {
                        format!(
                            "S({})",
                            self.attribute(*placement, "dim")
                                .and_then(|dim| self.graph.int(dim))
                                .unwrap_or(0)
                        )
                    }
                    "Replicate" => "R".to_owned(),
                    "Partial" | "_Partial" => {
                        let op = self
                            .attribute(*placement, "reduce_op")
                            .and_then(|op| self.graph.text(op).map(std::borrow::Cow::into_owned));
                        format!("P({})", op.unwrap_or_else(|| "sum".to_owned()))
                    }
                    other => other.to_owned(),
                })
            })
            .collect()
    }

    /// The one strided tensor that an argument must be.
    fn part(&self, id: Option<&Id>, what: &str, depth: usize) -> Result<Layout, Fault> {
        let missing = || corrupt(format!("{what} that are no tensor"));
        let tensors = self
            .rebuild(*id.ok_or_else(missing)?, depth + 1)?
            .ok_or_else(missing)?;
        tensors.into_iter().next().ok_or_else(missing)?.layout()
    }

    /// `(storage, offset, size, stride, (scheme, scale, zero_point) or (scheme, scales, zero_points, axis), ...)`.
    fn quantized(&self, arguments: &[Id], depth: usize) -> Result<Built, Fault> {
        let stored = self.storage(
            *arguments
                .first()
                .ok_or_else(|| corrupt("a quantized tensor without a storage"))?,
        )?;
        let mut layout = self.strided(&stored, arguments, None)?;
        let scheme = arguments
            .get(4)
            .and_then(|scheme| self.graph.sequence(*scheme))
            .ok_or_else(|| corrupt("a quantized tensor without its scheme"))?;
        let name = scheme
            .first()
            .and_then(|name| self.graph.global_name(*name))
            .unwrap_or_default();
        let name = name.strip_prefix("torch.").unwrap_or(name).to_owned();
        let number = |id: Option<&Id>| match id.map(|id| self.graph.node(*id)) {
            Some(Node::Float(value)) => Ok(value),
            Some(Node::Int(value)) => Ok(value as f64),
            _ => Err(corrupt("a scale or zero point that is no number")),
        };
        let mut meta = Map::new();
        meta.insert("scheme".into(), name.clone().into());
        let quant = if name.starts_with("per_channel") {
            let axis = scheme
                .get(3)
                .and_then(|axis| self.graph.int(*axis))
                .unwrap_or(-1);
            let size = usize::try_from(axis)
                .ok()
                .and_then(|axis| layout.shape.dims().get(axis))
                .copied();
            let size = size.ok_or_else(|| Fault::BadShape {
                what: format!("quantized along axis {axis} of {}", layout.shape),
            })?;
            let (scales, zero_points) = (
                self.part(scheme.get(1), "scales", depth)?.numbers()?,
                self.part(scheme.get(2), "zero points", depth)?.numbers()?,
            );
            if scales.len() as u64 != size || zero_points.len() as u64 != size {
                return Err(Fault::BadShape {
                    what: format!(
                        "{} scales and {} zero points for {size} channels",
                        scales.len(),
                        zero_points.len()
                    ),
                });
            }
            meta.insert("axis".into(), axis.into());
            Quant::Channel {
                axis: axis as usize,
                scales,
                zero_points,
            }
        } else {
            let (scale, zero_point) = (number(scheme.get(1))?, number(scheme.get(2))?);
            meta.insert("scale".into(), scale.into());
            meta.insert("zero_point".into(), zero_point.into());
            Quant::Tensor { scale, zero_point }
        };
        layout.quant = Some(quant);
        Ok(Built::new(layout)
            .noting("quant", Value::Object(meta))
            .noting("storage", stored.key))
    }

    /// `(layout, (indices, values, size[, coalesced]))` or `(layout, (compressed, plain, values, size))`.
    fn sparse(&self, arguments: &[Id], depth: usize) -> Result<Built, Fault> {
        let [layout, parts, ..] = arguments else {
            return Err(corrupt("a sparse tensor without its parts"));
        };
        let layout = self
            .graph
            .call(*layout)
            .and_then(|(_, arguments)| self.graph.text(*arguments.first()?))
            .unwrap_or_default();
        let format = sparse::Format::parse(&layout).ok_or_else(|| Fault::Unsupported {
            what: format!("the layout `{layout}`"),
        })?;
        let parts = self
            .graph
            .sequence(*parts)
            .ok_or_else(|| corrupt("a sparse tensor without its parts"))?;
        let count = if format == sparse::Format::Coo { 1 } else { 2 };
        let indices = (0..count)
            .map(|at| self.part(parts.get(at), "indices", depth))
            .collect::<Result<Vec<_>, _>>()?;
        let values = self.part(parts.get(count), "values", depth)?;
        let shape = self.shape(
            *parts
                .get(count + 1)
                .ok_or_else(|| corrupt("a sparse tensor without its size"))?,
        )?;
        let entries = values.shape.dims().first().copied().unwrap_or(0);
        let sparse = Sparse {
            format,
            indices,
            values,
            shape: shape.clone(),
            cache: Arc::clone(&self.context.cache),
            limits: self.context.limits,
        };
        sparse.check()?;
        let dtype = sparse.values.dtype;
        let built = Built {
            suffix: None,
            dtype,
            shape,
            data: Form::Data(Data::Lazy(Arc::new(sparse))),
            meta: Map::new(),
        };
        Ok(built
            .noting("layout", format.name())
            .noting("entries", entries))
    }

    /// `(buffer, sizes, strides, offsets)`: several tensors over one buffer.
    fn nested(&self, arguments: &[Id], depth: usize) -> Result<Vec<Built>, Fault> {
        let buffer = self.part(arguments.first(), "a buffer", depth)?;
        let sizes = self.part(arguments.get(1), "sizes", depth)?;
        let rank = match sizes.shape.dims() {
            [_, rank] if *rank <= self.context.limits.rank as u64 => *rank as usize,
            other => {
                return Err(Fault::BadShape {
                    what: format!("nested sizes of {other:?}"),
                });
            }
        };
        let (sizes, strides) = (
            sizes.integers()?,
            self.part(arguments.get(2), "strides", depth)?.integers()?,
        );
        let offsets = self.part(arguments.get(3), "offsets", depth)?.integers()?;
        if sizes.len() != strides.len() || sizes.len() != offsets.len() * rank {
            return Err(Fault::BadShape {
                what: format!(
                    "{} nested sizes, {} strides, {} offsets",
                    sizes.len(),
                    strides.len(),
                    offsets.len()
                ),
            });
        }
        let mut out = Vec::new();
        for (index, offset) in offsets.iter().enumerate() {
            let part = index * rank..(index + 1) * rank;
            let shape: Result<Vec<u64>, _> = sizes[part.clone()]
                .iter()
                .map(|dim| u64::try_from(*dim))
                .collect();
            let negative = |_| Fault::BadShape {
                what: "a negative size in a nested tensor".into(),
            };
            let (shape, offset) = (
                shape.map_err(negative)?,
                u64::try_from(*offset).map_err(negative)?,
            );
            let offset = offset
                .checked_add(buffer.offset)
                .ok_or_else(|| Fault::Overflow {
                    what: format!("a nested offset of {offset}"),
                })?;
            let mut layout = Layout::new(
                buffer.dtype,
                shape.into(),
                strides[part].to_vec(),
                offset,
                buffer.origin.clone(),
            )?;
            layout.big_endian = buffer.big_endian;
            let mut built = Built::new(layout).noting("layout", "nested_strided");
            built.suffix = Some(index.to_string());
            out.push(built);
        }
        Ok(out)
    }

    /// `({"values", "offsets", "lengths", "_ragged_idx", ...})`: rows of one tensor.
    fn jagged(&self, arguments: &[Id], depth: usize) -> Result<Vec<Built>, Fault> {
        let dict = *arguments
            .first()
            .ok_or_else(|| corrupt("a jagged tensor without its parts"))?;
        let get = |name: &str| {
            self.graph
                .get(dict, name)
                .filter(|id| !matches!(self.graph.node(*id), Node::None))
        };
        let values = self.part(get("values").as_ref(), "values", depth)?;
        let offsets = self
            .part(get("offsets").as_ref(), "offsets", depth)?
            .integers()?;
        let lengths = match get("lengths") {
            Some(lengths) => Some(self.part(Some(&lengths), "lengths", depth)?.integers()?),
            None => None,
        };
        // The ragged dimension counts the batch; the values have no batch dimension.
        let ragged = get("_ragged_idx")
            .and_then(|id| self.graph.int(id))
            .unwrap_or(1);
        let axis = usize::try_from(ragged.saturating_sub(1))
            .ok()
            .filter(|axis| *axis < values.shape.rank());
        let axis = axis.ok_or_else(|| Fault::BadShape {
            what: format!(
                "a jagged tensor along dimension {ragged} of {}",
                values.shape
            ),
        })?;
        let mut out = Vec::new();
        for (index, ends) in offsets.windows(2).enumerate() {
            let len = lengths
                .as_ref()
                .map_or(ends[1].checked_sub(ends[0]), |lengths| {
                    lengths.get(index).copied()
                });
            let outside = || Fault::OutOfBounds {
                what: format!("rows {ends:?} of {}", values.shape),
            };
            let (start, len) = u64::try_from(ends[0])
                .ok()
                .zip(len.and_then(|len| u64::try_from(len).ok()))
                .ok_or_else(outside)?;
            start
                .checked_add(len)
                .filter(|end| *end <= values.shape.dims()[axis])
                .ok_or_else(outside)?;
            let mut dims = values.shape.dims().to_vec();
            dims[axis] = len;
            let moved = u64::try_from(
                i128::from(values.offset) + i128::from(start) * i128::from(values.strides[axis]),
            )
            .map_err(|_| outside())?;
            let mut layout = Layout::new(
                values.dtype,
                dims.into(),
                values.strides.clone(),
                moved,
                values.origin.clone(),
            )?;
            layout.big_endian = values.big_endian;
            let mut built = Built::new(layout).noting("layout", "nested_jagged");
            built.suffix = Some(index.to_string());
            out.push(built);
        }
        Ok(out)
    }

    /// `(dtype, size, stride, requires_grad)`: a shape without values.
    fn meta(&self, arguments: &[Id]) -> Result<Built, Fault> {
        let [dtype, size, ..] = arguments else {
            return Err(corrupt("a meta tensor without its size"));
        };
        let (dtype, shape) = (self.dtype(*dtype)?, self.shape(*size)?);
        if shape
            .elements()
            .and_then(|elements| dtype.byte_len(elements))
            .is_none()
        {
            return Err(Fault::Overflow {
                what: format!("{shape} of {dtype}"),
            });
        }
        let data = Form::Data(Data::None("it was saved on the meta device"));
        Ok(Built {
            suffix: None,
            dtype,
            shape,
            data,
            meta: Map::new(),
        }
        .noting("device", "meta"))
    }
}

fn one(built: Built) -> Option<Vec<Built>> {
    Some(vec![built])
}
