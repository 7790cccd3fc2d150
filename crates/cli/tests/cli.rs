//! Exit code, stdout and stderr of every command, as one inline snapshot each.

mod common;

use common::{Folder, bf16s, f32s, i64s, npy, safetensors};
use insta::assert_snapshot;

/// A few tensors of different kinds.
fn sample() -> Folder {
    let folder = Folder::new();
    let tensors = safetensors(&[
        (
            "0_query",
            "BF16",
            &[1, 2, 3],
            bf16s(&[0.5, -1.25, 3.0, 0.0, -0.0, 100.0]),
        ),
        (
            "0_key",
            "F32",
            &[2, 2],
            f32s(&[0.1, f32::NAN, f32::INFINITY, -2.0]),
        ),
        ("1_query", "I64", &[3], i64s(&[1, -2, i64::MAX])),
        ("empty", "F32", &[0, 3], vec![]),
    ]);
    folder.write("sample.safetensors", &tensors);
    folder
}

/// One bare tensor: 0, 1, 2, ...
fn counting(shape: &[u64]) -> Folder {
    let folder = Folder::new();
    let values: Vec<f32> = (0..shape.iter().product()).map(|i: u64| i as f32).collect();
    folder.write("counting.npy", &npy("<f4", shape, &f32s(&values)));
    folder
}

#[test]
fn ls_prints_a_table_in_execution_order() {
    assert_snapshot!(sample().run(&["ls", "sample.safetensors"]), @r"
    exit code: 0
    ----- stdout -----
    #  name     dtype  shape      size
    1  0_query  bf16   [1, 2, 3]  12 B
    2  0_key    f32    [2, 2]     16 B
    3  1_query  i64    [3]        24 B
    4  empty    f32    [0, 3]      0 B

    4 tensors, 52 B, safetensors
    ----- stderr -----
    ");
}

#[test]
fn ls_takes_globs_hashes_and_exact_sizes() {
    let args = [
        "ls",
        "sample.safetensors",
        "--only",
        "*_query",
        "--only",
        "em?ty",
        "--hash",
        "--bytes",
    ];
    assert_snapshot!(sample().run(&args), @r"
    exit code: 0
    ----- stdout -----
    #  name     dtype  shape      size  sha256
    1  0_query  bf16   [1, 2, 3]    12  3324e97c43ae519f4945d23eb96ff5bb28c3fe682b771f1549045ac92c7fea8b
    3  1_query  i64    [3]          24  8a89506abb8fa62bdb0c1a4b345c65d1d77cc19e9f9eab7d9f294bfc926c5d1a
    4  empty    f32    [0, 3]        0  e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855

    3 tensors, 36 bytes, safetensors
    ----- stderr -----
    ");
}

#[test]
fn ls_json_is_the_contract() {
    assert_snapshot!(sample().run(&["ls", "sample.safetensors", "--json"]), @r#"
    exit code: 0
    ----- stdout -----
    {"source": "sample.safetensors",
     "format": "safetensors",
     "tensors": [
      {"name": "0_query", "dtype": "bf16", "shape": [1, 2, 3], "bytes": 12, "order": 0},
      {"name": "0_key", "dtype": "f32", "shape": [2, 2], "bytes": 16, "order": 1},
      {"name": "1_query", "dtype": "i64", "shape": [3], "bytes": 24, "order": 2},
      {"name": "empty", "dtype": "f32", "shape": [0, 3], "bytes": 0, "order": 3}],
     "values": [],
     "skipped": [],
     "findings": []}
    ----- stderr -----
    "#);
}

#[test]
fn ls_json_has_hashes_only_when_asked() {
    assert_snapshot!(sample().run(&["ls", "sample.safetensors", "--json", "--hash", "--only", "1*"]), @r#"
    exit code: 0
    ----- stdout -----
    {"source": "sample.safetensors",
     "format": "safetensors",
     "tensors": [
      {"name": "1_query", "dtype": "i64", "shape": [3], "bytes": 24, "order": 2, "sha256": "8a89506abb8fa62bdb0c1a4b345c65d1d77cc19e9f9eab7d9f294bfc926c5d1a"}],
     "values": [],
     "skipped": [],
     "findings": []}
    ----- stderr -----
    "#);
}

#[test]
fn ls_says_when_no_name_matches() {
    assert_snapshot!(sample().run(&["ls", "sample.safetensors", "--only", "nothing*"]), @r"
    exit code: 0
    ----- stdout -----
    0 tensors, 0 B, safetensors
    ----- stderr -----
    warning: --only matches none of 4 tensors
    ");
}

#[test]
fn a_bad_tensor_is_skipped_with_its_reason() {
    let folder = Folder::new();
    let good = ("good", "F32", &[2][..], f32s(&[1.0, 2.0]));
    let bad = ("bad", "F32", &[3][..], f32s(&[1.0, 2.0]));
    folder.write("damaged.safetensors", &safetensors(&[good, bad]));
    assert_snapshot!(folder.run(&["ls", "damaged.safetensors"]), @r"
    exit code: 0
    ----- stdout -----
    #  name  dtype  shape  size
    1  good  f32    [2]     8 B

    1 tensor, 1 skipped, 8 B, safetensors
    ----- stderr -----
    warning: skipped `bad`: length mismatch: [3] of f32 takes 12 bytes, data_offsets give 8
    ");
}

#[test]
fn a_hostile_name_cannot_drive_the_terminal() {
    let folder = Folder::new();
    folder.write(
        "hostile.safetensors",
        &safetensors(&[("\u{1b}[2Jgone\r\n\u{202e}", "U8", &[1], vec![7])]),
    );
    assert_snapshot!(folder.run(&["ls", "hostile.safetensors"]), @r"
    exit code: 0
    ----- stdout -----
    #  name                     dtype  shape  size
    1  \x1b[2Jgone\r\n\u{202e}  u8     [1]     1 B

    1 tensor, 1 B, safetensors
    ----- stderr -----
    ");
}

#[test]
fn what_cannot_be_opened_is_a_fact_and_a_hint() {
    assert_snapshot!(sample().run(&["ls", "nowhere.npy"]), @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    twinscope: cannot open `nowhere.npy`: no such file
    hint: check the path
    ");
}

#[test]
fn with_json_an_error_is_still_one_document() {
    assert_snapshot!(sample().run(&["stats", "nowhere.npy", "--json"]), @r#"
    exit code: 2
    ----- stdout -----
    {"error": {"message": "cannot open `nowhere.npy`: no such file", "hint": "check the path"},
     "source": "nowhere.npy"}
    ----- stderr -----
    twinscope: cannot open `nowhere.npy`: no such file
    hint: check the path
    "#);
}

#[test]
fn bad_usage_ends_with_2() {
    assert_snapshot!(sample().run(&["ls"]), @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: the following required arguments were not provided:
      <SOURCE>

    Usage: twinscope ls <SOURCE>

    For more information, try '--help'.
    ");
}

#[test]
fn bad_usage_with_json_is_still_one_document() {
    assert_snapshot!(sample().run(&["ls", "--json"]), @r#"
    exit code: 2
    ----- stdout -----
    {"error": {"message": "the following required arguments were not provided: <SOURCE>", "hint": "see `twinscope --help`"},
     "source": ""}
    ----- stderr -----
    error: the following required arguments were not provided:
      <SOURCE>

    Usage: twinscope ls --json <SOURCE>

    For more information, try '--help'.
    "#);
}

#[test]
fn a_bad_glob_is_refused() {
    assert_snapshot!(sample().run(&["ls", "sample.safetensors", "--only", "a[b"]), @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    twinscope: --only `a[b`: unclosed character class; missing ']'
    hint: write `[[]` for a bracket that is part of the name
    ");
}

#[test]
fn show_lays_values_out_like_numpy() {
    assert_snapshot!(sample().run(&["show", "sample.safetensors", "0_query"]), @r"
    exit code: 0
    ----- stdout -----
    0_query bf16 [1, 2, 3]
    [[[  0.5   -1.25   3.0 ]
      [  0.0   -0.0  100.0 ]]]
    ----- stderr -----
    ");
}

#[test]
fn show_takes_a_slice() {
    assert_snapshot!(counting(&[2, 3, 4]).run(&["show", "counting.npy", "counting[-1, ::2, 1:3]"]), @r"
    exit code: 0
    ----- stdout -----
    counting[-1, ::2, 1:3] f32 [2, 2] of [2, 3, 4]
    [[13.0 14.0]
     [21.0 22.0]]
    ----- stderr -----
    ");
}

#[test]
fn show_needs_no_name_for_the_only_tensor() {
    assert_snapshot!(counting(&[2, 3]).run(&["show", "counting.npy", "[0, ::-1]"]), @r"
    exit code: 0
    ----- stdout -----
    counting[0, ::-1] f32 [3] of [2, 3]
    [2.0 1.0 0.0]
    ----- stderr -----
    ");
}

#[test]
fn show_elides_what_does_not_fit() {
    assert_snapshot!(counting(&[40, 50]).run(&["show", "counting.npy"]), @r"
    exit code: 0
    ----- stdout -----
    counting f32 [40, 50]
    [[   0.0    1.0    2.0 ...   47.0   48.0   49.0]
     [  50.0   51.0   52.0 ...   97.0   98.0   99.0]
     [ 100.0  101.0  102.0 ...  147.0  148.0  149.0]
     ...
     [1850.0 1851.0 1852.0 ... 1897.0 1898.0 1899.0]
     [1900.0 1901.0 1902.0 ... 1947.0 1948.0 1949.0]
     [1950.0 1951.0 1952.0 ... 1997.0 1998.0 1999.0]]
    ----- stderr -----
    ");
}

#[test]
fn show_prints_one_number_bare() {
    assert_snapshot!(counting(&[2, 3]).run(&["show", "counting.npy", "[1, 2]"]), @r"
    exit code: 0
    ----- stdout -----
    counting[1, 2] f32 [] of [2, 3]
    5.0
    ----- stderr -----
    ");
}

#[test]
fn show_prints_no_numbers_as_brackets() {
    assert_snapshot!(sample().run(&["show", "sample.safetensors", "empty"]), @r"
    exit code: 0
    ----- stdout -----
    empty f32 [0, 3]
    []
    ----- stderr -----
    ");
}

#[test]
fn show_json_has_words_for_what_json_has_no_number_for() {
    assert_snapshot!(sample().run(&["show", "sample.safetensors", "0_key", "--json"]), @r#"
    exit code: 0
    ----- stdout -----
    {"name": "0_key", "dtype": "f32", "shape": [2, 2], "slice": null, "tensor_shape": [2, 2],
     "values": [[0.10000000149011612, "NaN"],
      ["Infinity", -2.0]]}
    ----- stderr -----
    "#);
}

#[test]
fn show_json_keeps_every_digit() {
    assert_snapshot!(sample().run(&["show", "sample.safetensors", "1_query[1:]", "--json"]), @r#"
    exit code: 0
    ----- stdout -----
    {"name": "1_query", "dtype": "i64", "shape": [2], "slice": "[1:]", "tensor_shape": [3],
     "values": [-2, 9223372036854775807]}
    ----- stderr -----
    "#);
}

#[test]
fn show_codes_prints_the_stored_bits() {
    assert_snapshot!(sample().run(&["show", "sample.safetensors", "0_query[0]", "--codes"]), @r"
    exit code: 0
    ----- stdout -----
    0_query[0] u16 [2, 3] of [1, 2, 3]
    [[16128 49056 16448]
     [    0 32768 17096]]
    ----- stderr -----
    ");
}

#[test]
fn show_suggests_the_name_meant() {
    assert_snapshot!(sample().run(&["show", "sample.safetensors", "0_qurey[0]"]), @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    twinscope: `sample.safetensors` holds no tensor `0_qurey`
    hint: did you mean `0_query` or `1_query`?
    ");
}

#[test]
fn show_asks_which_when_there_are_many() {
    assert_snapshot!(sample().run(&["show", "sample.safetensors", "[0]"]), @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    twinscope: `sample.safetensors` holds 4 tensors; say which one to show
    hint: `twinscope ls sample.safetensors` lists them; the first is `0_query`
    ");
}

#[test]
fn show_names_the_dimension_an_index_is_out_of() {
    assert_snapshot!(sample().run(&["show", "sample.safetensors", "0_query[0, 2]"]), @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    twinscope: `0_query[0, 2]`: index 2 is out of range for dimension 1, which has 2; the shape is [1, 2, 3]
    hint: a slice is written like NumPy's: [0, :, 5:9], [..., -1], [::2]
    ");
}

#[test]
fn show_tries_the_longest_name_first() {
    let folder = Folder::new();
    folder.write(
        "b.safetensors",
        &safetensors(&[
            ("a[0]", "U8", &[2], vec![1, 2]),
            ("a", "U8", &[2], vec![3, 4]),
        ]),
    );
    let values = |what: &str| {
        String::from_utf8(folder.output(&["show", "b.safetensors", what]).stdout).unwrap()
    };
    assert_eq!(values("a[0]"), "a[0] u8 [2]\n[1 2]\n");
    assert_eq!(values("a[0][1]"), "a[0][1] u8 [] of [2]\n2\n");
    assert_eq!(values("a[1]"), "a[1] u8 [] of [2]\n4\n");
}

#[test]
fn show_full_prints_every_value_once() {
    let output = counting(&[7, 11, 13]).output(&["show", "counting.npy", "--full"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, body) = text.split_once('\n').expect("a header line");
    let words = body
        .split([' ', '[', ']', '\n'])
        .filter(|word| !word.is_empty());
    let numbers: Vec<f64> = words.map(|word| word.parse().expect("a number")).collect();
    assert_eq!(numbers, (0..1001).map(f64::from).collect::<Vec<_>>());
}

#[test]
fn show_json_refuses_a_million_numbers_unless_told() {
    let folder = counting(&[1001, 1000]);
    assert_snapshot!(folder.run(&["show", "counting.npy", "--json"]), @r#"
    exit code: 2
    ----- stdout -----
    {"error": {"message": "`counting`: 1001000 values are more than 1000000", "hint": "show a part of it, like [0, ...], or all of it with --full"},
     "source": "counting.npy"}
    ----- stderr -----
    twinscope: `counting`: 1001000 values are more than 1000000
    hint: show a part of it, like [0, ...], or all of it with --full
    "#);
    let full = folder.output(&["show", "counting.npy", "--json", "--full"]);
    let document: serde_json::Value = serde_json::from_slice(&full.stdout).unwrap();
    assert_eq!(document["values"][1000][999], 1_000_999.0);
}

#[test]
fn show_reads_standard_input() {
    assert_snapshot!(counting(&[2, 3]).run_reading("counting.npy", &["show", "-", "[-1]"]), @r"
    exit code: 0
    ----- stdout -----
    stdin[-1] f32 [3] of [2, 3]
    [3.0 4.0 5.0]
    ----- stderr -----
    ");
}

#[test]
fn stats_counts_what_is_not_finite() {
    assert_snapshot!(sample().run(&["stats", "sample.safetensors"]), @r"
    exit code: 0
    ----- stdout -----
    name     dtype  shape      count        mean         std    min                  max  nan  inf  zero        norm
    0_query  bf16   [1, 2, 3]      6     17.0417     37.1221  -1.25                  100    0    0     2     100.054
    0_key    f32    [2, 2]         4       -0.95        1.05     -2                  0.1    1    1     0      2.0025
    1_query  i64    [3]            3  3.07446e18  4.34794e18     -2  9223372036854775807    0    0     0  9.22337e18
    empty    f32    [0, 3]         0           -           -      -                    -    0    0     0           -
    ----- stderr -----
    ");
}

#[test]
fn stats_sorts_by_a_column_and_puts_undefined_last() {
    assert_snapshot!(sample().run(&["stats", "sample.safetensors", "--sort", "max"]), @r"
    exit code: 0
    ----- stdout -----
    name     dtype  shape      count        mean         std    min                  max  nan  inf  zero        norm
    1_query  i64    [3]            3  3.07446e18  4.34794e18     -2  9223372036854775807    0    0     0  9.22337e18
    0_query  bf16   [1, 2, 3]      6     17.0417     37.1221  -1.25                  100    0    0     2     100.054
    0_key    f32    [2, 2]         4       -0.95        1.05     -2                  0.1    1    1     0      2.0025
    empty    f32    [0, 3]         0           -           -      -                    -    0    0     0           -
    ----- stderr -----
    ");
}

#[test]
fn stats_json_is_null_where_undefined() {
    assert_snapshot!(sample().run(&["stats", "sample.safetensors", "--json", "--only", "[0e]*y"]), @r#"
    exit code: 0
    ----- stdout -----
    {"source": "sample.safetensors",
     "format": "safetensors",
     "tensors": [
      {"name": "0_query", "dtype": "bf16", "shape": [1, 2, 3], "order": 0, "count": 6, "finite": 6, "mean": 17.041666666666668, "std": 37.12210052276436, "min": -1.25, "max": 100.0, "nan": 0, "inf": 0, "pos_inf": 0, "neg_inf": 0, "zero": 2, "norm": 100.0540478941257, "sum": 102.25, "max_abs": 100.0},
      {"name": "0_key", "dtype": "f32", "shape": [2, 2], "order": 1, "count": 4, "finite": 2, "mean": -0.9499999992549419, "std": 1.050000000745058, "min": -2.0, "max": 0.10000000149011612, "nan": 1, "inf": 1, "pos_inf": 1, "neg_inf": 0, "zero": 0, "norm": 2.0024984395244916, "sum": -1.8999999985098839, "max_abs": 2.0},
      {"name": "empty", "dtype": "f32", "shape": [0, 3], "order": 3, "count": 0, "finite": 0, "mean": null, "std": null, "min": null, "max": null, "nan": 0, "inf": 0, "pos_inf": 0, "neg_inf": 0, "zero": 0, "norm": null, "sum": null, "max_abs": null}],
     "skipped": [],
     "findings": []}
    ----- stderr -----
    "#);
}

#[test]
fn stats_digits_do_not_depend_on_the_threads() {
    let folder = Folder::new();
    let values: Vec<f32> = (0..300_000).map(|i| (i as f32).sin() * 1e3).collect();
    folder.write("sine.npy", &npy("<f4", &[300, 1000], &f32s(&values)));
    let one = folder.run(&["stats", "sine.npy", "--json", "--threads", "1"]);
    let many = folder.run(&["stats", "sine.npy", "--json", "--threads", "5"]);
    assert_eq!(one, many);
}

#[test]
fn help_lists_the_commands_there_are() {
    assert_snapshot!(sample().run(&["-h"]), @r"
    exit code: 0
    ----- stdout -----
    Finds where two runs of the same neural network part ways, whether it matters, and why

    Usage: twinscope [OPTIONS] <COMMAND>

    Commands:
      demo     Compare two runs of a small built-in transformer, one of them with a known fault
      diff     Say whether two sources agree, where they stop agreeing, and why
      explain  Say why one pair differs: every hypothesis tried, how much each explains
      ls       List names, dtypes, shapes and sizes, in execution order
      serve    Look at sources in the browser
      show     Print values, NumPy slice syntax
      stats    Measure every tensor: count, mean, std, min, max, NaN, Inf, zeros, norm
      help     Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version

    Options of every command:
          --json               Print one JSON document on stdout and nothing else
          --only <GLOB>        Only tensors and values whose name matches; `*` also matches `.` and `/`.
                               Repeat for more
          --cache-dir <DIR>    Where compressed data is unpacked to [default: the user's cache folder]
          --cache-size <SIZE>  How much may be unpacked there, like 500M or 8G [default: 16G]
          --max-ratio <N>      How many times larger than its packed form data may become [default: 500]
          --raw <SPEC>         Take the source as raw bytes of this dtype and shape, from this byte on,
                               like 'f32[3,4]@0'
          --threads <N>        Threads to work with [default: one for each core]

    Examples:
      twinscope hf_run.pt our_run.pt                 both in the browser, to look around
      twinscope diff hf_run.pt our_run.pt            where they diverge, bug or rounding, and why
      twinscope ls model.safetensors                 what is in it, in execution order
      twinscope ls run.tar.gz --only '0_*' --json    the first layer, for a script
      twinscope show dump.pt '0_query[0, :, 5:9]'    values, NumPy slice syntax
      twinscope stats model.gguf --sort max          one line of numbers for each tensor
      cat x.npy | twinscope stats -                  standard input

    A SOURCE is a .pt .pth .bin .ckpt .pkl .pt2 .safetensors .npy .npz .gguf .onnx .h5 .keras or
    .msgpack file, a sharded *.index.json, an archive or a folder of these, or `-` for standard
    input. Nothing in a file is ever executed.
    ----- stderr -----
    ");
}

#[test]
fn a_closed_pipe_ends_quietly() {
    use std::process::Stdio;
    let folder = Folder::new();
    let names: Vec<String> = (0..20_000).map(|i| format!("layer.{i}.weight")).collect();
    let tensors: Vec<common::Tensor<'_>> = names
        .iter()
        .map(|name| (name.as_str(), "U8", &[1][..], vec![0]))
        .collect();
    folder.write("many.safetensors", &safetensors(&tensors));
    let mut ls = common::command(folder.path());
    let mut child = ls
        .args(["ls", "many.safetensors"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_closed_stderr_changes_no_exit_code() {
    use std::process::Stdio;
    let folder = Folder::new();
    let mut child = common::command(folder.path())
        .args(["ls", "nowhere"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn a_misspelt_command_is_no_file() {
    let told = sample().run(&["dif", "sample.safetensors", "sample.safetensors"]);
    assert!(
        told.starts_with("exit code: 2") && told.contains("a similar subcommand exists: 'diff'"),
        "{told}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_once() {
    let folder = sample();
    let full = || {
        std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let output = common::command(folder.path())
        .args(["ls", "sample.safetensors"])
        .stdout(full())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "twinscope: cannot write to standard output: No space left on device (os error 28)\n"
    );
}
