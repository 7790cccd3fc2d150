//! Archives, folders and pipes, from outside: what is listed, what is refused, and that nothing hostile gets far.

use proptest::prelude::*;
use std::{
    fs,
    io::Write,
    os::unix::fs::symlink,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use twinscope_formats::{Cache, Limits, OpenError, OpenOptions, open, open_bytes};
use twinscope_tensor::TensorSource;

fn options(dir: &Path) -> OpenOptions {
    OpenOptions {
        limits: Limits::default(),
        cache: Arc::new(Cache::new(dir.join("cache"), 1 << 30)),
        raw: None,
    }
}

fn names(source: &dyn TensorSource) -> Vec<&str> {
    source
        .listing()
        .tensors
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect()
}

fn npy(values: &[f32]) -> Vec<u8> {
    let mut header = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}",
        values.len()
    );
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    values
        .iter()
        .for_each(|value| file.extend(value.to_le_bytes()));
    file
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A deflated zip; a member is its name, its packed bytes and the length they claim to have unpacked.
fn zip(members: &[(String, Vec<u8>, u32)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, packed, len) in members {
        let offset = file.len() as u32;
        let mut common = Vec::new();
        for field in [20u16, 0, 8, 0, 0] {
            common.extend(field.to_le_bytes());
        }
        for field in [0u32, packed.len() as u32, *len] {
            common.extend(field.to_le_bytes());
        }
        common.extend((name.len() as u16).to_le_bytes());
        common.extend(0u16.to_le_bytes());
        file.extend(b"PK\x03\x04");
        file.extend(&common);
        file.extend(name.as_bytes());
        file.extend(packed);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let at = file.len() as u32;
    file.extend(&directory);
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend((members.len() as u16).to_le_bytes());
    file.extend((members.len() as u16).to_le_bytes());
    file.extend((directory.len() as u32).to_le_bytes());
    file.extend(at.to_le_bytes());
    file.extend([0; 2]);
    file
}

fn packed(name: &str, bytes: &[u8]) -> (String, Vec<u8>, u32) {
    (name.to_owned(), deflate(bytes), bytes.len() as u32)
}

fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    for (name, bytes) in members {
        let mut header = [0u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        file.extend(header);
        file.extend(*bytes);
        file.resize(file.len().next_multiple_of(512), 0);
    }
    file.extend([0; 1024]);
    file
}

#[test]
fn a_folder_is_listed_by_layer_and_stage() {
    let dir = TempDir::new().unwrap();
    let dump = dir.path().join("dump");
    fs::create_dir(&dump).unwrap();
    for name in ["10_query", "2_post_mlp", "2_query"] {
        fs::write(dump.join(format!("{name}.npy")), npy(&[1.0])).unwrap();
    }
    let source = open(&dump, &options(dir.path())).unwrap();
    assert_eq!(names(&*source), ["2_query", "2_post_mlp", "10_query"]);
    assert_eq!(
        source.view(0).unwrap().contiguous().unwrap(),
        1f32.to_le_bytes()
    );
}

#[test]
fn links_out_of_a_folder_are_reported_and_not_followed() {
    let dir = TempDir::new().unwrap();
    let dump = dir.path().join("dump");
    fs::create_dir(&dump).unwrap();
    fs::write(dir.path().join("secret.npy"), npy(&[1.0])).unwrap();
    fs::write(dump.join("x.npy"), npy(&[2.0])).unwrap();
    symlink("../secret.npy", dump.join("leak.npy")).unwrap();
    symlink("x.npy", dump.join("alias.npy")).unwrap();
    symlink(".", dump.join("loop")).unwrap();
    let source = open(&dump, &options(dir.path())).unwrap();
    assert_eq!(names(&*source), ["alias", "x"]);
    let kinds: Vec<&str> = source
        .listing()
        .findings
        .iter()
        .map(|finding| finding.kind.name())
        .collect();
    assert!(
        kinds.contains(&"path_escape") && kinds.contains(&"odd"),
        "{kinds:?}"
    );
}

#[test]
fn links_of_the_hugging_face_cache_are_followed() {
    let dir = TempDir::new().unwrap();
    let repository = dir.path().join("models--x");
    fs::create_dir_all(repository.join("blobs")).unwrap();
    fs::create_dir_all(repository.join("snapshots/rev")).unwrap();
    fs::write(repository.join("blobs/abc"), npy(&[1.0])).unwrap();
    symlink("../../blobs/abc", repository.join("snapshots/rev/x.npy")).unwrap();
    let source = open(&repository.join("snapshots/rev"), &options(dir.path())).unwrap();
    assert_eq!(names(&*source), ["x"]);
    assert!(source.listing().findings.is_empty());
}

#[test]
fn an_index_does_not_follow_links_out_of_its_folder() {
    let dir = TempDir::new().unwrap();
    let model = dir.path().join("model");
    fs::create_dir(&model).unwrap();
    fs::write(dir.path().join("secret.npy"), npy(&[1.0])).unwrap();
    symlink("../secret.npy", model.join("shard.npy")).unwrap();
    fs::write(
        model.join("m.index.json"),
        r#"{"weight_map": {"shard": "shard.npy"}}"#,
    )
    .unwrap();
    let source = open(&model.join("m.index.json"), &options(dir.path())).unwrap();
    assert_eq!(names(&*source).len(), 0);
    assert!(source.listing().findings[0].kind.is_attack());
    assert!(
        source.listing().skipped[0]
            .reason
            .contains("leaves its folder"),
        "{:?}",
        source.listing().skipped
    );
}

#[test]
fn a_file_under_a_wrong_name_is_still_what_it_is() {
    let dir = TempDir::new().unwrap();
    for (bytes, names_of) in [
        (npy(&[1.0, 2.0]), vec!["x"]),
        (
            zip(&[(
                "a.npy".to_owned(),
                deflate(&npy(&[1.0])),
                npy(&[1.0]).len() as u32,
            )]),
            vec!["a"],
        ),
    ] {
        let source = open_bytes("x.safetensors", bytes.into(), &options(dir.path())).unwrap();
        assert_eq!(names(&*source), names_of);
    }
}

#[test]
fn a_tar_of_torch_files_is_all_of_them() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str| {
        fs::read(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../testdata/corpus/pt")
                .join(name),
        )
        .unwrap()
    };
    let (first, last) = (file("checkpoint.pt"), file("proto3.pt"));
    let count = |name: &str, bytes: Vec<u8>| {
        let source = open_bytes(name, bytes.into(), &options(folder.path())).unwrap();
        source.listing().tensors.len()
    };
    let both = count("first.pt", first.clone()) + count("last.pt", last.clone());
    let tar = tar(&[("first.pt", &first), ("last.pt", &last)]);
    assert_eq!(
        [
            count("both.tar", tar.clone()),
            count("both.tar.gz", gzip(&tar)),
            count("both.pt", tar)
        ],
        [both; 3]
    );
}

#[test]
fn a_hundred_members_may_not_unpack_to_more_than_the_file_is_worth() {
    let dir = TempDir::new().unwrap();
    let zeros = deflate(&vec![0; 40 << 20]);
    let members: Vec<_> = (0..100)
        .map(|i| (format!("{i}.npy"), zeros.clone(), 40 << 20))
        .collect();
    // 4 GB of zeros in 4 MB: each alone is small enough to be free, all together are a bomb.
    let start = Instant::now();
    let limits = Limits {
        inflate_ratio: 20,
        ..Limits::default()
    };
    let source = open_bytes(
        "bomb.zip",
        zip(&members).into(),
        &OpenOptions {
            limits,
            ..options(dir.path())
        },
    )
    .unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    let bombs = source
        .listing()
        .skipped
        .iter()
        .filter(|skipped| skipped.reason.contains("inflates too far"))
        .count();
    assert!(bombs >= 95, "{bombs}");
}

#[test]
fn archives_in_archives_share_one_budget() {
    let dir = TempDir::new().unwrap();
    let inner = zip(&[("x.npy".to_owned(), deflate(&vec![0; 8 << 20]), 8 << 20)]);
    let members: Vec<_> = (0..50)
        .map(|i| packed(&format!("{i}.zip"), &inner))
        .collect();
    let limits = Limits {
        inflate_free: 32 << 20,
        inflate_ratio: 1,
        ..Limits::default()
    };
    let source = open_bytes(
        "nested.zip",
        zip(&members).into(),
        &OpenOptions {
            limits,
            ..options(dir.path())
        },
    )
    .unwrap();
    let bombs = source
        .listing()
        .skipped
        .iter()
        .filter(|skipped| skipped.reason.contains("this file may unpack to"))
        .count();
    assert!(bombs >= 46, "{bombs} of 50 refused");
}

#[test]
fn a_gzip_that_lies_about_its_length_is_still_bounded() {
    let dir = TempDir::new().unwrap();
    let mut packed = gzip(&vec![0; 80 << 20]);
    let limits = Limits {
        inflate_free: 16 << 20,
        ..Limits::default()
    };
    let refuse = |packed: Vec<u8>| {
        let error = open_bytes(
            "x.npy.gz",
            packed.into(),
            &OpenOptions {
                limits,
                ..options(dir.path())
            },
        )
        .map(|_| ())
        .unwrap_err();
        assert!(error.to_string().contains("inflates too far"), "{error}");
        assert!(error.hint().is_some());
    };
    refuse(packed.clone());
    let end = packed.len();
    packed[end - 4..].copy_from_slice(&100u32.to_le_bytes());
    refuse(packed);
}

#[test]
fn pipes_are_spooled() {
    let dir = TempDir::new().unwrap();
    let fifo = dir.path().join("pipe.npy");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let writer = {
        let fifo = fifo.clone();
        std::thread::spawn(move || fs::write(fifo, npy(&vec![0.5; 1 << 20])).unwrap())
    };
    let source = open(&fifo, &options(dir.path())).unwrap();
    writer.join().unwrap();
    assert_eq!(names(&*source), ["pipe"]);
    assert_eq!(source.view(0).unwrap().len(), 1 << 20);
    assert_eq!(
        fs::read_dir(dir.path().join("cache")).unwrap().count(),
        0,
        "spill files have no names"
    );
}

#[test]
fn a_file_that_shrinks_after_opening_is_an_error_when_read() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.npy");
    fs::write(&path, npy(&vec![1.0; 100_000])).unwrap();
    let source = open(&path, &options(dir.path())).unwrap();
    let view = source.view(0).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1000)
        .unwrap();
    let sum: u64 = view
        .contiguous()
        .unwrap()
        .iter()
        .map(|b| u64::from(*b))
        .sum();
    assert!(sum < 100_000 * (0x80 + 0x3f), "most of it reads as zeros");
    assert!(
        view.check()
            .unwrap_err()
            .to_string()
            .contains("became shorter")
    );
}

#[test]
fn a_path_that_is_not_there_names_the_one_that_may_be_meant() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("model.safetensors"), b"x").unwrap();
    let say = |name: &str| {
        let error = open(&dir.path().join(name), &options(dir.path()))
            .map(|_| ())
            .unwrap_err();
        assert!(matches!(error, OpenError::Io { .. }) && error.hint().is_some());
        error.to_string()
    };
    assert!(say("model.safetensor").contains("did you mean"));
    assert!(say("model").contains("model.safetensors"));
    assert!(!say("zzz").contains("did you mean"));
    symlink("nowhere", dir.path().join("linked.pt")).unwrap();
    assert!(say("linked.pt").contains("it is a link to `nowhere`, which does not exist"));
}

#[test]
fn what_is_no_tensor_file_is_called_what_it_is() {
    let dir = TempDir::new().unwrap();
    let say = |bytes: &[u8]| {
        open_bytes("x.pt", bytes.to_vec().into(), &options(dir.path()))
            .map(|_| ())
            .unwrap_err()
    };
    let pointer = say(b"version https://git-lfs.github.com/spec/v1\n");
    assert!(
        pointer.to_string().contains("a Git LFS pointer")
            && pointer.hint().unwrap().contains("git lfs pull")
    );
    assert!(say(b"").to_string().contains("an empty file"));
}

fn mutated(file: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let len = file.len();
    let edits = prop::collection::vec((0..len, any::<u8>()), 1..6);
    (edits, 0..=len, any::<bool>()).prop_map(move |(edits, end, cut)| {
        let mut file = file.clone();
        edits.into_iter().for_each(|(at, byte)| file[at] = byte);
        if cut {
            file.truncate(end);
        }
        file
    })
}

fn survives(name: &str, bytes: Vec<u8>) {
    let dir = TempDir::new().unwrap();
    if let Ok(source) = open_bytes(name, bytes.into(), &options(dir.path())) {
        for i in 0..source.listing().tensors.len() {
            let _ = source
                .view(i)
                .map(|view| view.contiguous().map(<[u8]>::len));
        }
    }
}

fn sample() -> Vec<u8> {
    tar(&[
        ("d/0_query.npy", &npy(&[1.0, 2.0])),
        ("d/x.npy", &npy(&[3.0])),
        ("d/README", b"text"),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_mutated_tar_panics(bytes in mutated(sample())) {
        survives("x.tar", bytes);
    }

    #[test]
    fn no_mutated_tar_gz_panics(bytes in mutated(gzip(&sample()))) {
        survives("x.tar.gz", bytes);
    }

    #[test]
    fn no_mutated_zip_panics(bytes in mutated(zip(&[packed("a.npy", &npy(&[1.0])), packed("../b.npy", &npy(&[2.0]))]))) {
        survives("x.zip", bytes);
    }

    #[test]
    fn no_noise_panics(bytes in prop::collection::vec(any::<u8>(), 0..600), kind in 0..4usize) {
        let magic: &[u8] = [&b"\x1f\x8b\x08"[..], b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"{\"weight_map\""][kind];
        survives("x", [magic, &bytes].concat());
    }
}
