//! Reading back what was recorded. One recorder runs at a time, so the tests take turns.
#![allow(dead_code, reason = "each test file uses its part")]

use serde_json::{Map, Value};
use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use twinscope_compare::{Judged, Settings, Sources};
use twinscope_formats::{Cache, Limits, OpenOptions};
use twinscope_tensor::TensorSource;

pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn open(path: &Path) -> Box<dyn TensorSource> {
    let cache = Arc::new(Cache::new(std::env::temp_dir(), 1 << 30));
    let options = OpenOptions {
        limits: Limits::default(),
        cache,
        raw: None,
    };
    twinscope_formats::open(path, &options)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn names(source: &dyn TensorSource) -> Vec<&str> {
    source
        .listing()
        .tensors
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect()
}

pub fn index(source: &dyn TensorSource, name: &str) -> usize {
    names(source)
        .iter()
        .position(|known| *known == name)
        .unwrap_or_else(|| panic!("no `{name}` in {:?}", names(source)))
}

pub fn bytes(source: &dyn TensorSource, name: &str) -> Vec<u8> {
    source
        .view(index(source, name))
        .unwrap()
        .contiguous()
        .unwrap()
        .to_vec()
}

pub fn meta<'a>(source: &'a dyn TensorSource, name: &str) -> &'a Map<String, Value> {
    source.listing().tensors[index(source, name)]
        .meta
        .as_ref()
        .unwrap()
}

/// The names of the tensors that this one was computed from.
pub fn inputs(source: &dyn TensorSource, name: &str) -> Vec<String> {
    let tensors = &source.listing().tensors;
    let numbers = meta(source, name)
        .get("inputs")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let of = |i: &Value| {
        tensors
            .iter()
            .find(|tensor| tensor.meta.as_ref().unwrap()["i"] == *i)
            .unwrap()
            .name
            .clone()
    };
    numbers.iter().map(of).collect()
}

pub fn compare(reference: &dyn TensorSource, candidate: &dyn TensorSource) -> Judged {
    twinscope_explain::compare(&Sources::two(reference, candidate), &Settings::default()).unwrap()
}
