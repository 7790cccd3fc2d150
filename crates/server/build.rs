//! Puts the built page into the binary. Never runs npm: `ui-dist/` is committed, and without it the server says how to make one.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=ui-dist");
    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where the crate is"))
            .join("ui-dist");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let mut text = String::from("&[\n");
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
        let name = file
            .strip_prefix(&root)
            .expect("below the root")
            .to_string_lossy()
            .replace('\\', "/");
        text += &format!(
            "    ({name:?}, include_bytes!({:?}) as &[u8]),\n",
            file.display().to_string()
        );
    }
    text += "]\n";
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where to write")).join("assets.rs");
    fs::write(out, text).expect("the build folder can be written");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    // No folder, no page: the server says so to whoever asks for one.
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
