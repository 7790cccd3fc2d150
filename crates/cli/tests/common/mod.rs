//! Small tensor files written by hand, and what the program says about them as one text.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// A folder of files for one test, gone afterwards.
pub(crate) struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(self.path()))
            .expect("a folder in the temporary folder");
        std::fs::write(&path, bytes).expect("a file in the temporary folder");
        path
    }

    /// Runs the program in this folder, so that paths in its answers are short and always the same.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        told(&self.output(args))
    }

    /// The same with this file on standard input.
    pub(crate) fn run_reading(&self, input: &str, args: &[&str]) -> String {
        let input = std::fs::File::open(self.path().join(input)).expect("a file of this folder");
        told(
            &command(self.path())
                .args(args)
                .stdin(input)
                .output()
                .expect("the program runs"),
        )
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        command(self.path())
            .args(args)
            .stdin(Stdio::null())
            .output()
            .expect("the program runs")
    }
}

pub(crate) fn command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twinscope"));
    command.current_dir(dir);
    command
}

fn told(output: &Output) -> String {
    let code = output
        .status
        .code()
        .map_or("a signal".to_owned(), |code| code.to_string());
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    format!("exit code: {code}\n----- stdout -----\n{out}----- stderr -----\n{err}")
}

/// A tensor of a safetensors file: name, dtype as that format spells it, shape, bytes.
pub(crate) type Tensor<'a> = (&'a str, &'a str, &'a [u64], Vec<u8>);

pub(crate) fn safetensors(tensors: &[Tensor<'_>]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend_from_slice(bytes);
        header.insert((*name).to_owned(), serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [start, data.len()]}));
    }
    let header = serde_json::to_vec(&header).expect("a header");
    [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()
}

pub(crate) fn npy(descr: &str, shape: &[u64], bytes: &[u8]) -> Vec<u8> {
    let dims: String = shape.iter().map(|dim| format!("{dim}, ")).collect();
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}\n");
    [
        b"\x93NUMPY\x01\x00",
        &(header.len() as u16).to_le_bytes()[..],
        header.as_bytes(),
        bytes,
    ]
    .concat()
}

pub(crate) fn f32s(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

pub(crate) fn i64s(values: &[i64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// bf16 by cutting f32 short: exact for the numbers the tests use.
pub(crate) fn bf16s(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes()[2..].to_vec())
        .collect()
}
