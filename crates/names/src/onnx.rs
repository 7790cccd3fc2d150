//! What an ONNX graph computes, named by modules and operators: `/layers.0/self_attn/q_proj/MatMul_output_0` is the result of `q_proj`.
//!
//! Only for modules that hold no others, and only where it is known which of their operators comes last; all others are left to the values.

use std::collections::{HashMap, HashSet};

/// The operators of a module that is written out, by one that shows which it is, and the last of them.
const WRITTEN_OUT: &[(&str, &[&str])] = &[
    ("ReduceMean", &["Add_1", "Mul_1"]),
    ("Erf", &["Mul_1", "Mul"]),
    ("Sigmoid", &["Mul"]),
    ("MatMul", &["Add"]),
];

/// The module and the operator: `/layers.0/mlp/act_fn` and `Mul_1` of `/layers.0/mlp/act_fn/Mul_1_output_0`.
fn operator(name: &str) -> Option<(&str, &str)> {
    let (module, operator) = name.strip_suffix("_output_0")?.rsplit_once('/')?;
    let named = name.starts_with('/')
        && !module.is_empty()
        && operator.starts_with(|first: char| first.is_ascii_uppercase());
    named.then_some((module, operator))
}

/// Of each name that is a module's result, the module.
pub fn results<'n>(names: impl Iterator<Item = &'n str>) -> HashMap<String, String> {
    let mut modules: HashMap<&str, Vec<(&str, &str)>> = HashMap::new();
    let mut holding: HashSet<&str> = HashSet::new();
    for (name, (module, operator)) in names.filter_map(|name| Some((name, operator(name)?))) {
        modules.entry(module).or_default().push((name, operator));
        holding.extend(module.match_indices('/').map(|(at, _)| &module[..at]));
    }
    let leaves = modules
        .into_iter()
        .filter(|(module, _)| !holding.contains(module));
    leaves
        .filter_map(|(module, operators)| Some((last(&operators)?.to_owned(), module.to_owned())))
        .collect()
}

fn last<'n>(operators: &[(&'n str, &str)]) -> Option<&'n str> {
    let named = |wanted: &str| {
        operators
            .iter()
            .find(|(_, operator)| *operator == wanted)
            .map(|(name, _)| *name)
    };
    match operators {
        [(name, _)] => Some(name),
        _ => {
            let (_, ends) = WRITTEN_OUT
                .iter()
                .find(|(shows, _)| named(shows).is_some())?;
            ends.iter().find_map(|end| named(end))
        }
    }
}
