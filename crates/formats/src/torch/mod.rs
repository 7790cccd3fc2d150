//! Everything torch and pickle: zip, legacy, tar and plain pickles, TorchScript, exports, distributed checkpoints.
//!
//! Nothing in a pickle is executed: [`pickle`] turns it into a graph, [`globals`] tells what it would have called,
//! [`tensors`] understands the calls that rebuild tensors, and [`walk`] lists what is found under its names.

mod assemble;
pub(crate) mod dcp;
mod export;
mod globals;
mod layout;
pub(crate) mod legacy;
mod numpy;
mod pickle;
pub(crate) mod plain;
mod sparse;
pub(crate) mod tar;
mod tensors;
mod walk;
pub(crate) mod zero;
pub(crate) mod zip;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Cache, Limits,
        contents::Contents,
        error::Fault,
        input::{Context, Input},
    };
    use std::{path::Path, sync::Arc};

    type Read = fn(&Input, &Context) -> Result<Contents, Fault>;

    /// Reads bent forms of a real file (every `step`-th byte: all of them take minutes and were tried), and every tensor that
    /// is still listed: nothing may panic.
    fn bend(case: &str, file: &str, step: usize, read: Read) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../testdata/torch")
            .join(case)
            .join(file);
        let whole = std::fs::read(&path).expect("a golden file");
        let context = Context::new(
            Limits::default(),
            Arc::new(Cache::new(std::env::temp_dir(), 1 << 20)),
            whole.len() as u64,
        );
        let look = |bytes: Vec<u8>| {
            let Ok(contents) = read(
                &Input {
                    name: file.to_owned(),
                    path: None,
                    bytes: bytes.into(),
                },
                &context,
            ) else {
                return;
            };
            for entry in &contents.entries {
                if let Ok(view) = entry.view()
                    && view.len() < 1 << 16
                    && view.dtype().itemsize().is_some()
                {
                    view.chunk(0, view.len() as usize, &mut Vec::new());
                }
            }
        };
        for at in (0..whole.len()).step_by(step) {
            for value in [0xff, whole[at] ^ 1, whole[at] ^ 0x80] {
                let mut bent = whole.clone();
                bent[at] = value;
                look(bent);
            }
            look(whole[..at].to_vec());
        }
    }

    #[test]
    fn no_byte_of_a_zip_can_make_it_panic() {
        bend("zip", "input.pt", 7, zip::read);
        bend("quantized", "input.pt", 11, zip::read);
    }

    #[test]
    fn no_byte_of_sparse_and_nested_tensors_can_make_them_panic() {
        bend("sparse", "input.pt", 31, zip::read);
        bend("nested_jagged", "input.pt", 13, zip::read);
        bend("nested_strided", "input.pt", 13, zip::read);
    }

    #[test]
    fn no_byte_of_a_legacy_file_can_make_it_panic() {
        bend("legacy", "input.pt", 3, legacy::read);
    }

    #[test]
    fn no_byte_of_a_plain_pickle_can_make_it_panic() {
        bend("plain_numpy_protocol_2", "input.pkl", 3, plain::read);
        bend("plain_numpy_protocol_5", "input.pkl", 3, plain::read);
        bend("plain_pickle_of_tensors", "input.pkl", 5, plain::read);
    }
}
