//! NumPy arrays, scalars and dtypes as pickles write them.

use super::{
    layout::{Layout, bytes_of},
    pickle::{Graph, Id, Node},
};
use crate::error::Fault;
use twinscope_tensor::{DType, Shape, TimeUnit};

/// A dtype and whether its elements are big-endian.
type Kind = (DType, bool);

fn bad(what: impl Into<String>) -> Fault {
    Fault::BadDtype { what: what.into() }
}

/// `numpy.dtype("f4", False, True)` and its state `(3, "<", None, names, fields, itemsize, alignment, flags)`.
fn dtype(graph: &Graph, id: Id) -> Result<Kind, Fault> {
    let (function, arguments) = graph.call(id).ok_or_else(|| bad("no NumPy dtype"))?;
    if !graph
        .global_name(function)
        .is_some_and(|name| name == "numpy.dtype" || name.ends_with(".dtype"))
    {
        return Err(bad("no NumPy dtype"));
    }
    let code = arguments
        .first()
        .and_then(|first| graph.text(*first).or_else(|| extension(graph, *first)));
    let state = graph
        .extra(id)
        .and_then(|extra| {
            graph
                .sequence(extra.state)
                .map(std::borrow::Cow::into_owned)
        })
        .unwrap_or_default();
    let order = state
        .get(1)
        .and_then(|id| graph.text(*id))
        .unwrap_or_default()
        .into_owned();
    let big = order == ">" || code.as_ref().is_some_and(|code| code.starts_with('>'));
    let code = code
        .as_deref()
        .map(|code| code.trim_start_matches(['<', '>', '|', '=']));
    if state
        .get(3)
        .is_some_and(|names| !matches!(graph.node(*names), Node::None))
    {
        let size = state
            .get(5)
            .and_then(|id| graph.int(*id))
            .and_then(|size| u32::try_from(size).ok());
        let size = size.or_else(|| code?.strip_prefix('V')?.parse().ok());
        return Ok((
            DType::Struct(size.ok_or_else(|| bad("a structured dtype without its size"))?),
            false,
        ));
    }
    let code = code.ok_or_else(|| bad("a NumPy dtype without a code"))?;
    let unit = || -> Option<TimeUnit> {
        // The ninth field: (metadata, (unit, count, denominator, events)).
        let metadata = graph.sequence(*state.get(8)?)?;
        let parts = graph.sequence(*metadata.get(1)?)?;
        let raw = bytes_of(graph, *parts.first()?).ok()?.fetch().ok()?;
        TimeUnit::new(
            u32::try_from(graph.int(*parts.get(1)?)?).ok()?,
            std::str::from_utf8(&raw).ok()?,
        )
    };
    plain(code, unit).map(|dtype| (dtype, big)).ok_or_else(|| {
        bad(if code.starts_with('O') {
            "NumPy objects".to_owned()
        } else {
            format!("NumPy's `{code}`")
        })
    })
}

/// `numpy.dtype(ml_dtypes.bfloat16)`: types from outside NumPy are given as classes, not as codes.
fn extension(graph: &Graph, id: Id) -> Option<std::borrow::Cow<'_, str>> {
    let name = graph.global_name(id)?.strip_prefix("ml_dtypes.")?;
    Some(name.rsplit('.').next()?.into())
}

fn plain(code: &str, unit: impl Fn() -> Option<TimeUnit>) -> Option<DType> {
    let sized = |prefix: char| {
        code.strip_prefix(prefix)
            .and_then(|size| size.parse::<u32>().ok())
    };
    let time = || unit().or_else(|| TimeUnit::new(1, "generic"));
    Some(match code {
        "b1" | "?" => DType::Bool,
        "i1" | "b" => DType::I8,
        "u1" | "B" => DType::U8,
        "i2" | "h" => DType::I16,
        "u2" | "H" => DType::U16,
        "i4" | "i" => DType::I32,
        "u4" | "I" => DType::U32,
        "i8" | "l" | "q" => DType::I64,
        "u8" | "L" | "Q" => DType::U64,
        "f2" | "e" => DType::F16,
        "f4" | "f" => DType::F32,
        "f8" | "d" => DType::F64,
        "f16" | "g" => DType::F80,
        "c8" | "F" => DType::C64,
        "c16" | "D" => DType::C128,
        "c32" | "G" => DType::C160,
        "M8" => DType::DateTime(time()?),
        "m8" => DType::TimeDelta(time()?),
        "bfloat16" => DType::Bf16,
        other => match other.chars().next()? {
            'U' if sized('U')? <= u32::MAX / 4 => DType::Str(sized('U')?),
            'S' | 'a' => DType::Bytes(sized('S').or_else(|| sized('a'))?),
            'V' => DType::Void(sized('V')?),
            _ => super::layout::torch_dtype(other)?,
        },
    })
}

fn shape_of(graph: &Graph, id: Id) -> Result<Shape, Fault> {
    let wrong = || Fault::BadShape {
        what: "a NumPy shape that is no tuple of sizes".into(),
    };
    let dims = match graph.int(id) {
        Some(dim) => vec![u64::try_from(dim).map_err(|_| wrong())?],
        None => {
            let items = graph.sequence(id).ok_or_else(wrong)?;
            items
                .iter()
                .map(|id| {
                    graph
                        .int(*id)
                        .and_then(|dim| u64::try_from(dim).ok())
                        .ok_or_else(wrong)
                })
                .collect::<Result<_, _>>()?
        }
    };
    Ok(Shape::from(dims))
}

fn build(
    graph: &Graph,
    (dtype, big): Kind,
    shape: Shape,
    fortran: bool,
    data: Id,
) -> Result<Layout, Fault> {
    let origin = bytes_of(graph, data)?;
    let elements = shape.elements().ok_or_else(|| Fault::Overflow {
        what: format!("a shape of {shape}"),
    })?;
    let needed = dtype.byte_len(elements).ok_or_else(|| Fault::Overflow {
        what: format!("{shape} of {dtype}"),
    })?;
    if needed > origin.len() {
        return Err(Fault::Truncated {
            what: format!(
                "{shape} of {dtype} takes {needed} bytes, {} are there",
                origin.len()
            ),
        });
    }
    let mut layout = if fortran {
        let reversed = Shape::from(shape.dims().iter().rev().copied().collect::<Vec<_>>());
        let strides = reversed.row_major().map(|mut strides| {
            strides.reverse();
            strides
        });
        Layout::new(dtype, shape, strides.unwrap_or_default(), 0, origin)?
    } else {
        Layout::row_major(dtype, shape, origin)?
    };
    layout.big_endian = big;
    Ok(layout)
}

/// An array whose call has the state `(version, shape, dtype, fortran, data)`; `Ok(None)` when it was never filled.
pub(super) fn array(graph: &Graph, id: Id) -> Result<Option<Layout>, Fault> {
    let Some(extra) = graph.extra(id) else {
        return Ok(None);
    };
    let state = graph
        .sequence(extra.state)
        .ok_or_else(|| Fault::CorruptPickle {
            what: "an array without its state".into(),
        })?;
    let state: &[Id] = match &*state {
        // Version 0 has no version.
        all if all.len() == 4 => all,
        all if all.len() >= 5 => &all[1..5],
        all => {
            return Err(Fault::CorruptPickle {
                what: format!("an array whose state has {} parts", all.len()),
            });
        }
    };
    let fortran = matches!(graph.node(state[2]), Node::Bool(true))
        || graph.int(state[2]).is_some_and(|flag| flag != 0);
    build(
        graph,
        dtype(graph, state[1])?,
        shape_of(graph, state[0])?,
        fortran,
        state[3],
    )
    .map(Some)
}

/// The objects inside an array of dtype object, when that is what this is.
pub(super) fn objects(graph: &Graph, id: Id) -> Option<Id> {
    let extra = graph.extra(id)?;
    let state = graph.sequence(extra.state)?;
    let list = *state.last()?;
    matches!(graph.node(list), Node::List(_)).then_some(list)
}

/// `scalar(dtype, data)`.
pub(super) fn scalar(graph: &Graph, arguments: &[Id]) -> Result<Layout, Fault> {
    let [kind, data, ..] = arguments else {
        return Err(Fault::CorruptPickle {
            what: "a NumPy scalar without its data".into(),
        });
    };
    build(graph, dtype(graph, *kind)?, Shape::scalar(), false, *data)
}

/// `_frombuffer(data, dtype, shape, order[, axes])`: protocol 5. Order `K` is row-major with its axes permuted after.
pub(super) fn from_buffer(graph: &Graph, arguments: &[Id]) -> Result<Layout, Fault> {
    let [data, kind, shape, rest @ ..] = arguments else {
        return Err(Fault::CorruptPickle {
            what: "a NumPy array without its shape".into(),
        });
    };
    let order = rest
        .first()
        .and_then(|order| graph.text(*order))
        .unwrap_or_default();
    let layout = build(
        graph,
        dtype(graph, *kind)?,
        shape_of(graph, *shape)?,
        order == "F",
        *data,
    )?;
    match rest.get(1) {
        Some(axes) if order == "K" => permuted(graph, layout, *axes),
        _ => Ok(layout),
    }
}

fn permuted(graph: &Graph, layout: Layout, axes: Id) -> Result<Layout, Fault> {
    let rank = layout.shape.rank();
    let wrong = || Fault::BadShape {
        what: format!("axes that are no permutation of {rank} dimensions"),
    };
    let axes = match graph.node(axes) {
        Node::None => return Ok(layout),
        _ => graph.sequence(axes).ok_or_else(wrong)?,
    };
    let axes: Option<Vec<usize>> = axes
        .iter()
        .map(|axis| {
            usize::try_from(graph.int(*axis)?)
                .ok()
                .filter(|axis| *axis < rank)
        })
        .collect();
    let axes = axes.filter(|axes| axes.len() == rank).ok_or_else(wrong)?;
    if (0..rank).any(|axis| !axes.contains(&axis)) {
        return Err(wrong());
    }
    let shape: Vec<u64> = axes.iter().map(|axis| layout.shape.dims()[*axis]).collect();
    let strides = axes.iter().map(|axis| layout.strides[*axis]).collect();
    Ok(Layout {
        shape: Shape::from(shape),
        strides,
        ..layout
    })
}
