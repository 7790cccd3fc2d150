//! What is shown of tensors: windows, cells, searches, histograms, profiles, exports.

mod common;

use axum::http::StatusCode;
use common::{Server, safetensors, two_runs};

async fn opened() -> (Server, String) {
    let server = Server::new();
    two_runs(&server);
    let session = server.compared("a.safetensors", "b.safetensors").await;
    (server, session)
}

#[tokio::test]
async fn a_nan_survives_the_wire() {
    let (server, session) = opened().await;
    let window = server
        .get(&format!("{session}/pairs/2/window?at=0,0,0"))
        .await;
    assert_eq!(window.status, StatusCode::OK);
    let meta = window.meta();
    assert_eq!(
        (
            meta["height"].as_u64(),
            meta["width"].as_u64(),
            meta["exact"].as_bool()
        ),
        (Some(3), Some(4), Some(true))
    );
    let planes = window.floats();
    assert_eq!(planes.len(), 3 * 12);
    assert!(planes[5] == -2.5 && planes[12 + 5].is_nan() && planes[24 + 5].is_nan());
    assert_eq!(meta["planes"][1]["nan"], 1);
    let pair = server.get(&format!("{session}/pairs/2")).await.json();
    assert_eq!(pair["totals"]["worst"], serde_json::json!([-2.5, "NaN"]));
}

#[tokio::test]
async fn any_two_dimensions_are_rows_and_columns() {
    let (server, session) = opened().await;
    let window = server
        .get(&format!(
            "{session}/pairs/0/window?planes=reference&rows=2&cols=0&at=0,1,0"
        ))
        .await;
    assert_eq!(
        window.floats(),
        [-3.5, 8.5, -2.5, 9.5, -1.5, 10.5, -0.5, 11.5]
    );
    let row = server
        .get(&format!(
            "{session}/pairs/0/window?planes=candidate&cols=1&at=1,0,3"
        ))
        .await;
    assert_eq!(row.floats(), [7.5, 11.5, 15.5]);
    let flat = server
        .get(&format!(
            "{session}/pairs/0/window?planes=reference&flat=1&c0=10&c1=13"
        ))
        .await;
    assert_eq!(flat.floats(), [2.5, 3.5, 4.5]);
    for (query, code) in [
        ("rows=9&cols=0", "bad_window"),
        ("rows=1&cols=1", "bad_window"),
        ("at=0,9,0&rows=0&cols=2", "bad_window"),
        ("c1=99", "bad_window"),
        ("at=x", "bad_index"),
        ("planes=left", "bad_plane"),
        ("rows=minus", "bad_query"),
        ("exact=perhaps", "bad_query"),
    ] {
        assert_eq!(
            server
                .get(&format!("{session}/pairs/0/window?{query}"))
                .await
                .code(),
            code,
            "{query}"
        );
    }
}

#[tokio::test]
async fn a_pooled_picture_keeps_the_outlier() {
    let (server, session) = opened().await;
    let window = server
        .get(&format!(
            "{session}/pairs/2/window?planes=difference&at=1,0,0&height=1&width=1"
        ))
        .await;
    assert_eq!(window.floats(), [100.0 - 9.5]);
}

#[tokio::test]
async fn the_candidate_is_shown_lined_up_or_as_it_lies() {
    let (server, session) = opened().await;
    let pair = server.get(&format!("{session}/pairs/1")).await.json();
    assert_eq!(
        (
            pair["verdict"].as_str(),
            pair["shape"].to_string(),
            pair["candidate_tensors"][0]["shape"].to_string()
        ),
        (Some("identical"), "[4,6]".to_owned(), "[6,4]".to_owned())
    );
    let lined_up = server
        .get(&format!("{session}/pairs/1/window?planes=difference"))
        .await
        .floats();
    assert_eq!(lined_up, vec![0.0; 24]);
    let original = server
        .get(&format!(
            "{session}/pairs/1/window?planes=candidate&original=1"
        ))
        .await;
    assert_eq!(
        (original.meta()["rows"].as_u64(), original.floats()[1]),
        (Some(6), -1.5)
    );
    assert_eq!(
        server
            .get(&format!("{session}/pairs/1/window?original=1"))
            .await
            .code(),
        "unequal_windows"
    );
    // Its own dimensions, turned by hand: the difference vanishes again.
    let turned =
        server.get(&format!("{session}/pairs/1/window?planes=difference&original=1&rows=0&cols=1&other_rows=1&other_cols=0")).await;
    assert_eq!(turned.floats(), vec![0.0; 24], "{}", turned.text());
    let shifted = server
        .get(&format!("{session}/pairs/0/cells?c1=2&other_c0=1"))
        .await
        .json();
    assert_eq!(shifted["difference"][0], 1.0);
}

#[tokio::test]
async fn cells_are_exact_and_say_everything() {
    let (server, session) = opened().await;
    let cells = server
        .get(&format!(
            "{session}/pairs/2/cells?r0=1&r1=2&c0=0&c1=2&bits=1"
        ))
        .await
        .json();
    assert_eq!(cells["reference"], serde_json::json!(["-3.5", "-2.5"]));
    assert_eq!(cells["candidate"], serde_json::json!(["-3.5", "nan"]));
    assert_eq!(cells["difference"], serde_json::json!([0.0, "NaN"]));
    assert_eq!(
        (cells["relative"].to_string(), cells["ulp"].to_string()),
        ("[0.0,null]".to_owned(), "[0,null]".to_owned())
    );
    assert_eq!(
        cells["reference_bits"],
        serde_json::json!(["c0600000", "c0200000"])
    );
    let flat = server
        .get(&format!("{session}/pairs/2/cells?flat=1&c0=16&c1=18"))
        .await
        .json();
    assert_eq!(
        (flat["candidate"].to_string(), flat["rows"].as_u64()),
        (r#"["8.5","100.0"]"#.to_owned(), Some(1))
    );
}

#[tokio::test]
async fn too_many_cells_are_refused_with_a_hint() {
    let server = Server::new();
    server.file(
        "a.safetensors",
        &safetensors(&[("x", &[100, 100], &vec![0.0; 10_000])]),
    );
    let session = server.compared("a.safetensors", "a.safetensors").await;
    let answer = server.get(&format!("{session}/pairs/0/cells")).await;
    assert_eq!(answer.code(), "too_many_cells");
    assert!(
        answer.json()["hint"]
            .as_str()
            .unwrap()
            .contains("smaller range")
    );
}

#[tokio::test]
async fn searches_find_differences_nan_values_and_ranges() {
    let (server, session) = opened().await;
    let find = async |query: &str| {
        server
            .get(&format!("{session}/pairs/2/search?{query}"))
            .await
            .json()["index"]
            .to_string()
    };
    assert_eq!(find("what=difference").await, "[0,1,1]");
    assert_eq!(find("what=difference&from=0,1,1").await, "[1,1,1]");
    assert_eq!(find("what=difference&from=1,1,1").await, "null");
    assert_eq!(find("what=difference&direction=previous").await, "[1,1,1]");
    assert_eq!(find("what=nan&on=candidate").await, "[0,1,1]");
    assert_eq!(find("what=nonfinite").await, "null");
    assert_eq!(find("what=value&value=100&on=candidate").await, "[1,1,1]");
    assert_eq!(find("what=range&low=10&high=11").await, "[1,1,2]");
    assert_eq!(
        find("what=difference&beyond=1000").await,
        "[0,1,1]",
        "what is not finite is beyond everything"
    );
    let wrong = server
        .get(&format!("{session}/pairs/2/search?what=happiness"))
        .await;
    assert_eq!(wrong.code(), "bad_search");
    assert_eq!(
        server
            .get(&format!("{session}/pairs/2/search?what=value&value=x"))
            .await
            .code(),
        "bad_value"
    );
}

#[tokio::test]
async fn integers_beyond_f64_are_found_exactly() {
    let server = Server::new();
    let header = r#"{"x":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}}"#;
    let (first, second) = (1i64 << 53, (1i64 << 53) + 1);
    let bytes = [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        &first.to_le_bytes(),
        &second.to_le_bytes(),
    ]
    .concat();
    server.file("a.safetensors", &bytes);
    let session = server.compared("a.safetensors", "a.safetensors").await;
    let found = server
        .get(&format!(
            "{session}/pairs/0/search?what=value&value=9007199254740993"
        ))
        .await
        .json();
    assert_eq!(
        (found["index"].to_string(), found["reference"].as_str()),
        ("[1]".to_owned(), Some("9007199254740993"))
    );
}

#[tokio::test]
async fn histograms_count_everything_once() {
    let (server, session) = opened().await;
    let found = server
        .get(&format!("{session}/pairs/2/histogram?bins=8"))
        .await
        .json();
    let sum = |side: &str| {
        found[side]["counts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|count| count.as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(
        (
            sum("reference"),
            sum("candidate"),
            found["candidate"]["nan"].as_u64(),
            sum("difference")
        ),
        (24, 23, Some(1), 23)
    );
    assert_eq!(found["difference"]["high"], 90.5);
    let tensor = server
        .get(&format!(
            "{session}/sources/candidate/tensors/2/histogram?low=0&high=1"
        ))
        .await
        .json();
    assert_eq!(
        (
            tensor["candidate"].is_null(),
            tensor["reference"]["above"].as_u64()
        ),
        (true, Some(15))
    );
    assert_eq!(
        server
            .get(&format!("{session}/pairs/2/histogram?low=2&high=1"))
            .await
            .code(),
        "bad_range"
    );
}

#[tokio::test]
async fn a_profile_says_where() {
    let (server, session) = opened().await;
    let profiles = server
        .get(&format!("{session}/pairs/2/profile"))
        .await
        .json();
    assert_eq!(profiles["profiles"][0]["differing"].to_string(), "[1,1]");
    assert_eq!(profiles["profiles"][0]["max_abs"].to_string(), "[0.0,90.5]");
    assert_eq!(
        profiles["profiles"][2]["differing"].to_string(),
        "[0,2,0,0]"
    );
}

#[tokio::test]
async fn slices_are_taken_away_for_numpy_and_spreadsheets() {
    let (server, session) = opened().await;
    let npy = server
        .get(&format!("{session}/pairs/0/export.npy?slice=[0,:,1]"))
        .await;
    assert!(
        npy.headers["content-disposition"]
            .to_str()
            .unwrap()
            .contains("0_query.reference.npy")
    );
    assert!(npy.text().contains("'descr': '<f4'") && npy.text().contains("'shape': (3,)"));
    let values: Vec<f32> = npy.bytes[128..]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!(values, [-6.5, -2.5, 1.5]);
    let csv = server
        .get(&format!(
            "{session}/pairs/2/export.csv?side=difference&slice=[0,1:]"
        ))
        .await;
    assert_eq!(csv.text(), "0.0,NaN,0.0,0.0\n0.0,0.0,0.0,0.0\n");
    let original = server
        .get(&format!(
            "{session}/pairs/1/export.csv?side=candidate&original=1&slice=[0]"
        ))
        .await;
    assert_eq!(original.text(), "-7.5,-1.5,4.5,10.5\n");
    assert_eq!(
        server
            .get(&format!("{session}/pairs/0/export.npy?slice=[9]"))
            .await
            .code(),
        "bad_slice"
    );
    assert_eq!(
        server
            .get(&format!("{session}/pairs/0/export.npy?side=top"))
            .await
            .code(),
        "bad_plane"
    );
}

#[tokio::test]
async fn one_source_is_explored_by_itself() {
    let server = Server::new();
    two_runs(&server);
    let opened = server
        .post(
            "/api/v1/open",
            serde_json::json!({"reference": {"path": "b.safetensors"}}),
        )
        .await
        .json();
    assert_eq!(
        (opened["state"].as_str(), opened["mode"].as_str()),
        (Some("idle"), Some("explore"))
    );
    let session = format!("/api/v1/sessions/{}", opened["session"].as_str().unwrap());
    assert_eq!(
        server.get(&format!("{session}/pairs")).await.code(),
        "not_compared"
    );
    let tensors = server
        .get(&format!("{session}/sources/reference/tensors"))
        .await
        .json();
    assert_eq!(
        (
            tensors["tensors"].as_array().unwrap().len(),
            tensors["tensors"][3]["name"].as_str()
        ),
        (4, Some("zzz"))
    );
    let stats = server
        .get(&format!("{session}/sources/reference/stats?from=2&count=1"))
        .await
        .json();
    assert_eq!(
        (
            stats[0]["nan"].as_u64(),
            stats[0]["max"].as_f64(),
            stats.as_array().unwrap().len()
        ),
        (Some(1), Some(100.0), 1)
    );
    let window = server
        .get(&format!("{session}/sources/reference/tensors/3/window"))
        .await;
    assert_eq!(window.floats(), [1.0; 5]);
    let cells = server
        .get(&format!(
            "{session}/sources/reference/tensors/2/cells?r1=1&c1=1"
        ))
        .await
        .json();
    assert_eq!(
        (cells["reference"].to_string(), cells["candidate"].is_null()),
        (r#"["-7.5"]"#.to_owned(), true)
    );
    assert_eq!(
        server
            .get(&format!("{session}/sources/candidate/tensors"))
            .await
            .code(),
        "no_such_side"
    );
    assert_eq!(
        server
            .get(&format!("{session}/sources/reference/tensors/99/cells"))
            .await
            .code(),
        "no_such_tensor"
    );
    // Every tensor against every other, when asked for.
    assert_eq!(
        server
            .post(&format!("{session}/comparison"), serde_json::json!({}))
            .await
            .status,
        StatusCode::ACCEPTED
    );
    server.wait(&session).await;
    let pairs = server.get(&format!("{session}/pairs")).await.json();
    assert_eq!(pairs["pairs"].as_array().unwrap().len(), 6);
    let first = server
        .get(&format!("{session}/pairs/1/window?planes=difference"))
        .await;
    assert_eq!(first.status, StatusCode::OK, "{}", first.text());
}

#[tokio::test]
async fn empty_tensors_and_scalars_are_shown() {
    let server = Server::new();
    server.file(
        "a.safetensors",
        &safetensors(&[("empty", &[0, 3], &[]), ("one", &[], &[2.5])]),
    );
    let session = server.compared("a.safetensors", "a.safetensors").await;
    let pairs = server.get(&format!("{session}/pairs")).await.json();
    let at = |name: &str| {
        pairs["pairs"]
            .as_array()
            .unwrap()
            .iter()
            .position(|pair| pair["name"] == name)
            .unwrap()
    };
    let empty = server
        .get(&format!("{session}/pairs/{}/window", at("empty")))
        .await;
    assert_eq!(
        (empty.status, empty.bytes.len()),
        (StatusCode::OK, 0),
        "{}",
        empty.text()
    );
    assert_eq!(
        server
            .get(&format!(
                "{session}/pairs/{}/window?planes=reference",
                at("one")
            ))
            .await
            .floats(),
        [2.5]
    );
    let cells = server
        .get(&format!("{session}/pairs/{}/cells", at("one")))
        .await
        .json();
    assert_eq!(
        (cells["rows"].as_u64(), cells["candidate"].to_string()),
        (Some(1), r#"["2.5"]"#.to_owned())
    );
    let histogram = server
        .get(&format!("{session}/pairs/{}/histogram", at("empty")))
        .await;
    assert_eq!(histogram.status, StatusCode::OK, "{}", histogram.text());
}

#[tokio::test]
async fn a_cause_is_applied_and_the_difference_vanishes() {
    let server = Server::new();
    let values: Vec<f32> = (0..1200)
        .map(|i| ((i * 7919 % 1201) as f32 - 600.0) / 37.0)
        .collect();
    let scaled: Vec<f32> = values.iter().map(|value| value * 3.0).collect();
    server.file(
        "a.safetensors",
        &safetensors(&[("0_query", &[30, 40], &values)]),
    );
    server.file(
        "b.safetensors",
        &safetensors(&[("0_query", &[30, 40], &scaled)]),
    );
    let session = server.compared("a.safetensors", "b.safetensors").await;
    let pair = server.get(&format!("{session}/pairs/0")).await.json();
    assert_eq!(pair["causes"][0]["kind"], "scale", "{}", pair["causes"]);
    let largest = async |query: &str| {
        let window = server
            .get(&format!(
                "{session}/pairs/0/window?planes=difference{query}"
            ))
            .await;
        window
            .floats()
            .into_iter()
            .fold(0.0, |most: f32, value| most.max(value.abs()))
    };
    assert!(largest("").await > 30.0);
    assert!(largest("&cause=0").await < 1e-4);
    assert_eq!(
        server
            .get(&format!("{session}/pairs/0/window?cause=9"))
            .await
            .code(),
        "no_such_cause"
    );
    let server = server.restarted();
    assert_eq!(
        server
            .get(&format!("{session}/pairs/0/window?cause=0"))
            .await
            .code(),
        "not_in_memory"
    );
}
