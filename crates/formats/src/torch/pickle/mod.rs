//! Pickles, followed without executing anything: [`unpickle`] turns bytes into a [`Graph`] of objects.

mod graph;
mod machine;

pub(crate) use graph::{Graph, Id, NIL, Node};
pub(crate) use machine::{Pickle, unpickle};

#[cfg(test)]
mod tests;
