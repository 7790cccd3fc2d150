//! Reading back what was written, with the reader that everybody uses.
#![allow(dead_code, reason = "each test file uses its part")]

use std::{path::Path, sync::Arc};
use twinscope_formats::{Cache, Limits, OpenOptions};
use twinscope_tensor::TensorSource;

pub(crate) fn open(path: &Path) -> Box<dyn TensorSource> {
    let cache = Arc::new(Cache::new(std::env::temp_dir(), 1 << 30));
    let options = OpenOptions {
        limits: Limits::default(),
        cache,
        raw: None,
    };
    twinscope_formats::open(path, &options)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn names(source: &dyn TensorSource) -> Vec<&str> {
    source
        .listing()
        .tensors
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect()
}

/// The values of the tensor of this name.
pub(crate) fn bytes(source: &dyn TensorSource, name: &str) -> Vec<u8> {
    let index = names(source)
        .iter()
        .position(|known| *known == name)
        .unwrap_or_else(|| panic!("no `{name}` in {:?}", names(source)));
    let view = source.view(index).unwrap();
    view.contiguous().unwrap().to_vec()
}

pub(crate) fn meta<'a>(
    source: &'a dyn TensorSource,
    name: &str,
) -> &'a serde_json::Map<String, serde_json::Value> {
    let tensor = source
        .listing()
        .tensors
        .iter()
        .find(|tensor| tensor.name == name)
        .unwrap();
    tensor.meta.as_ref().unwrap()
}

pub(crate) fn le(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

pub(crate) fn compare(
    reference: &dyn TensorSource,
    candidate: &dyn TensorSource,
) -> twinscope_compare::Judged {
    twinscope_explain::compare(
        &twinscope_compare::Sources::two(reference, candidate),
        &twinscope_compare::Settings::default(),
    )
    .unwrap()
}
