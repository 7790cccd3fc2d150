use super::*;
use proptest::prelude::*;
use std::sync::Arc;
use twinscope_tensor::{DType, View};

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value > 127 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [
        varint(field << 3 | 2),
        varint(value.len() as u64),
        value.to_vec(),
    ]
    .concat()
}

fn tensor(name: &str, kind: u64, dims: &[u64], rest: &[u8]) -> Vec<u8> {
    let dims = dims.iter().flat_map(|dim| number(1, *dim)).collect();
    [
        dims,
        number(2, kind),
        bytes(8, name.as_bytes()),
        rest.to_vec(),
    ]
    .concat()
}

fn model(graph: &[u8]) -> Vec<u8> {
    [number(1, 10), bytes(7, graph)].concat()
}

fn read_bytes(data: &[u8]) -> Result<Contents, Fault> {
    let context = Context::new(
        crate::Limits::default(),
        Arc::new(crate::Cache::new(std::env::temp_dir(), 1 << 20)),
        0,
    );
    read(
        &Input {
            name: "m.onnx".into(),
            path: None,
            bytes: data.to_vec().into(),
        },
        &context,
    )
}

fn values(view: &View) -> Vec<f64> {
    let mut out = Vec::new();
    assert!(twinscope_tensor::f64_values(
        view,
        0,
        view.len() as usize,
        &mut Vec::new(),
        &mut out
    ));
    out
}

#[test]
fn varints_one_by_one_and_packed_become_the_same_values() {
    let one_by_one = [number(5, 1), number(5, u64::MAX), number(5, 3)].concat();
    let packed = bytes(5, &[varint(1), varint(u64::MAX), varint(3)].concat());
    let graph = [
        bytes(5, &tensor("a", 5, &[3], &one_by_one)),
        bytes(5, &tensor("b", 5, &[3], &packed)),
    ]
    .concat();
    let contents = read_bytes(&model(&graph)).expect("readable");
    for entry in &contents.entries {
        assert_eq!(entry.dtype, DType::I16);
        assert_eq!(values(&entry.view().expect("values")), [1.0, -1.0, 3.0]);
    }
    assert_eq!(contents.entries.len(), 2);
}

#[test]
fn tensors_of_nodes_and_subgraphs_are_named_after_their_path() {
    let raw = bytes(9, &[1]);
    let inner = [bytes(2, b"body"), bytes(5, &tensor("w", 2, &[1], &raw))].concat();
    let node = [
        bytes(2, b"out"),
        bytes(3, b"loop"),
        bytes(5, &bytes(6, &inner)),
        bytes(5, &bytes(5, &tensor("", 2, &[1], &raw))),
    ]
    .concat();
    let twice = [
        bytes(1, &node),
        bytes(1, &node),
        bytes(5, &tensor("loop", 2, &[1], &raw)),
    ]
    .concat();
    let mut names: Vec<String> = read_bytes(&model(&twice))
        .expect("readable")
        .entries
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["body/w", "body/w#2", "loop", "loop#2", "loop#3"].map(String::from)
    );
}

#[test]
fn one_bad_tensor_does_not_hide_the_others() {
    let good = bytes(5, &tensor("good", 2, &[2], &bytes(9, &[1, 2])));
    let short = bytes(5, &tensor("short", 2, &[3], &bytes(9, &[1, 2])));
    let negative = bytes(5, &tensor("negative", 2, &[u64::MAX], &bytes(9, &[1])));
    let kind = bytes(5, &tensor("kind", 99, &[1], &bytes(9, &[1])));
    let cut = [number(1, 1), vec![0x4a, 0x7f]].concat();
    let graph = [short, negative, kind, bytes(5, &cut), good].concat();
    let contents = read_bytes(&model(&graph)).expect("readable");
    assert_eq!(contents.entries.len(), 1);
    assert_eq!(contents.skipped.len(), 4);
}

#[test]
fn a_cut_file_lists_what_is_whole() {
    let raw = bytes(9, &[7; 64]);
    let whole = model(
        &[
            bytes(5, &tensor("a", 2, &[64], &raw)),
            bytes(5, &tensor("b", 2, &[64], &raw)),
        ]
        .concat(),
    );
    let contents = read_bytes(&whole[..whole.len() - 10]).expect("readable");
    assert_eq!(
        contents
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect::<Vec<_>>(),
        ["a"]
    );
    assert!(
        contents
            .skipped
            .iter()
            .any(|skipped| skipped.name == "b" && skipped.reason.starts_with("cut short"))
    );
}

#[test]
fn external_data_stays_in_the_models_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("model")).expect("a folder");
    std::fs::write(folder.path().join("secret"), [1, 2, 3, 4]).expect("a file");
    std::fs::write(folder.path().join("model/w.bin"), [9, 8, 7, 6]).expect("a file");
    #[cfg(unix)]
    std::os::unix::fs::symlink("../secret", folder.path().join("model/link")).expect("a link");
    let pair = |key: &str, value: &str| {
        bytes(
            13,
            &[bytes(1, key.as_bytes()), bytes(2, value.as_bytes())].concat(),
        )
    };
    let external = |name: &str, location: &str, offset: &str| {
        let rest = [
            pair("location", location),
            pair("offset", offset),
            pair("length", "2"),
            number(14, 1),
        ]
        .concat();
        bytes(5, &tensor(name, 2, &[2], &rest))
    };
    let absolute = folder.path().join("secret").display().to_string();
    let graph = [
        external("good", "w.bin", "1"),
        external("up", "../secret", "0"),
        external("back", "..\\secret", "0"),
        external("absolute", &absolute, "0"),
        external("link", "link", "0"),
        external("far", "w.bin", "3"),
        external("wild", "w.bin", "-1"),
        external("gone", "gone.bin", "0"),
        external("folder", ".", "0"),
    ]
    .concat();
    let path = folder.path().join("model/m.onnx");
    let context = Context::new(
        crate::Limits::default(),
        Arc::new(crate::Cache::new(std::env::temp_dir(), 1 << 20)),
        0,
    );
    let input = Input {
        name: "m.onnx".into(),
        path: Some(path),
        bytes: model(&graph).into(),
    };
    let contents = read(&input, &context).expect("readable");
    assert_eq!(contents.entries.len(), 1);
    assert_eq!(
        values(&contents.entries[0].view().expect("values")),
        [8.0, 7.0]
    );
    assert_eq!(contents.skipped.len(), 8);
    let escapes = contents
        .findings
        .iter()
        .filter(|finding| finding.kind == FindingKind::PathEscape)
        .count();
    assert_eq!(escapes, if cfg!(unix) { 4 } else { 3 });
}

#[test]
fn graphs_do_not_nest_without_end() {
    let mut graph = bytes(2, b"g");
    for _ in 0..3000 {
        graph = bytes(1, &bytes(5, &bytes(6, &graph)));
    }
    let contents = read_bytes(&model(&graph)).expect("the outer graph is sound");
    assert_eq!(contents.skipped.len(), 1);
}

#[test]
fn a_model_is_known_by_its_first_fields() {
    let graph = bytes(5, &tensor("w", 2, &[1], &bytes(9, &[1])));
    let input = |data: Vec<u8>| Input {
        name: "member".into(),
        path: None,
        bytes: data.into(),
    };
    assert!(recognise(&input(model(&graph))));
    assert!(!recognise(&input(b"\x08\x0ahello".to_vec())));
    assert!(!recognise(&input(Vec::new())));
}

proptest! {
    #[test]
    fn damaged_models_never_panic(at in 0usize..200, byte in any::<u8>(), cut in 0usize..220) {
        let raw = bytes(9, &[7; 16]);
        let inner = [bytes(2, b"g"), bytes(5, &tensor("w", 1, &[4], &raw))].concat();
        let sparse = [bytes(1, &tensor("s", 7, &[1], &bytes(7, &[5]))), bytes(2, &tensor("i", 7, &[1], &number(7, 5))), number(3, 9)].concat();
        let graph = [
            bytes(1, &[bytes(3, b"n"), bytes(5, &bytes(6, &inner))].concat()),
            bytes(15, &sparse),
            bytes(5, &tensor("a", 5, &[2], &bytes(5, &[1, 2]))),
        ].concat();
        let mut data = model(&graph);
        let at = at.min(data.len() - 1);
        data[at] = byte;
        data.truncate(cut);
        recognise(&Input { name: "x".into(), path: None, bytes: data.clone().into() });
        if let Ok(contents) = read_bytes(&data) {
            for entry in contents.entries {
                let _ = entry.view();
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_bytes(&data);
        let _ = read_bytes(&model(&data));
    }
}
