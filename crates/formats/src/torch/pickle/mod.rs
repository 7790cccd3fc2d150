//! Pickles, followed without executing anything: [`unpickle`] turns bytes into a [`Graph`] of objects.

mod graph;
mod machine;

pub(crate) use graph::{Chain, Graph, Id, NIL, Node};
pub(crate) use machine::{End, Pickle, unpickle};

#[cfg(test)]
mod tests;
