//! Trees of transformers' `model_addition_debugger`: a JSON file of modules in the order they ran, whose values are
//! small safetensors files beside it. A tree written with `use_repr=True` has only printed digits, which are no values.

use super::contained;
use crate::{
    contents::Contents,
    error::Fault,
    input::{Context, Input},
    map, open,
};
use serde_json::Value;
use std::path::Path;
use twinscope_tensor::FindingKind;

pub(crate) const FORMAT: &str = "hf-debug-tree";

/// What the debugger calls its files. The summary holds nothing the full tree does not.
pub(crate) fn is_tree_name(file: &str) -> bool {
    file.ends_with("_debug_tree_FULL_TENSORS.json")
}

pub(crate) fn recognise(input: &Input) -> bool {
    let head = &input.bytes[..input.bytes.len().min(256)];
    let tree = std::str::from_utf8(head)
        .is_ok_and(|text| text.trim_start().starts_with('{') && text.contains("\"module_path\""));
    tree && input.extension() == "json"
}

/// The files that the tree's values are in, relative to it.
pub(crate) fn files(bytes: &[u8]) -> Vec<String> {
    let mut files = Vec::new();
    if let Ok(tree) = serde_json::from_slice::<Value>(bytes) {
        walk(&tree, &mut |_, tensor| {
            if let Some(file) = tensor.get("value").and_then(Value::as_str) {
                files.push(file.trim_start_matches("./").to_owned());
            }
        });
    }
    files
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let bad = |what: String| Fault::BadHeader { what };
    if input.bytes.len() as u64 > context.limits.header_bytes {
        return Err(Fault::Limit {
            what: format!("a tree of {} bytes", input.bytes.len()),
        });
    }
    // serde_json refuses to go deeper than 128 levels, which bounds the walk as well.
    let tree: Value =
        serde_json::from_slice(&input.bytes).map_err(|e| bad(format!("not JSON: {e}")))?;
    let mut contents = Contents::new(FORMAT);
    contents.ordered = true;
    let folder = input.path.as_deref().and_then(Path::parent);
    walk(&tree, &mut |name, tensor| {
        if let Err(fault) = read_tensor(&name, tensor, folder, context, &mut contents) {
            if let Fault::PathEscape { what } = &fault {
                contents.find(FindingKind::PathEscape, what.clone());
            }
            contents.skip(name, fault);
        }
    });
    Ok(contents)
}

fn read_tensor(
    name: &str,
    tensor: &Value,
    folder: Option<&Path>,
    context: &Context,
    contents: &mut Contents,
) -> Result<(), Fault> {
    let Some(file) = tensor.get("value").and_then(Value::as_str) else {
        let what = "only printed digits were kept, not values; dump with use_repr=False".to_owned();
        return Err(Fault::Unsupported { what });
    };
    let folder = folder.ok_or_else(|| Fault::Missing {
        what: format!("`{file}`, and nothing is known of its folder"),
    })?;
    let path = contained(folder, file.trim_start_matches("./"))?;
    let bytes = map::map_file(&path).map_err(|e| Fault::Missing {
        what: format!("`{file}`: {e}"),
    })?;
    let input = Input {
        name: file.to_owned(),
        path: Some(path),
        bytes,
    };
    let inner = open::read(&input, context).map_err(|e| Fault::BadHeader {
        what: e.to_string(),
    })?;
    contents.skipped.extend(inner.skipped);
    let single = inner.entries.len() == 1;
    for mut entry in inner.entries {
        entry.name = if single || entry.name.is_empty() {
            name.to_owned()
        } else {
            format!("{name}.{}", entry.name)
        };
        contents.entries.push(entry);
    }
    Ok(())
}

/// Calls `found` with the name and the description of each tensor, modules in the order they ran.
fn walk(module: &Value, found: &mut dyn FnMut(String, &Value)) {
    let path = module
        .get("module_path")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if let Some(inputs) = module.get("inputs") {
        walk_value(&format!("{path}.inputs"), inputs, found);
    }
    for child in module
        .get("children")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        walk(child, found);
    }
    if let Some(outputs) = module.get("outputs") {
        walk_value(&format!("{path}.outputs"), outputs, found);
    }
}

fn walk_value(name: &str, value: &Value, found: &mut dyn FnMut(String, &Value)) {
    match value {
        Value::Object(map) if map.contains_key("shape") && map.contains_key("dtype") => {
            found(name.to_owned(), value);
        }
        Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| walk_value(&format!("{name}.{key}"), value, found)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(i, value)| walk_value(&format!("{name}.{i}"), value, found)),
        _ => {}
    }
}
