//! Which crate may name which. ARCHITECTURE.md says why; this test says no.

use std::process::Command;

/// A crate and the crates it may depend on, besides `tensor`, which all may. Dev-dependencies are free: a test may use anything.
/// `*` is every crate of this table but `cli` and `debug`.
const MAY_NAME: &[(&str, &[&str])] = &[
    ("tensor", &[]),
    ("names", &[]),
    ("formats", &["names"]),
    ("measure", &[]),
    ("report", &[]),
    ("compare", &["names", "measure", "report"]),
    ("ops", &["names", "measure"]),
    ("explain", &["ops", "compare", "report", "names", "measure"]),
    ("analyze", &["ops", "measure", "names", "report"]),
    ("export", &["report", "ops", "measure"]),
    // `measure` only behind its feature `stats`, that is, optional.
    ("capture", &["measure"]),
    ("debug", &["capture", "formats", "analyze", "export"]),
    ("demo", &["capture"]),
    ("server", &["*"]),
    ("cli", &["*"]),
];

/// `names` of `twinscope-names`; the package of the command is `twinscope`.
fn short(package: &str) -> Option<&str> {
    match package {
        "twinscope" => Some("cli"),
        _ => package.strip_prefix("twinscope-"),
    }
}

fn may_name(from: &str, to: &str, optional: bool) -> Result<bool, String> {
    let (_, allowed) = MAY_NAME
        .iter()
        .find(|(name, _)| *name == from)
        .ok_or_else(|| {
            format!(
                "crate `{from}` is not in this test's table: add a row with the crates it may name, \
                 and a line to \"Who may know whom\" in ARCHITECTURE.md"
            )
        })?;
    let listed = allowed.contains(&to) || (allowed.contains(&"*") && to != "cli" && to != "debug");
    Ok(to == "tensor" || (listed && (from != "capture" || optional)))
}

/// Every arrow between crates of the workspace that the table does not allow, and every crate that is not in it.
fn faults(metadata: &serde_json::Value) -> Vec<String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    let names: Vec<String> = packages
        .iter()
        .map(|package| text(&package["name"]))
        .collect();
    let mut faults = Vec::new();
    for package in packages {
        let own = text(&package["name"]);
        let Some(from) = short(&own) else {
            faults.push(format!("package `{own}`: name it twinscope-something"));
            continue;
        };
        // Asks for the row also of a crate that depends on nothing.
        faults.extend(may_name(from, "tensor", false).err());
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let other = text(&dependency["name"]);
            // Tests may name anything; normal and build dependencies may not.
            if dependency["kind"] == "dev" || !names.contains(&other) {
                continue;
            }
            let optional = dependency["optional"] == true;
            let to = short(&other).unwrap_or(&other);
            if may_name(from, to, optional) == Ok(false) {
                faults.push(format!(
                    "`{from}` must not depend on `{to}`: move the code, or change the table here and \
                     \"Who may know whom\" in ARCHITECTURE.md"
                ));
            }
        }
    }
    faults
}

#[test]
fn crates_name_only_those_they_may() {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    assert_eq!(faults(&metadata), [""; 0]);
}

#[test]
fn a_forbidden_arrow_and_a_crate_without_a_row_are_reported() {
    let package = |name: &str, dependencies: &[(&str, Option<&str>, bool)]| {
        let dependencies: Vec<_> = dependencies
            .iter()
            .map(|(name, kind, optional)| {
                serde_json::json!({"name": name, "kind": kind, "optional": optional})
            })
            .collect();
        serde_json::json!({"name": name, "dependencies": dependencies})
    };
    let metadata = serde_json::json!({"packages": [
        package("twinscope-tensor", &[("serde", None, false)]),
        package("twinscope-measure", &[("twinscope-tensor", None, false)]),
        package("twinscope-formats", &[
            ("twinscope-measure", None, false),
            ("twinscope-capture", Some("dev"), false),
        ]),
        package("twinscope-capture", &[("twinscope-measure", None, true)]),
        package("twinscope-demo", &[("twinscope-capture", None, false)]),
        package("twinscope-server", &[("twinscope", None, false), ("twinscope-demo", None, false)]),
        package("twinscope-new", &[]),
        package("twinscope", &[("twinscope-server", None, false)]),
    ]});
    let found = faults(&metadata);
    let begins = [
        "`formats` must not depend on `measure`",
        "`server` must not depend on `cli`",
        "crate `new` is not in this test's table",
    ];
    assert_eq!(found.len(), begins.len(), "{found:?}");
    for (found, begin) in found.iter().zip(begins) {
        assert!(found.starts_with(begin), "{found}");
    }
}

/// `Judgement` has private fields, so only `compare::verdict` can make one; `explain` has no reason to hold one either.
#[test]
fn explain_never_handles_a_judgement() {
    fn sources(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                sources(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../explain/src");
    sources(&root, &mut files);
    assert!(files.len() > 30, "explain has its files");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        assert!(!text.contains("Judgement"), "{}", file.display());
        assert!(!text.contains(".judgement"), "{}", file.display());
    }
}
