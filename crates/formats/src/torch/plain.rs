//! Pickles on their own: `pickle.dump` of dicts of arrays or tensors, Paddle's `.pdparams`, object arrays of NumPy.

use super::{globals, pickle::unpickle, tensors::NoStorages, walk};
use crate::{
    contents::Contents,
    error::Fault,
    input::{Context, Input},
};
use twinscope_tensor::{Bytes, FindingKind};

pub(crate) fn recognise(input: &Input) -> bool {
    let pickled = matches!(
        input.extension().as_str(),
        "pkl" | "pickle" | "pdparams" | "pdopt" | "p"
    );
    let torch = matches!(input.extension().as_str(), "pt" | "pth" | "ckpt");
    match *input.bytes {
        [0x80, 0..=5, ..] => true,
        // Protocols 0 and 1 begin with the object itself: a container or a class.
        [first, ..] => {
            pickled || torch && b"(]}c".contains(&first) && input.bytes.last() == Some(&b'.')
        }
        [] => false,
    }
}

pub(crate) fn read(input: &Input, context: &Context) -> Result<Contents, Fault> {
    let mut contents = Contents::new("pickle");
    match read_pickle(&input.bytes, context, &mut contents) {
        Ok(end) => check_end(input, end, contents),
        Err(fault) => walk::refuse(contents, fault),
    }
}

/// A pickle ends its file. A torch file that begins with some other pickle has lost its magic number.
fn check_end(input: &Input, end: usize, mut contents: Contents) -> Result<Contents, Fault> {
    let left = input.bytes.len() - end;
    if left == 0 {
        return Ok(contents);
    }
    if contents.entries.is_empty() {
        let what = format!(
            "a pickle without tensors ends at byte {end}, {left} bytes follow and torch's magic number is missing"
        );
        return walk::refuse(contents, Fault::BadHeader { what });
    }
    contents.find(FindingKind::Odd, format!("{left} bytes follow the pickle"));
    Ok(contents)
}

/// Lists the one pickle that `bytes` begin with, and returns where it ends. Also for formats that hold a pickle.
pub(crate) fn read_pickle(
    bytes: &Bytes,
    context: &Context,
    contents: &mut Contents,
) -> Result<usize, Fault> {
    let pickle = unpickle(bytes, 0, &context.limits);
    globals::inspect(&pickle.graph, &context.limits, contents, false, 0);
    let end = pickle.result?;
    walk::interpret(&pickle.graph, end.root, &NoStorages, context, contents, 0);
    Ok(end.at)
}
