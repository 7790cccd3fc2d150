//! File to source: every tensor file its users have, lazily and safely.
//!
//! [`open`] maps a file and hands its bytes to the first format that recognises them: by leading bytes, then by
//! extension. A reader returns [`contents::Contents`] from headers alone. Nothing in a file is ever executed, no length
//! in a file is believed before it is checked against the file's own size, and one bad tensor never hides the others.

mod archive;
mod bundle;
mod cache;
mod contents;
mod error;
mod filekind;
mod folder;
mod gguf;
#[cfg(feature = "hdf5")]
mod hdf5;
mod input;
mod limits;
mod map;
mod msgpack;
mod names;
mod npy;
mod npz;
mod onnx;
mod open;
mod progress;
mod raw;
mod run;
mod safetensors;
mod sharded;
mod stdin;
mod torch;

pub use cache::Cache;
pub use error::{Fault, OpenError};
pub use limits::Limits;
pub use open::{OpenOptions, open, open_bytes};
pub use progress::Progress;
pub use raw::{RawSpec, RawSpecError};

#[cfg(test)]
mod tests {
    //! What the readers' tests share: bytes as an input, and a context.

    use crate::{
        Cache, Limits,
        input::{Context, Input},
    };
    use std::sync::Arc;

    pub(crate) fn input(name: &str, bytes: Vec<u8>) -> Input {
        Input {
            name: name.to_owned(),
            path: None,
            bytes: bytes.into(),
        }
    }

    pub(crate) fn context() -> Context {
        let dir = std::env::temp_dir().join(format!("twinscope-test-{}", std::process::id()));
        Context::new(Limits::default(), Arc::new(Cache::new(dir, 1 << 30)), 0)
    }
}
