//! torch's archives without a pickle of tensors: `torch.export` (weights beside a JSON table) and the TorchScript of
//! torch 1.0 to 1.3 (`model.json`).

use super::{
    layout::Layout,
    zip::{self, Records},
};
use crate::{
    contents::{Contents, Entry},
    error::Fault,
    input::{Context, Input},
};
use serde_json::{Map, Value, json};
use twinscope_tensor::{DType, Shape};

fn bad(what: impl Into<String>) -> Fault {
    Fault::BadHeader { what: what.into() }
}

fn parse(records: &Records, record: &str) -> Result<Value, Fault> {
    serde_json::from_slice(&records.get(record)?)
        .map_err(|error| bad(format!("`{record}`: {error}")))
}

/// `torch.export`: every weight is a record, its shape is in a table.
pub(super) fn read_weights(
    records: &Records,
    context: &Context,
    contents: &mut Contents,
) -> Result<(), Fault> {
    contents.format = "torch-export";
    let samples: Vec<String> = records
        .entries
        .iter()
        .filter_map(|entry| entry.name.strip_prefix(&records.prefix))
        .filter(|name| name.ends_with(".pt"))
        .map(str::to_owned)
        .collect();
    for name in samples {
        // Sample inputs are no weights, but their pickles are loaded with the model.
        if let Ok(bytes) = records.get(&name)
            && let Ok(deeper) = context.inside()
        {
            match zip::read(
                &Input {
                    name: name.clone(),
                    path: None,
                    bytes,
                },
                &deeper,
            ) {
                Ok(inner) => inner
                    .findings
                    .into_iter()
                    .for_each(|finding| contents.find(finding.kind, finding.text)),
                Err(fault) => contents.skip(name, fault),
            }
        }
    }
    let mut tables: Vec<String> = records
        .entries
        .iter()
        .filter_map(|entry| entry.name.strip_prefix(&records.prefix))
        .filter(|name| name.starts_with("data/weights/") && name.ends_with("_weights_config.json"))
        .map(str::to_owned)
        .collect();
    tables.sort();
    if tables.is_empty() {
        return Err(Fault::Missing {
            what: "`data/weights/model_weights_config.json`".into(),
        });
    }
    for table in tables {
        let parsed = parse(records, &table)?;
        let config = parsed
            .get("config")
            .and_then(Value::as_object)
            .ok_or_else(|| bad(format!("`{table}` has no `config`")))?;
        for (name, weight) in config {
            match weight_entry(records, weight) {
                Ok((layout, meta)) => push(contents, name.clone(), layout, meta),
                Err(fault) => contents.skip(name.clone(), fault),
            }
        }
    }
    Ok(())
}

fn weight_entry(records: &Records, weight: &Value) -> Result<(Layout, Map<String, Value>), Fault> {
    let path = weight
        .get("path_name")
        .and_then(Value::as_str)
        .ok_or_else(|| bad("a weight without `path_name`"))?;
    if weight.get("use_pickle").and_then(Value::as_bool) == Some(true) {
        return Err(Fault::Unsupported {
            what: format!("`{path}` is kept as a pickle"),
        });
    }
    let meta = weight
        .get("tensor_meta")
        .ok_or_else(|| bad("a weight without `tensor_meta`"))?;
    let code = meta.get("dtype").and_then(Value::as_i64).unwrap_or(0);
    let dtype = export_dtype(code).ok_or_else(|| Fault::BadDtype {
        what: format!("torch.export's type {code}"),
    })?;
    let int = |value: &Value| {
        value
            .as_i64()
            .or_else(|| value.get("as_int").and_then(Value::as_i64))
    };
    let ints = |name: &str| -> Result<Vec<i64>, Fault> {
        let list = meta
            .get(name)
            .and_then(Value::as_array)
            .ok_or_else(|| Fault::BadShape {
                what: format!("no `{name}`"),
            })?;
        list.iter()
            .map(|value| {
                int(value).ok_or_else(|| Fault::BadShape {
                    what: format!("`{name}` has {value}"),
                })
            })
            .collect()
    };
    let offset = meta.get("storage_offset").and_then(int).unwrap_or(0);
    let layout = strided(
        records,
        &format!("data/weights/{path}"),
        dtype,
        &ints("sizes")?,
        ints("strides")?,
        offset,
    )?;
    let mut told = Map::new();
    for (from, to) in [
        (weight.get("is_param"), "param"),
        (meta.get("requires_grad"), "requires_grad"),
    ] {
        if from.and_then(Value::as_bool) == Some(true) {
            told.insert(to.into(), true.into());
        }
    }
    told.insert("storage".into(), json!(path));
    Ok((layout, told))
}

fn strided(
    records: &Records,
    record: &str,
    dtype: DType,
    sizes: &[i64],
    strides: Vec<i64>,
    offset: i64,
) -> Result<Layout, Fault> {
    let sizes: Result<Vec<u64>, _> = sizes.iter().map(|size| u64::try_from(*size)).collect();
    let shape = Shape::from(sizes.map_err(|_| Fault::BadShape {
        what: "a negative size".into(),
    })?);
    let offset = u64::try_from(offset).map_err(|_| Fault::OutOfBounds {
        what: format!("a storage offset of {offset}"),
    })?;
    let mut layout = Layout::new(dtype, shape, strides, offset, records.origin(record)?)?;
    layout.big_endian = records.is_big_endian();
    Ok(layout)
}

fn push(contents: &mut Contents, name: String, layout: Layout, meta: Map<String, Value>) {
    let (dtype, shape) = (layout.dtype, layout.shape.clone());
    match layout.data() {
        Ok(data) => contents.entries.push(Entry {
            name,
            dtype,
            shape,
            meta: (!meta.is_empty()).then(|| Box::new(meta)),
            data,
        }),
        Err(fault) => contents.skip(name, fault),
    }
}

/// `ScalarType` of torch.export's schema.
fn export_dtype(code: i64) -> Option<DType> {
    Some(match code {
        1 => DType::U8,
        2 => DType::I8,
        3 => DType::I16,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::F16,
        7 => DType::F32,
        8 => DType::F64,
        9 => DType::C32,
        10 => DType::C64,
        11 => DType::C128,
        12 => DType::Bool,
        13 => DType::Bf16,
        28 => DType::U16,
        29 => DType::F8E4M3Fn,
        30 => DType::F8E5M2,
        31 => DType::F8E4M3Fnuz,
        32 => DType::F8E5M2Fnuz,
        _ => return None,
    })
}

/// TorchScript of torch 1.0 to 1.3: the module tree and the tensors are JSON.
pub(super) fn read_model_json(
    records: &Records,
    _context: &Context,
    contents: &mut Contents,
) -> Result<(), Fault> {
    contents.format = "torchscript";
    contents.ordered = true;
    let model = parse(records, "model.json")?;
    let tensors = model
        .get("tensors")
        .and_then(Value::as_array)
        .ok_or_else(|| bad("`model.json` has no `tensors`"))?;
    let main = model
        .get("mainModule")
        .ok_or_else(|| bad("`model.json` has no `mainModule`"))?;
    let mut modules = vec![(String::new(), main)];
    while let Some((path, module)) = modules.pop() {
        let named = |item: &Value| {
            let name = item.get("name").and_then(Value::as_str).unwrap_or_default();
            if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            }
        };
        let list = |name: &str| {
            module
                .get(name)
                .and_then(Value::as_array)
                .map(Vec::as_slice)
                .unwrap_or_default()
        };
        for parameter in list("parameters") {
            match tensor_of(records, tensors, parameter) {
                Ok(layout) => push(contents, named(parameter), layout, Map::new()),
                Err(fault) => contents.skip(named(parameter), fault),
            }
        }
        modules.extend(
            list("submodules")
                .iter()
                .rev()
                .map(|inner| (named(inner), inner)),
        );
    }
    Ok(())
}

fn tensor_of(records: &Records, tensors: &[Value], parameter: &Value) -> Result<Layout, Fault> {
    // Protobuf's JSON writes 64-bit integers as text.
    let int = |value: &Value| {
        value
            .as_i64()
            .or_else(|| value.as_str().and_then(|text| text.parse().ok()))
    };
    let id = parameter
        .get("tensorId")
        .and_then(int)
        .and_then(|id| usize::try_from(id).ok());
    let tensor = id
        .and_then(|id| tensors.get(id))
        .ok_or_else(|| Fault::Missing {
            what: "the tensor of a parameter".into(),
        })?;
    let name = tensor
        .get("dataType")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let dtype = match name {
        "FLOAT" => DType::F32,
        "DOUBLE" => DType::F64,
        "FLOAT16" => DType::F16,
        "BFLOAT16" => DType::Bf16,
        "INT64" => DType::I64,
        "INT32" => DType::I32,
        "INT16" => DType::I16,
        "INT8" => DType::I8,
        "UINT8" | "BYTE" => DType::U8,
        "BOOL" => DType::Bool,
        other => {
            return Err(Fault::BadDtype {
                what: format!("`{other}`"),
            });
        }
    };
    let ints = |name: &str| -> Vec<i64> {
        tensor
            .get(name)
            .and_then(Value::as_array)
            .map(|list| list.iter().filter_map(int).collect())
            .unwrap_or_default()
    };
    let key = tensor
        .pointer("/data/key")
        .and_then(Value::as_str)
        .ok_or_else(|| Fault::Missing {
            what: "a tensor's record".into(),
        })?;
    strided(
        records,
        key,
        dtype,
        &ints("dims"),
        ints("strides"),
        tensor.get("offset").and_then(int).unwrap_or(0),
    )
}
